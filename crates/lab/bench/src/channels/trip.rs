//! One buffer, or one message, in flight: how trips are sampled, and the socket that carries a buffer's bytes.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::clock;
use crate::party::Party;
use crate::stats::{Measured, Samples};
use crate::systems::kernel;

/// The stamp that ends a run.
pub const STOP: u64 = u64::MAX;
/// Most samples of a run.
const SAMPLES: usize = 1 << 17;
/// A budget of at least that long is for a profiler that looks on: the run does not end when the samples are full.
const LONG: Duration = Duration::from_secs(1);

/// Warms up for a quarter of the budget, then takes a sample of each trip.
pub fn sample(budget: Duration, mut trip: impl FnMut(u64) -> Result<()>) -> Result<Measured> {
    let mut samples = Samples::new(SAMPLES, 1);
    let ticks = clock::in_ticks(budget);
    let begun = clock::ticks();
    let mut stamp = 0;
    while stamp < 8 || clock::ticks() - begun < ticks / 4 {
        stamp += 1;
        trip(stamp)?;
    }
    let mut before = clock::ticks();
    let end = before + ticks;
    loop {
        stamp += 1;
        trip(stamp)?;
        let now = clock::ticks();
        let full = !samples.push(now - before);
        if full && budget < LONG || now > end {
            return samples.finish("").context("no samples");
        }
        before = now;
    }
}

/// `stream`: a Unix socket that carries the bytes there, and eight back.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub payload: usize,
    pub budget: Duration,
}

impl Stream {
    /// The side that sends.
    pub fn pour(&self, party: &Party) -> Result<Measured> {
        let kind = SocketType::STREAM;
        let (mine, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        kernel::widen(&mine, self.payload)?;
        kernel::widen(&theirs, self.payload)?;
        party.send(1, 0, &[theirs.as_fd()])?;
        drop(theirs);
        let socket = self.ready(mine)?;
        party.barrier()?;
        let mut words = vec![1u64; self.payload / 8];
        let mut back = [0u64];
        let mut trip = |stamp: u64| -> Result<()> {
            words[0] = stamp;
            kernel::write_all(&socket, kernel::bytes(&words))?;
            kernel::read_all(&socket, kernel::bytes_mut(&mut back))?;
            ensure!(back[0] == stamp, "sent {stamp}, got {} back", back[0]);
            Ok(())
        };
        let measured = sample(self.budget, &mut trip)?;
        trip(STOP)?;
        Ok(measured)
    }

    /// The side that receives.
    pub fn answer(&self, party: &Party) -> Result<()> {
        let theirs = party.recv(0)?.1.pop().context("the socket")?;
        let socket = self.ready(theirs)?;
        party.barrier()?;
        let mut words = vec![1u64; self.payload / 8];
        loop {
            kernel::read_all(&socket, kernel::bytes_mut(&mut words))?;
            let stamp = words[0];
            kernel::write_all(&socket, kernel::bytes(&words[..1]))?;
            if stamp == STOP {
                return Ok(());
            }
        }
    }

    fn ready(&self, socket: OwnedFd) -> Result<OwnedFd> {
        // Both sides look again and again.
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(socket)
    }
}
