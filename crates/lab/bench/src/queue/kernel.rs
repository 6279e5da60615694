//! The kernel's ways: a pipe with several readers, a pair of Unix sockets, a POSIX message queue.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::way::{END, ITEM, Way, run_stream};
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::stats::{Measured, Samples};
use crate::systems::kernel::{read_all, widen, write_all};

/// Descriptors whose writes and reads of an item are whole: at most `PIPE_BUF` bytes.
struct Whole<'a> {
    out: &'a OwnedFd,
    back: &'a OwnedFd,
}

impl Way for Whole<'_> {
    fn send(&mut self, word: u64) -> Result<()> {
        let mut item = [0; ITEM];
        item[..8].copy_from_slice(&word.to_le_bytes());
        write_all(self.out, &item)
    }

    fn recv(&mut self) -> Result<u64> {
        let mut item = [0; ITEM];
        read_all(self.back, &mut item)?;
        Ok(first(&item))
    }
}

fn first(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// A pipe as large as an ordinary user may have.
fn piped() -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let _ = rustix::pipe::fcntl_setpipe_size(&write, 1 << 20);
    Ok((write, read))
}

pub fn pipe(sides: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let (out, back) = &piped()?;
    run_stream(sides, common, number, |_, _| Ok(Whole { out, back }))
}

pub fn seqpacket(sides: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let kind = SocketType::SEQPACKET;
    let (out, back) = &socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    widen(out, ITEM)?;
    run_stream(sides, common, number, |_, _| Ok(Whole { out, back }))
}

/// A POSIX message queue, with as many messages as an ordinary user may have.
struct Mqueue(libc::mqd_t);

impl Way for &Mqueue {
    fn send(&mut self, word: u64) -> Result<()> {
        let mut item = [0u8; ITEM];
        item[..8].copy_from_slice(&word.to_le_bytes());
        // SAFETY: an open queue, and `ITEM` bytes.
        let sent = unsafe { libc::mq_send(self.0, item.as_ptr().cast(), ITEM, 0) };
        ensure!(sent == 0, std::io::Error::last_os_error());
        Ok(())
    }

    fn recv(&mut self) -> Result<u64> {
        let mut item = [0u8; ITEM];
        // SAFETY: an open queue whose messages have `ITEM` bytes, and room for them.
        let got = unsafe {
            libc::mq_receive(self.0, item.as_mut_ptr().cast(), ITEM, std::ptr::null_mut())
        };
        ensure!(got == ITEM as isize, std::io::Error::last_os_error());
        Ok(first(&item))
    }
}

impl Drop for Mqueue {
    fn drop(&mut self) {
        // SAFETY: our own, and not used any more.
        unsafe { libc::mq_close(self.0) };
    }
}

fn mq_open(number: u64) -> Result<Mqueue> {
    let name = std::ffi::CString::new(format!("/tranship-bench-{number:x}"))?;
    // SAFETY: zeros are a valid `mq_attr`.
    let mut shape: libc::mq_attr = unsafe { std::mem::zeroed() };
    shape.mq_maxmsg = 10;
    shape.mq_msgsize = ITEM as i64;
    let how = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    // SAFETY: a name that ends, and a shape.
    let queue = unsafe { libc::mq_open(name.as_ptr(), how, 0o600, &raw mut shape) };
    ensure!(queue >= 0, std::io::Error::last_os_error());
    // SAFETY: a name that ends.
    unsafe { libc::mq_unlink(name.as_ptr()) };
    Ok(Mqueue(queue))
}

pub fn mqueue(sides: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let queue = &mq_open(number).context("a POSIX message queue")?;
    run_stream(sides, common, number, |_, _| Ok(queue))
}

/// An item there and back over two pipes, all of it copied.
pub fn trip(spins: bool, payload: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let cores = match spins {
        true => common.cores(),
        false => common.blocking_cores(),
    };
    let budget = clock::in_ticks(common.budget());
    let (there, back) = (piped()?, piped()?);
    if spins {
        for fd in [&there.0, &there.1, &back.0, &back.1] {
            rustix::io::ioctl_fionbio(fd.as_fd(), true)?;
        }
    }
    let ends = &[(&there.0, &back.1), (&back.0, &there.1)];
    let body = move |me: usize, party: &Party| {
        let (out, back) = ends[me];
        let mut bytes = vec![1; payload];
        party.barrier()?;
        if me == 1 {
            while first(&bytes) != END {
                read_all(back, &mut bytes)?;
                write_all(out, &bytes)?;
            }
            party.barrier()?;
            return Ok(Vec::new());
        }
        let mut samples = Samples::new(1 << 17, 1);
        let mut trip = |word: u64| -> Result<()> {
            bytes[..8].copy_from_slice(&word.to_le_bytes());
            write_all(out, &bytes)?;
            read_all(back, &mut bytes)?;
            ensure!(first(&bytes) == word, "other bytes came back");
            Ok(())
        };
        for word in 0..50 {
            trip(word)?;
        }
        let begun = clock::ticks();
        let mut before = begun;
        loop {
            trip(7)?;
            let now = clock::ticks();
            if !samples.push(now - before) || now - begun > budget {
                break;
            }
            before = now;
        }
        trip(END)?;
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
