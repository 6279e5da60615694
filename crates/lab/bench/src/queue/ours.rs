//! The product's queue.

use anyhow::{Result, ensure};
use tranship_core::{Domain, Wait};
use tranship_queue::{Consumer, ConsumerOptions, Producer, QueueOptions, Queues};

use super::way::{END, ITEM, Way, run_stream};
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::stats::{Measured, Samples};
use crate::systems::tranship::join;

const NAME: &str = "jobs";
const DEPTH: u32 = 256;
/// Items before anything is measured.
const WARM: u64 = 1000;

/// One end.
enum End {
    Sends(Box<Producer>),
    Takes(Box<Consumer>),
}

/// Keeps the domain.
struct Ours {
    end: End,
    _domain: Domain,
}

impl Way for Ours {
    fn send(&mut self, word: u64) -> Result<()> {
        let End::Sends(producer) = &mut self.end else {
            anyhow::bail!("a consumer");
        };
        let mut item = producer.alloc(ITEM)?;
        item.write(0, &word.to_le_bytes())?;
        producer.send((item, word))?;
        Ok(())
    }

    fn recv(&mut self) -> Result<u64> {
        let End::Takes(consumer) = &mut self.end else {
            anyhow::bail!("a producer");
        };
        let item = consumer.recv()?;
        let word = item.word;
        item.ack()?;
        Ok(word)
    }

    fn wait_done(&mut self) -> Result<()> {
        match &mut self.end {
            End::Sends(producer) => Ok(producer.wait_done(None)?),
            End::Takes(_) => Ok(()),
        }
    }
}

pub fn stream(sides: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    run_stream(sides, common, number, |me, party| {
        let domain = join::domain(me, party)?;
        let end = match me < sides {
            true => {
                let mut producer = domain.produce_with(NAME, QueueOptions::new().depth(DEPTH))?;
                producer.wait_for(sides, None)?;
                End::Sends(Box::new(producer))
            }
            false => {
                let mut consumer = domain.consume(NAME)?;
                let joined = |consumer: &Consumer| {
                    let producers = consumer.status().producers;
                    producers.iter().filter(|seen| seen.joined).count()
                };
                while joined(&consumer) < sides {
                    ensure!(consumer.try_recv()?.is_none(), "an item before the start");
                    std::thread::yield_now();
                }
                End::Takes(Box::new(consumer))
            }
        };
        Ok(Ours {
            end,
            _domain: domain,
        })
    })
}

pub fn trip(spins: bool, payload: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let cores = match spins {
        true => common.cores(),
        false => common.blocking_cores(),
    };
    let budget = clock::in_ticks(common.budget());
    let body = move |me: usize, party: &Party| {
        let domain = join::domain(me, party)?;
        let wait = if spins { Wait::Spin } else { Wait::Sleep };
        let (out, back) = if me == 0 {
            ("there", "back")
        } else {
            ("back", "there")
        };
        let mut producer = domain.produce(out)?;
        let mut consumer = domain.consume_with(back, ConsumerOptions::new().wait(wait))?;
        while producer.consumers() == 0 || !consumer.status().producers.iter().any(|p| p.joined) {
            producer.tend()?;
            ensure!(consumer.try_recv()?.is_none(), "an item before the start");
            std::thread::yield_now();
        }
        party.barrier()?;
        let mut send = |word: u64| -> Result<()> {
            let mut item = producer.alloc(payload)?;
            item.write(0, &word.to_le_bytes())?;
            producer.send((item, word))?;
            Ok(())
        };
        let mut take = || -> Result<u64> {
            let item = consumer.recv()?;
            let mut word = [0; 8];
            if let tranship_core::Body::Buffer(buffer) = &item.body {
                buffer.view().copy_to_slice(0, &mut word)?;
            }
            item.ack()?;
            Ok(u64::from_le_bytes(word))
        };
        if me == 1 {
            loop {
                let word = take()?;
                send(word)?;
                if word == END {
                    party.barrier()?;
                    return Ok(Vec::new());
                }
            }
        }
        for word in 0..WARM {
            send(word)?;
            ensure!(take()? == word, "another item came back");
        }
        let mut samples = Samples::new(1 << 17, 1);
        let begun = clock::ticks();
        let mut before = begun;
        let mut word = 0;
        loop {
            send(word)?;
            ensure!(take()? == word, "another item came back");
            word += 1;
            let now = clock::ticks();
            if !samples.push(now - before) || now - begun > budget {
                break;
            }
            before = now;
        }
        send(END)?;
        take()?;
        party.barrier()?;
        Ok(samples.finish("").into_iter().collect())
    };
    let body = &body;
    let members = [0, 1].map(|me| Member {
        core: cores[me],
        body: Box::new(move |party: &Party| body(me, party)),
    });
    let done = party::run(number, members.into())?;
    Ok(done.into_iter().flatten().collect())
}
