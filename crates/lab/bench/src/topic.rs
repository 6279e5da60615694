//! `topic`: a publish through the library to 1, 32 and 200 subscribers. `topic-ring` measures the ring below it.
//!
//! One subscriber runs, on the other core, and is reliable: the publisher waits for it. The others have joined and stand
//! still; each tenth keeps a buffer.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tranship_core::{Domain, Message, PoolOptions, Wait};
use tranship_topic::{SubscriberOptions, TopicOptions, Topics, WhenBehind};

use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row};
use crate::stats::{Measured, Samples};
use crate::systems::tranship::join;

const RECEIVERS: [usize; 3] = [1, 32, 200];
const BUFFERS: u32 = 1024;
const LINES: u32 = 64;
/// Publishes of one sample of a stream.
const BURST: u32 = 16;
/// The word of the last message.
const END: u64 = u64::MAX;
const NAME: &str = "topic";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub struct Topic;

impl Bench for Topic {
    const REFERENCES: &'static [&'static str] = &["tranship"];

    fn systems(&self) -> Vec<&'static str> {
        vec!["tranship"]
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let [core, other] = common.cores();
        ensure!(core != other, "two cores: both sides spin");
        let all = common.some_of(&RECEIVERS);
        let cells = all.iter().map(|&receivers| cell(receivers, common));
        outcome.group(common.runs(), cells.collect());
        outcome.verdicts = verdicts(&outcome.rows);
        Ok(outcome)
    }
}

fn cell(receivers: usize, common: &Common) -> Cell<'_> {
    let key = Key {
        mode: "stream",
        buffers: Some(BUFFERS as usize),
        receivers: Some(receivers),
        ..Key::default()
    };
    Cell {
        system: "tranship",
        key,
        measure: Box::new(move |number| once(receivers, common, number)),
    }
}

/// Publishing to many beside publishing to one.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let of = |receivers| rows.iter().find(|row| row.key.receivers == Some(receivers));
    let Some(one) = of(1) else { return Vec::new() };
    let many = RECEIVERS[1..].iter().filter_map(|&n| Some((n, of(n)?)));
    let say = |(n, row): (usize, &Row)| {
        let (mean, p99) = (one.per_second / row.per_second, row.p99_ns / one.p99_ns);
        format!("a publish to {n} costs {mean:.2}x one to 1 in the mean, {p99:.2}x in p99")
    };
    many.map(say).collect()
}

fn once(receivers: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let [core, other] = common.cores();
    let budget = clock::in_ticks(common.budget());
    let write = move |party: &Party| publisher(receivers, party, budget);
    let read = move |party: &Party| subscribers(receivers, party);
    let members = vec![
        Member {
            core,
            body: Box::new(write),
        },
        Member {
            core: other,
            body: Box::new(read),
        },
    ];
    Ok(party::run(number, members)?.into_iter().flatten().collect())
}

fn publisher(receivers: usize, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let pool = PoolOptions::new(u64::from(BUFFERS) * 4096).slots(BUFFERS);
    let waits = WhenBehind::Wait(PATIENCE);
    let options = TopicOptions::new()
        .depth(LINES)
        .when_behind(waits)
        .pool(pool);
    let mut publisher = domain.publish_with(NAME, options)?;
    publisher.wait_for(receivers, PATIENCE)?;
    party.barrier()?;
    let mut samples = Samples::new(1 << 17, BURST);
    let mut number = 0;
    let mut publish = |burst: u32| -> Result<()> {
        for _ in 0..burst {
            let mut message = publisher.alloc(64)?;
            message.write(0, &u64::to_le_bytes(number))?;
            publisher.send((message, number))?;
            number += 1;
        }
        Ok(())
    };
    publish(4000)?;
    let begun = clock::ticks();
    let mut before = begun;
    loop {
        publish(BURST)?;
        let now = clock::ticks();
        if !samples.push(now - before) || now - begun > budget {
            break;
        }
        before = now;
    }
    publisher.send((&[], END))?;
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

fn subscribers(receivers: usize, party: &Party) -> Result<Vec<Measured>> {
    let domain = join::domain(1, party)?;
    let options = SubscriberOptions::new().wait(Wait::Spin);
    let mut running = domain.subscribe_with(NAME, options.clone().reliable())?;
    let mut others = Vec::new();
    let mut ahead: Option<Message> = None;
    while !running.status().joined {
        ahead = running.try_recv()?;
    }
    for n in 1..receivers {
        let socket = join::socket(party.run);
        let there = Domain::builder()
            .name(&format!("still-{n}"))
            .socket(socket)
            .connect()?;
        let mut still = there.subscribe_with(NAME, options.clone())?;
        while !still.status().joined {
            ensure!(still.try_recv()?.is_none(), "nothing is published yet");
        }
        others.push(still);
    }
    party.barrier()?;
    ensure!(ahead.is_none(), "nothing is published yet");
    let mut kept = Vec::new();
    for still in others.iter_mut().step_by(10) {
        kept.push(still.recv().context("a message to keep")?);
    }
    let mut expected = 0;
    loop {
        let message = running.recv()?;
        if message.word == END {
            break;
        }
        ensure!(
            message.word == expected,
            "message {} instead of {expected}",
            message.word
        );
        expected += 1;
    }
    party.barrier()?;
    Ok(Vec::new())
}
