//! A stage of the pipeline: reads a request out of the page that it came in, writes it into one of its own pool, and
//! sends that on.

use super::super::plan::{CALLERS, PAGE, STAGES};
use super::work_queue::{WorkQueue, mark};
use anyhow::{Context, Result};
use tranship::{Body, Domain, Kind, LinkOptions, Message, PoolOptions, Receiver, Role, Wait};

/// Returns the address where a stage, or after the last one the client, receives.
pub(super) fn address(stage: u32) -> String {
    match stage as usize {
        1..=STAGES => format!("stage {stage}"),
        _ => "answers".to_owned(),
    }
}

/// Returns options with room for all requests.
pub(super) fn options() -> LinkOptions {
    let lines = CALLERS.next_power_of_two() * 2;
    LinkOptions::new().lines(lines).wait(Wait::Sleep)
}

pub(super) fn run(domain: &Domain, number: u32, hold_ms: u64) -> Result<()> {
    let options_of_pool = PoolOptions::new(PAGE * 1024)
        .chunk_bytes(PAGE)
        .name(&address(number));
    let pool = domain.create_pool(options_of_pool)?;
    let listener = domain.listen_with(&address(number), Role::Sink, options())?;
    // The last one's end is taken first, so that all are there when the client's first request comes.
    let mut next = domain
        .open_sender_with(&address(number + 1), options())
        .context("the next stage")?;
    next.assign(&pool)?;
    let mut queue = WorkQueue::new(pool, hold_ms, number.into());
    queue.report();
    let mut requests = listener.accept_receiver()?;
    while queue.report() {
        queue.serve()?;
        while let Some((request, page)) = queue.done() {
            next.send_with(page.freeze(), request)?;
        }
        match requests.recv_timeout(queue.pause()) {
            Ok(message) => all(&mut queue, &mut requests, message)?,
            Err(error) if error == Kind::TimedOut => {}
            Err(error) => return Err(error).context("the stage before"),
        }
    }
    Ok(())
}

/// Releases the page that a request came in before a page for it is waited for: a waiting caller has none.
fn all(queue: &mut WorkQueue, requests: &mut Receiver, first: Message) -> Result<()> {
    let mut message = Some(first);
    while let Some(Message { meta, body }) = message {
        if let Body::Buf(page) = body
            && page.view().read_u8(0)? != mark(meta)
        {
            queue.wrong();
        }
        queue.come(meta)?;
        message = requests.try_recv()?;
    }
    Ok(())
}
