//! A program that asks a block service over bulk channels, so many requests under way. Requests that are longer than
//! the largest buffer go as several.

use std::sync::mpsc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tranship_block::{Data, Endpoint, Fault, Job, Op, Remote, Request, Store, sums};

use super::Work;
use crate::clock;
use crate::stats::{Measured, Samples};

/// A request of ours: when it began, and how many of its parts are not answered.
#[derive(Clone, Copy)]
struct Slot {
    begun: u64,
    left: usize,
}

/// Of which slot, and a part's memory with its answer.
type Answer = (usize, Data, Result<Vec<u32>, Fault>, Request);

pub fn measure(endpoint: &Endpoint, work: Work) -> Result<Measured> {
    let remote = Remote::new(endpoint);
    remote.wait(super::servers::PATIENCE)?;
    let (tell, told) = mpsc::channel::<Answer>();
    let op = if work.write { Op::Write } else { Op::Read };
    let bytes = vec![0x5a; work.bytes];
    let mut read = vec![0; work.bytes];
    let mut slots = vec![Slot { begun: 0, left: 0 }; work.depth];
    let mut asked = 0u64;
    let mut ask = |slot: usize, slots: &mut [Slot]| -> Result<()> {
        let offset = work.offset(asked);
        asked += 1;
        slots[slot].begun = clock::ticks();
        let mut at = 0;
        while at < work.bytes {
            let piece = remote.piece(work.bytes - at);
            let mut data = remote.data(op, piece)?;
            let len = u32::try_from(piece)?;
            let mut request = Request::new(op, offset + at as u64, len);
            if work.write {
                data.write(0, &bytes[at..at + piece])?;
                request.sums = sums(request.offset, &bytes[at..at + piece]);
            }
            let (tell, again) = (tell.clone(), request.clone());
            let done = Box::new(move |data, result| {
                // Nobody waits for it any more where the bench has failed.
                let _ = tell.send((slot, data, result, again));
            });
            remote.submit(Job {
                request,
                data,
                done,
            });
            slots[slot].left += 1;
            at += piece;
        }
        remote.kick();
        Ok(())
    };
    for slot in 0..work.depth {
        ask(slot, &mut slots)?;
    }
    let mut samples = Samples::new(1 << 18, 1);
    let (since, mut under_way, mut taken) = (Instant::now(), work.depth, 0u64);
    let mut enough = true;
    while under_way > 0 {
        let (slot, data, result, request) = told.recv()?;
        let said = result?;
        if !work.write {
            let piece = &mut read[..request.len as usize];
            data.read(0, piece)?;
            ensure!(sums(request.offset, piece) == said, "damaged on the way");
        }
        drop(data);
        slots[slot].left -= 1;
        if slots[slot].left > 0 {
            continue;
        }
        enough &= samples.push(clock::ticks() - slots[slot].begun);
        taken += 1;
        match enough && since.elapsed() < work.budget {
            true => ask(slot, &mut slots)?,
            false => under_way -= 1,
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    let mut measured = samples.finish("").context("no samples")?;
    measured.per_second = taken as f64 / seconds;
    Ok(measured)
}
