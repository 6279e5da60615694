//! A subscriber that is sent few messages, and sleeps for each: how much of a core it takes and how late it is woken,
//! beside a thread that sleeps on a bare futex.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tranship_sys::{futex, process};
use tranship_topic::Topics;

use super::trip::Word;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Party};
use crate::stats::Measured;
use crate::systems::tranship::join;

const NAME: &str = "few";
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages, and the time between two.
const FEW: (u64, Duration) = (600, Duration::from_millis(5));
/// In place of the time at which a message was sent.
const END: u64 = u64::MAX;
const SHARE: &str = "core_share";

type Side = fn(&Party) -> Result<Vec<Measured>>;
const WAYS: [(&str, Side, Side); 2] = [
    ("a subscriber", publisher, subscriber),
    ("a thread on a bare futex", waker, sleeper),
];

/// Measures both ways.
pub fn verdicts(common: &Common) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for (number, (who, write, read)) in (0..).zip(WAYS) {
        let measured = party::each(number, &common.cores(), |me, party| {
            [write, read][me](party)
        })?;
        for one in measured {
            let share = one.facts.get(SHARE).copied().unwrap_or_default();
            let late = one.median_ns / 1e3;
            said.push(format!(
                "{who} that is sent 200 messages a second takes {share:.2} % of a core, and has a message {late:.1} us after it was sent"
            ));
        }
    }
    Ok(said)
}

/// Sends the time, now and then.
fn send(mut send: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut next = Instant::now();
    for _ in 0..FEW.0 {
        next += FEW.1;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        send(clock::ticks())?;
    }
    send(END)
}

/// Receives times until the end.
fn receive(mut receive: impl FnMut() -> Result<u64>) -> Result<Vec<Measured>> {
    // The first ones make what is made once.
    for _ in 0..FEW.0 / 10 {
        receive()?;
    }
    let (begun, before) = (Instant::now(), process::thread_time());
    let mut late = Vec::new();
    loop {
        match receive()? {
            END => break,
            sent => late.push(clock::ticks().saturating_sub(sent)),
        }
    }
    let busy = process::thread_time() - before;
    let share = busy.as_secs_f64() / begun.elapsed().as_secs_f64();
    late.sort_unstable();
    let median = late.get(late.len() / 2).context("a message")?;
    Ok(vec![Measured {
        median_ns: clock::ns(*median),
        facts: [(SHARE.into(), share * 100.0)].into(),
        ..Measured::default()
    }])
}

fn publisher(party: &Party) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let mut publisher = domain.publish(NAME)?;
    publisher.wait_for(1, PATIENCE)?;
    send(|word| {
        let mut message = publisher.alloc(64)?;
        message.write(0, &word.to_le_bytes())?;
        publisher.send((message, word))?;
        Ok(())
    })?;
    party.barrier()?;
    Ok(Vec::new())
}

fn subscriber(party: &Party) -> Result<Vec<Measured>> {
    let domain = join::domain(1, party)?;
    let mut subscriber = domain.subscribe(NAME)?;
    let measured = receive(|| Ok(subscriber.recv()?.word))?;
    party.barrier()?;
    Ok(measured)
}

/// The word on which the other side sleeps: the lower half of one that nothing else uses.
fn bell(word: &Word) -> *const AtomicU32 {
    std::ptr::from_ref(word.get()).cast()
}

fn waker(party: &Party) -> Result<Vec<Measured>> {
    let (sent, rung) = (Word::make()?, Word::make()?);
    party.send(1, 0, &[sent.fd(), rung.fd()])?;
    send(|word| {
        sent.get().store(word, Ordering::Release);
        rung.get().fetch_add(1, Ordering::Release);
        futex::wake(bell(&rung), 1)?;
        Ok(())
    })?;
    party.barrier()?;
    Ok(Vec::new())
}

fn sleeper(party: &Party) -> Result<Vec<Measured>> {
    let (_, fds) = party.recv(0)?;
    let [sent, rung] = fds.try_into().ok().context("two pages")?;
    let (sent, rung) = (Word::map(sent)?, Word::map(rung)?);
    let mut seen = 0;
    let measured = receive(|| {
        loop {
            let now = rung.get().load(Ordering::Acquire);
            if now != seen {
                seen = now;
                return Ok(sent.get().load(Ordering::Acquire));
            }
            // A word that counts wakes of one run.
            futex::wait(
                bell(&rung),
                u32::try_from(now)?,
                Some(Duration::from_millis(100)),
            )?;
        }
    })?;
    party.barrier()?;
    Ok(measured)
}
