//! The kernel's ways: a pipe with several readers, a pair of Unix sockets, a POSIX message queue.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::way::{ITEM, Way, run_stream};
use crate::options::Common;
use crate::stats::Measured;
use crate::systems::kernel::{self, read_all, widen, write_all};

/// Descriptors whose writes and reads of an item are whole: at most `PIPE_BUF` bytes.
struct Whole<'a> {
    out: &'a OwnedFd,
    back: &'a OwnedFd,
}

impl Way for Whole<'_> {
    fn send(&mut self, word: u64) -> Result<()> {
        write_all(self.out, &item(word))
    }

    fn recv(&mut self) -> Result<u64> {
        let mut item = [0; ITEM];
        read_all(self.back, &mut item)?;
        Ok(first(&item))
    }
}

fn item(word: u64) -> [u8; ITEM] {
    let mut item = [0; ITEM];
    item[..8].copy_from_slice(&word.to_le_bytes());
    item
}

fn first(item: &[u8; ITEM]) -> u64 {
    let word = item.first_chunk().copied();
    word.map_or(0, u64::from_le_bytes)
}

pub fn pipe(sides: usize, common: &Common, number: u64) -> Result<Vec<Measured>> {
    let (out, back) = &kernel::pipe()?;
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
        // SAFETY: an open queue, and `ITEM` bytes.
        let sent = unsafe { libc::mq_send(self.0, item(word).as_ptr().cast(), ITEM, 0) };
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
