//! The product's way.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tranship_core::{BufferMut, Domain, Message, PoolOptions, Wait};
use tranship_topic::{Publisher, Subscriber, SubscriberOptions, TopicOptions, Topics, WhenBehind};

use super::trip::{self, Word};
use super::what::{BUFFERS, LINES, Mode, PAYLOAD};
use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, Samples, sample};
use crate::systems::tranship::join;

/// The word of the last message.
const END: u64 = u64::MAX;
const NAME: &str = "topic";
const PATIENCE: Duration = Duration::from_secs(60);

fn options(mode: Mode) -> TopicOptions {
    let options = TopicOptions::new().depth(LINES);
    match mode {
        Mode::Stream => options
            .when_behind(WhenBehind::Wait(PATIENCE))
            .pool(PoolOptions::new(u64::from(BUFFERS) * 4096).slots(BUFFERS)),
        Mode::Delivered => options.depth(16),
        Mode::Publish | Mode::Asleep | Mode::Trip => {
            options.pool(PoolOptions::new(u64::from(BUFFERS) * 4096).slots(BUFFERS))
        }
    }
}

pub fn publisher(
    mode: Mode,
    receivers: usize,
    party: &Party,
    budget: u64,
) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let mut publisher = domain.publish_with(NAME, options(mode))?;
    let (_, mut fds) = party.recv(1)?;
    let echo = Word::map(fds.pop().context("the subscribers' page")?)?;
    publisher.wait_for(receivers, PATIENCE)?;
    party.barrier()?;
    let samples = match mode {
        Mode::Publish | Mode::Stream => stream(&mut publisher, budget)?,
        Mode::Asleep => sparse(&mut publisher, budget)?,
        Mode::Delivered | Mode::Trip => deliver(&mut publisher, &echo, budget, mode.bytes())?,
    };
    publisher.send((&[], END))?;
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

#[inline(always)]
fn publish(publisher: &mut Publisher, number: u64) -> Result<()> {
    let mut message = publisher.alloc(PAYLOAD)?;
    message.write(0, &u64::to_le_bytes(number))?;
    publisher.send((message, number))?;
    Ok(())
}

fn stream(publisher: &mut Publisher, budget: u64) -> Result<Samples> {
    let mut numbers = 0..;
    trip::stream(budget, || {
        publish(publisher, numbers.next().context("a number")?)
    })
}

/// One message after each pause, in which every subscriber goes to sleep.
fn sparse(publisher: &mut Publisher, budget: u64) -> Result<Samples> {
    sample(budget, 1, || {
        std::thread::sleep(Duration::from_millis(1));
        clock::spent(|| publish(publisher, 0))
    })
}

/// A message of so many bytes that is made in the buffer, until all have it.
fn deliver(publisher: &mut Publisher, echo: &Word, budget: u64, bytes: usize) -> Result<Samples> {
    let make = |publisher: &mut Publisher, number: u64| {
        let mut message = publisher.alloc(bytes)?;
        message.fill(number.to_le_bytes()[0]);
        Ok(message)
    };
    let send = |publisher: &mut Publisher, message: BufferMut, number| {
        publisher.send((message, number))?;
        Ok(())
    };
    trip::echoed(publisher, echo, budget, make, send)
}

/// A domain of its own for each.
fn domains(count: usize, party: &Party) -> Result<Vec<Domain>> {
    let mut all = vec![join::domain(1, party)?];
    for n in 1..count {
        let there = Domain::builder()
            .name(&format!("still-{n}"))
            .socket(join::socket(party.run))
            .connect()?;
        all.push(there);
    }
    Ok(all)
}

pub fn subscribers(mode: Mode, receivers: usize, party: &Party, _: u64) -> Result<Vec<Measured>> {
    let all = domains(receivers, party)?;
    let echo = Word::make()?;
    party.send(0, 0, &[echo.fd()])?;
    let wait = match mode {
        Mode::Asleep => Wait::Sleep,
        _ => Wait::Spin,
    };
    let mut subscribers = Vec::new();
    let mut ahead: Option<Message> = None;
    for (n, domain) in all.iter().enumerate() {
        let options = SubscriberOptions::new().wait(wait);
        let options = match mode == Mode::Stream && n == 0 {
            true => options.reliable(),
            false => options,
        };
        let mut subscriber = domain.subscribe_with(NAME, options)?;
        while !subscriber.status().joined {
            ahead = ahead.or(subscriber.try_recv()?);
        }
        subscribers.push(subscriber);
    }
    ensure!(ahead.is_none(), "nothing is published yet");
    party.barrier()?;
    match mode {
        Mode::Publish | Mode::Stream => run_one(subscribers)?,
        Mode::Asleep => run_all(subscribers)?,
        Mode::Delivered | Mode::Trip => run_in_turn(subscribers, &echo, mode.bytes())?,
    }
    party.barrier()?;
    Ok(Vec::new())
}

/// The first one runs, the others stand still; each tenth keeps a buffer.
fn run_one(mut subscribers: Vec<Subscriber>) -> Result<()> {
    let (running, still) = subscribers.split_first_mut().context("a subscriber")?;
    let mut kept = Vec::new();
    for still in still.iter_mut().step_by(10) {
        kept.push(still.recv().context("a message to keep")?);
    }
    while running.recv()?.word != END {}
    Ok(())
}

/// A thread each.
fn run_all(subscribers: Vec<Subscriber>) -> Result<()> {
    let threads = subscribers.into_iter().map(|mut subscriber| {
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(move || -> Result<()> {
                while subscriber.recv()?.word != END {}
                Ok(())
            })
    });
    let threads = threads.collect::<Result<Vec<_>, _>>()?;
    let mut ended = threads.into_iter().map(|thread| thread.join());
    ended.try_for_each(|ended| ended.unwrap_or_else(|_| anyhow::bail!("a subscriber panicked")))
}

/// One thread receives for all: as many run as there are cores.
fn run_in_turn(mut subscribers: Vec<Subscriber>, echo: &Word, bytes: usize) -> Result<()> {
    let mut number = 0;
    loop {
        for subscriber in &mut subscribers {
            let message = subscriber.recv()?;
            if message.word == END {
                return Ok(());
            }
            ensure!(
                message.word == number && message.len() == bytes,
                "another message"
            );
        }
        trip::answer(echo, number);
        number += 1;
    }
}
