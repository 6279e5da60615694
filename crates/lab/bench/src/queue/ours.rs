//! The product's queue.

use anyhow::{Result, ensure};
use tranship_core::Domain;
use tranship_queue::{Consumer, ConsumerOptions, Producer, QueueOptions, Queues};

use super::way::{ITEM, Way, run_stream};
use crate::case::Case;
use crate::options::Common;
use crate::party::Party;
use crate::peer::{Peer, Role};
use crate::stats::Measured;
use crate::systems::tranship::join;

const NAME: &str = "jobs";
const DEPTH: u32 = 256;

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
        send(producer, ITEM, word)
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

/// A queue each way, for an item there and back.
pub struct Trip {
    producer: Producer,
    consumer: Consumer,
    payload: usize,
    _domain: Domain,
}

impl Peer for Trip {
    const NAME: &'static str = "tranship";

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let domain = join::domain(role.index(), party)?;
        let [out, back] = match role {
            Role::Ping => ["there", "back"],
            Role::Pong => ["back", "there"],
        };
        let mut producer = domain.produce(out)?;
        let options = ConsumerOptions::new().wait(join::wait(case.wait));
        let mut consumer = domain.consume_with(back, options)?;
        while producer.consumers() == 0 || joined(&consumer) == 0 {
            producer.tend()?;
            ensure!(consumer.try_recv()?.is_none(), "an item before the start");
            std::thread::yield_now();
        }
        Ok(Self {
            producer,
            consumer,
            payload: case.payload,
            _domain: domain,
        })
    }

    fn send(&mut self, stamp: u64) -> Result<()> {
        send(&mut self.producer, self.payload, stamp)
    }

    fn recv(&mut self) -> Result<u64> {
        let item = self.consumer.recv()?;
        let mut word = [0; 8];
        if let tranship_core::Body::Buffer(buffer) = &item.body {
            buffer.view().copy_to_slice(0, &mut word)?;
        }
        item.ack()?;
        Ok(u64::from_le_bytes(word))
    }
}

/// Producers that are seen.
fn joined(consumer: &Consumer) -> usize {
    let producers = consumer.status().producers;
    producers.iter().filter(|seen| seen.joined).count()
}

fn send(producer: &mut Producer, bytes: usize, word: u64) -> Result<()> {
    let mut item = producer.alloc(bytes)?;
    item.write(0, &word.to_le_bytes())?;
    producer.send((item, word))?;
    Ok(())
}
