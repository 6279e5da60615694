//! The network device: a TAP device that is there already. Its frames cross as chains of mbufs, by reference.
//!
//! The process opens the device, and then nothing more: the program's file can lock it (`sandbox.lock`). If it dies,
//! frames are lost, and TCP sends them again: the device keeps its name and address.

use crate::component::Ends;
use crate::os::write_frame;
use crate::reply::body;
use crate::stage::To;
use crate::word::Word;
use anyhow::{Context, Result};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tranship::Body;
use tranship::mbuf::{ClusterSize, Mbufs};
use tranship_netpath::link::{Link, room};
use tranship_netpath::tap::{Offload, Tap, sent};

/// Frames that are taken together.
const BATCH: usize = 64;
/// Time after which a full channel is looked at again.
const FULL: Duration = Duration::from_millis(1);

/// Runs the component `device`, until it is stopped.
///
/// # Errors
/// A device that is not there; those of [`Ends::connect`].
pub fn run(name: &str) -> Result<()> {
    let tap = Tap::open(name, Offload::Segments).with_context(|| {
        format!("the device {name} (`ip tuntap add dev {name} mode tap` makes it)")
    })?;
    let mut ends = Ends::connect(To::Device)?;
    let mbufs = Mbufs::over_pool(&ends.pool)?;
    let mut worked = Instant::now();
    loop {
        let now = Instant::now();
        ends.turn_at_times(now);
        let sent = send(&mut ends, &tap, &mbufs)?;
        let (received, is_full) = receive(&mut ends, &tap, &mbufs)?;
        if sent || received {
            worked = now;
            continue;
        }
        let most = is_full.then_some(FULL);
        ends.rest(worked, most, (!is_full).then(|| tap.as_fd()));
    }
}

/// Sends the frames of `tcpip`. Says whether there were any.
fn send(ends: &mut Ends, tap: &Tap, mbufs: &Mbufs) -> Result<bool> {
    let mut frames = Vec::new();
    for end in ends.ins.iter_mut().filter(|end| end.from == To::Tcpip) {
        // An end shows by the next look.
        let _ = end.take(&mut frames, BATCH);
    }
    let any = !frames.is_empty();
    for frame in frames {
        // Without an mbuf, or room in the kernel, it is lost.
        if let Ok(frame) = mbufs.receive(frame) {
            let _ = sent(write_frame(tap, &frame)).context("sending a frame")?;
        }
    }
    Ok(any)
}

/// Passes received frames on. Says whether there were any, and whether `tcpip` has as many as the channel holds.
fn receive(ends: &mut Ends, tap: &Tap, mbufs: &Mbufs) -> Result<(bool, bool)> {
    let Some(out) = ends.outs.iter_mut().find(|out| out.to == To::Tcpip) else {
        return Ok((false, true));
    };
    let place = out.room();
    let mut frames: Vec<(Word, Body)> = Vec::new();
    while frames.len() < place.min(BATCH) {
        let most = room(tap.offload(), 0);
        let frame = Link::receive(tap, mbufs, ClusterSize::Std, most);
        let Some(frame) = frame.context("receiving a frame")? else {
            break;
        };
        // Without memory it is lost.
        if let Ok((frame, _)) = frame.to_aggregate(&ends.pool) {
            let pieces = frame.pieces().iter().cloned();
            frames.push((Word(0), body(&ends.pool, pieces)));
        }
    }
    let any = !frames.is_empty();
    out.send(&ends.pool, frames.into_iter(), |_, _| {});
    Ok((any, place == 0))
}
