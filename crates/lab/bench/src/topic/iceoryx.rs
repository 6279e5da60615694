//! iceoryx2: a publisher and so many subscribers of one service, the oldest sample overwritten where a queue is full.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use ::iceoryx2::port::update_connections::UpdateConnections;
use ::iceoryx2::prelude::{Node, ipc};
use anyhow::{Context, Result};

use super::trip::{Word, stream};
use super::what::{LINES, Mode, PAYLOAD};
use crate::party::Party;
use crate::stats::Measured;
use crate::systems::iceoryx2::{self, Shape, Slices, node, slices, text};

type Service = ipc::Service;

fn service(node: &Node<Service>, receivers: usize) -> Result<Slices<()>> {
    let shape = Shape {
        subscribers: receivers,
        nodes: 2,
        queue: LINES as usize,
        borrowed: 2,
        overflows: true,
    };
    slices(node, "topic", &shape)
}

pub fn publisher(_: Mode, receivers: usize, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let node = node(party.run)?;
    let publisher = iceoryx2::publisher(&service(&node, receivers)?, 2, PAYLOAD / 8)?;
    let stop = Word::make()?;
    party.send(1, 0, &[stop.fd()])?;
    party.barrier()?;
    publisher.update_connections().map_err(text("connect"))?;
    party.barrier()?;
    let mut numbers = 0u64..;
    let samples = stream(budget, || {
        let mut sample = publisher
            .loan_slice_uninit(PAYLOAD / 8)
            .map_err(text("loan"))?;
        let words: &mut [MaybeUninit<u64>] = sample.payload_mut();
        words
            .first_mut()
            .context("empty payload")?
            .write(numbers.next().context("a number")?);
        // SAFETY: words may hold anything, and the segment's pages are there.
        let sample = unsafe { sample.assume_init() };
        sample.send().map_err(text("send"))?;
        Ok(())
    })?;
    stop.get().store(1, Ordering::Release);
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

pub fn subscribers(_: Mode, receivers: usize, party: &Party, _: u64) -> Result<Vec<Measured>> {
    let node = node(party.run)?;
    let (_, mut fds) = party.recv(0)?;
    let stop = Word::map(fds.pop().context("the word")?)?;
    let service = service(&node, receivers)?;
    let one = |_| iceoryx2::subscriber(&service, LINES as usize);
    let all: Vec<_> = (0..receivers).map(one).collect::<Result<_>>()?;
    party.barrier()?;
    for subscriber in &all {
        subscriber.update_connections().map_err(text("connect"))?;
    }
    party.barrier()?;
    let running = all.first().context("a subscriber")?;
    while stop.get().load(Ordering::Acquire) == 0 {
        let sample = running.receive().map_err(text("receive"))?;
        std::hint::black_box(sample.map(|sample| sample.payload()[0]));
    }
    party.barrier()?;
    Ok(Vec::new())
}
