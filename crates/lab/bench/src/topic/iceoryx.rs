//! iceoryx2: a publisher and so many subscribers of one service, the oldest sample overwritten where a queue is full.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{AllocationStrategy, Node, ipc};
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use super::what::{BURST, LINES, Mode, PAYLOAD};
use crate::clock;
use crate::party::Party;
use crate::peer::Peer;
use crate::stats::{Measured, Samples};
use crate::systems::iceoryx2::{Iceoryx2, node, text};
use crate::topic_ring::Word;

type Service = ipc::Service;

pub fn clean(run: u64) {
    Iceoryx2::clean(run);
}

fn service(node: &Node<Service>, receivers: usize) -> Result<PortFactory<Service, [u64], ()>> {
    let name = "topic".try_into().map_err(text("name"))?;
    node.service_builder(&name)
        .publish_subscribe::<[u64]>()
        .max_publishers(1)
        .max_subscribers(receivers)
        .max_nodes(2)
        .history_size(0)
        .subscriber_max_buffer_size(LINES as usize)
        .subscriber_max_borrowed_samples(2)
        .enable_safe_overflow(true)
        .open_or_create()
        .map_err(text("service"))
}

pub fn publisher(_: Mode, receivers: usize, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let node = node(party.run)?;
    let publisher = service(&node, receivers)?
        .publisher_builder()
        .max_loaned_samples(2)
        .initial_max_slice_len(PAYLOAD / 8)
        .allocation_strategy(AllocationStrategy::Static)
        .create()
        .map_err(text("publisher"))?;
    let stop = Word::make()?;
    party.send(1, 0, &[stop.fd()])?;
    party.barrier()?;
    publisher.update_connections().map_err(text("connect"))?;
    party.barrier()?;
    let publish = |number: u64| -> Result<()> {
        let mut sample = publisher
            .loan_slice_uninit(PAYLOAD / 8)
            .map_err(text("loan"))?;
        let words: &mut [MaybeUninit<u64>] = sample.payload_mut();
        words.first_mut().context("empty payload")?.write(number);
        // SAFETY: words may hold anything, and the segment's pages are there.
        let sample = unsafe { sample.assume_init() };
        sample.send().map_err(text("send"))?;
        Ok(())
    };
    let mut samples = Samples::new(1 << 17, BURST);
    let mut number = 0;
    for _ in 0..4000 {
        publish(number)?;
        number += 1;
    }
    let begun = clock::ticks();
    let mut before = begun;
    loop {
        for _ in 0..BURST {
            publish(number)?;
            number += 1;
        }
        let now = clock::ticks();
        if !samples.push(now - before) || now - begun > budget {
            break;
        }
        before = now;
    }
    stop.get().store(1, Ordering::Release);
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

pub fn subscribers(_: Mode, receivers: usize, party: &Party, _: u64) -> Result<Vec<Measured>> {
    let node = node(party.run)?;
    let (_, mut fds) = party.recv(0)?;
    let stop = Word::map(fds.pop().context("the word")?)?;
    let service = service(&node, receivers)?;
    let mut all = Vec::new();
    for _ in 0..receivers {
        let subscriber = service
            .subscriber_builder()
            .buffer_size(LINES as usize)
            .create()
            .map_err(text("subscriber"))?;
        all.push(subscriber);
    }
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
