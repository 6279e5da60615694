//! The network device: a TAP device that the supervisor opened. Its frames cross as chains of mbufs, by reference.
//!
//! The process has a network namespace of its own, where the device is not, and opens nothing: the program's file can lock
//! it (`sandbox.lock`). If it dies, the frames that it had are lost, and TCP sends them again.

use crate::component::Ends;
use crate::os::write_frame;
use crate::reply::body;
use crate::stage::To;
use crate::word::Word;
use anyhow::{Context, Result};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use tranship::mbuf::{Chain, Mbufs};
use tranship::{Body, BufferMut, Pool};
use tranship_netpath::tap::{Offload, Tap, sent};

/// Frames that are taken together.
const BATCH: usize = 64;
/// Bytes of the buffers of a frame: most frames need the first one only. Together they hold the longest.
const BUFFERS: [usize; 3] = [2 << 10, 14 << 10, 50 << 10];
/// Time after which a full channel, or missing memory, is looked at again.
const FULL: Duration = Duration::from_millis(1);

/// Runs the component `device`, until it is stopped.
///
/// # Errors
/// Those of [`Ends::connect`]; a descriptor that is no device.
pub fn run(device: OwnedFd) -> Result<()> {
    let tap = Tap::received(device, Offload::Segments);
    let mut ends = Ends::connect(To::Device)?;
    let mbufs = Mbufs::over_pool(&ends.pool)?;
    let mut room = Room::default();
    let mut worked = Instant::now();
    loop {
        let now = Instant::now();
        ends.turn_at_times(now);
        let sent = send(&mut ends, &tap, &mbufs)?;
        let (received, is_full) = receive(&mut ends, &tap, &mbufs, &mut room)?;
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
        // Without an mbuf, or room in the kernel, it is lost. So is one that is no frame.
        let Ok(frame) = mbufs.receive(frame) else {
            continue;
        };
        match write_frame(tap, &frame) {
            Err(Errno::INVAL | Errno::FAULT) => {}
            wrote => _ = sent(wrote).context("sending a frame")?,
        }
    }
    Ok(any)
}

/// Passes received frames on. Says whether there were any, and whether none can be taken: `tcpip` has as many as the
/// channel holds, or memory is missing.
fn receive(ends: &mut Ends, tap: &Tap, mbufs: &Mbufs, room: &mut Room) -> Result<(bool, bool)> {
    let Some(out) = ends.outs.iter_mut().find(|out| out.to == To::Tcpip) else {
        return Ok((false, true));
    };
    let place = out.room();
    let mut is_full = place == 0;
    let mut frames: Vec<(Word, Body)> = Vec::new();
    while frames.len() < place.min(BATCH) {
        if !room.fill(&ends.pool) {
            is_full = true;
            break;
        }
        let frame = room.receive(tap, mbufs);
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
    Ok((any, is_full))
}

/// Buffers for the next frame.
#[derive(Default)]
struct Room([Option<BufferMut>; BUFFERS.len()]);

impl Room {
    /// Gets the buffers that are missing. Says whether all are there.
    fn fill(&mut self, pool: &Pool) -> bool {
        for (place, bytes) in self.0.iter_mut().zip(BUFFERS) {
            if place.is_none() {
                *place = pool.try_alloc(bytes).ok();
            }
        }
        self.0.iter().all(Option::is_some)
    }

    /// Takes the next frame; `None`: there is none, or no mbuf for it. Buffers that it does not need stay.
    fn receive(&mut self, tap: &Tap, mbufs: &Mbufs) -> std::io::Result<Option<Chain>> {
        let places = self.0.iter_mut().flatten();
        let mut slices: Vec<_> = places
            .map(|place| IoSliceMut::new(&mut place[..]))
            .collect();
        let Some(mut left) = tap.receive(&mut slices)? else {
            return Ok(None);
        };
        let mut frame: Option<Chain> = None;
        for place in &mut self.0 {
            let Some(mut buffer) = place.take_if(|_| left > 0) else {
                break;
            };
            buffer.truncate(left);
            left -= buffer.len();
            // Without an mbuf the frame is lost.
            let Ok(part) = mbufs.from_buffer(buffer.freeze()) else {
                return Ok(None);
            };
            match &mut frame {
                Some(frame) => frame.cat(part),
                none => *none = Some(part),
            }
        }
        Ok(frame)
    }
}
