//! A stage of the pipeline: reads a request out of the page that it came in, writes it into one of its own pool, and
//! sends that on.

use super::super::plan::{CALLERS, PAGE, STAGES};
use super::work_queue::{WorkQueue, mark};
use anyhow::{Context, Result};
use tranship::{
    Body, ChannelOptions, Domain, ErrorKind, Message, PoolOptions, Receiver, Sender, Wait,
};

/// Where a stage, or after the last one the client, receives.
pub(super) fn address(stage: u32) -> String {
    match stage as usize {
        1..=STAGES => format!("stage {stage}"),
        _ => "answers".to_owned(),
    }
}

/// All requests that there are fit.
pub(super) fn options() -> ChannelOptions {
    let lines = CALLERS.next_power_of_two() * 2;
    ChannelOptions::new().lines(lines).wait(Wait::Sleep)
}

pub(super) fn run(domain: &Domain, number: u32, hold_ms: u64) -> Result<()> {
    let options_of_pool = PoolOptions::new(PAGE * 1024)
        .chunk_bytes(PAGE)
        .name(&address(number));
    let pool = domain.create_pool(options_of_pool)?;
    let listener = domain.listen_with::<Receiver>(&address(number), options())?;
    // The last one's end is taken first, so that all are there when the client's first request comes.
    let mut next = domain
        .open_with::<Sender>(&address(number + 1), options())
        .context("the next stage")?;
    next.assign(&pool)?;
    let mut queue = WorkQueue::new(pool, hold_ms, number.into());
    queue.report();
    let mut requests = listener.accept()?;
    while queue.report() {
        queue.serve()?;
        while let Some((request, page)) = queue.done() {
            next.send((page.freeze(), request))?;
        }
        match requests.recv_timeout(queue.pause()) {
            Ok(message) => all(&mut queue, &mut requests, message)?,
            Err(error) if error == ErrorKind::TimedOut => {}
            Err(error) => return Err(error).context("the stage before"),
        }
    }
    Ok(())
}

/// The page that a request came in is let go before one for it is waited for: who waits has none.
fn all(queue: &mut WorkQueue, requests: &mut Receiver, first: Message) -> Result<()> {
    let mut message = Some(first);
    while let Some(Message { word, body }) = message {
        if let Body::Buffer(page) = body
            && page.view().read::<u8>(0)? != mark(word)
        {
            queue.wrong();
        }
        queue.come(word)?;
        message = requests.try_recv()?;
    }
    Ok(())
}
