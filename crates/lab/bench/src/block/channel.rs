//! A program that asks a block service over channels, so many requests under way. Requests that are longer than
//! the largest buffer go as several.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tranship_block::{Data, Endpoint, Fault, Job, Op, Remote, Request, Store, sums};

use super::servers::PATIENCE;
use super::work::Work;
use crate::clock;
use crate::stats::{Measured, Samples};

/// A request of ours: when it began, and how many of its parts are not answered.
#[derive(Clone, Copy)]
struct Slot {
    begun: u64,
    left: usize,
}

/// What goes in one buffer.
#[derive(Clone, Copy)]
struct Part {
    slot: usize,
    offset: u64,
    len: usize,
}

/// A part's memory with its answer.
type Answer = (Part, Data, Result<Vec<u32>, Fault>);

/// Parts under way: as many as there are buffers of each size.
const PARTS: usize = 16;

pub fn measure(endpoint: &Endpoint, work: Work) -> Result<Measured> {
    let remote = Remote::new(endpoint);
    remote.wait(PATIENCE)?;
    let (tell, told) = mpsc::channel::<Answer>();
    let op = if work.write { Op::Write } else { Op::Read };
    let bytes = vec![0x5a; work.bytes];
    let mut read = vec![0; work.bytes];
    let mut slots = vec![Slot { begun: 0, left: 0 }; work.depth];
    let mut asked = 0u64;
    // Parts that wait: there are fewer buffers of the largest size than parts of all requests.
    let mut waiting = VecDeque::new();
    let mut ask = |slot: usize, slots: &mut [Slot], waiting: &mut VecDeque<Part>| {
        let (offset, mut at) = (work.offset(asked), 0);
        asked += 1;
        slots[slot].begun = clock::ticks();
        while at < work.bytes {
            let len = remote.piece(work.bytes - at);
            let offset = offset + at as u64;
            waiting.push_back(Part { slot, offset, len });
            slots[slot].left += 1;
            at += len;
        }
    };
    for slot in 0..work.depth {
        ask(slot, &mut slots, &mut waiting);
    }
    let mut samples = Samples::new(1 << 18, 1);
    let (since, mut under_way, mut taken) = (Instant::now(), work.depth, 0u64);
    let (mut out, mut enough) = (0, true);
    while under_way > 0 {
        while out < PARTS
            && let Some(part) = waiting.pop_front()
        {
            let mut data = remote.data(op, part.len)?;
            let mut request = Request::new(op, part.offset, u32::try_from(part.len)?);
            if work.write {
                data.write(0, &bytes[..part.len])?;
                request.sums = sums(part.offset, &bytes[..part.len]);
            }
            let tell = tell.clone();
            let done = Box::new(move |data, result| {
                // Nobody waits for it any more where the bench has failed.
                let _ = tell.send((part, data, result));
            });
            remote.submit(Job {
                request,
                data,
                done,
            });
            out += 1;
        }
        remote.kick();
        let (part, data, result) = told.recv_timeout(PATIENCE)?;
        out -= 1;
        let said = result?;
        if !work.write {
            let piece = &mut read[..part.len];
            data.read(0, piece)?;
            ensure!(sums(part.offset, piece) == said, "damaged on the way");
        }
        drop(data);
        let slot = &mut slots[part.slot];
        slot.left -= 1;
        if slot.left > 0 {
            continue;
        }
        enough &= samples.push(clock::ticks() - slot.begun);
        taken += 1;
        match enough && since.elapsed() < work.budget {
            true => ask(part.slot, &mut slots, &mut waiting),
            false => under_way -= 1,
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    let mut measured = samples.finish("").context("no samples")?;
    measured.per_second = taken as f64 / seconds;
    Ok(measured)
}
