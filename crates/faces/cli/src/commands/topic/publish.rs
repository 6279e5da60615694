//! `tranship topic pub`: messages of the command line, a file, or the lines of standard input.

use crate::args::topic::PubArgs;
use crate::commands::connect;
use crate::commands::messages::{MOST, given};
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant};
use tranship::topic::{Publisher, TopicOptions, Topics as _};
use tranship::{INLINE_BYTES, PoolOptions};

/// Buffers of the topic's pool.
const SLOTS: u32 = 1024;
/// How often a publisher that waits takes subscribers in.
const TEND: Duration = Duration::from_millis(5);

pub(super) fn run(args: &PubArgs) -> Result<Answer> {
    let message = given(args.text.as_deref(), args.file.as_deref())?;
    if message.is_none() {
        output::check_stdin()?;
    }
    let name = &args.topic.name;
    let domain = connect::stay(&args.connect, "tranship-topic")?;
    // A late subscriber of a program that is over soon gets what there was.
    let options = TopicOptions::new()
        .history(16)
        .pool(PoolOptions::new(MOST).slots(SLOTS).name(name));
    let publishing = || format!("publishing topic `{name}`");
    let mut publisher = domain
        .publish_with(name, options)
        .with_context(publishing)?;
    if args.subscribers > 0 {
        let waited = publisher.wait_for(args.subscribers, args.wait);
        waited.with_context(publishing)?;
    }
    match message {
        Some(message) => repeat(&mut publisher, &message, args),
        None => lines(&mut publisher, args.word),
    }
    .with_context(publishing)?;
    Ok(Answer::Yes)
}

fn repeat(publisher: &mut Publisher, message: &[u8], args: &PubArgs) -> Result<()> {
    let mut next = Instant::now();
    for number in 0..args.count {
        if number > 0 {
            next += args.every;
            idle(publisher, next)?;
        }
        send(publisher, message, args.word)?;
    }
    Ok(())
}

/// Publishes each line of standard input, without its end.
fn lines(publisher: &mut Publisher, word: u64) -> Result<()> {
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(MOST).read_until(b'\n', &mut line);
        if read.context("reading standard input")? == 0 {
            return Ok(());
        }
        line.pop_if(|last| *last == b'\n');
        send(publisher, &line, word)?;
    }
}

fn send(publisher: &mut Publisher, message: &[u8], word: u64) -> Result<()> {
    if message.len() <= INLINE_BYTES {
        publisher
            .send((message, word))
            .map_err(|failed| failed.error)?;
        return Ok(());
    }
    let mut buffer = publisher.alloc(message.len())?;
    buffer.copy_from_slice(message);
    publisher
        .send((buffer, word))
        .map_err(|failed| failed.error)?;
    Ok(())
}

/// Waits, and takes subscribers in.
fn idle(publisher: &mut Publisher, until: Instant) -> Result<()> {
    loop {
        publisher.tend()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(TEND));
    }
}
