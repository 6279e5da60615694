//! `pipe`, `seqpacket`, `stream`: the kernel's own ways, where every byte is copied in and out.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::case::{Case, Touch, Wait};
use crate::party::Party;
use crate::peer::{Peer, Role};
use crate::touch;

/// One of the kernel's ways.
pub trait Way {
    const NAME: &'static str;
    /// Bytes of what Pong sends.
    fn answer(case: &Case) -> usize {
        case.payload
    }
    /// Descriptors of Ping and of Pong, each (out, in).
    fn open(case: &Case) -> Result<[(OwnedFd, OwnedFd); 2]>;
}

pub struct Pipe;
pub struct SeqPacket;
pub struct Stream;
/// A stream whose messages are answered by their first 8 bytes.
pub struct Answered;

impl Way for Pipe {
    const NAME: &'static str = "pipe";

    fn open(_case: &Case) -> Result<[(OwnedFd, OwnedFd); 2]> {
        let ((w0, r0), (w1, r1)) = (pipe()?, pipe()?);
        Ok([(w0, r1), (w1, r0)])
    }
}

/// The two ends of a pipe as large as an ordinary user may have, if it can be: to write, to read.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let _ = rustix::pipe::fcntl_setpipe_size(&write, 1 << 20);
    Ok((write, read))
}

fn sockets(case: &Case, kind: SocketType) -> Result<[(OwnedFd, OwnedFd); 2]> {
    let (a, b) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for fd in [&a, &b] {
        widen(fd, case.payload)?;
    }
    let (a2, b2) = (a.try_clone()?, b.try_clone()?);
    Ok([(a, a2), (b, b2)])
}

/// Room for two payloads, at least 1 MiB: as much as root may ask for; else what the system's limit leaves.
pub fn widen(fd: &OwnedFd, payload: usize) -> Result<()> {
    let want = (payload * 2).max(1 << 20);
    if rustix::net::sockopt::set_socket_send_buffer_size_force(fd, want).is_err() {
        rustix::net::sockopt::set_socket_send_buffer_size(fd, want)?;
    }
    Ok(())
}

impl Way for SeqPacket {
    const NAME: &'static str = "seqpacket";
    fn open(case: &Case) -> Result<[(OwnedFd, OwnedFd); 2]> {
        sockets(case, SocketType::SEQPACKET)
    }
}

impl Way for Stream {
    const NAME: &'static str = "stream";
    fn open(case: &Case) -> Result<[(OwnedFd, OwnedFd); 2]> {
        sockets(case, SocketType::STREAM)
    }
}

impl Way for Answered {
    const NAME: &'static str = Stream::NAME;
    fn answer(_: &Case) -> usize {
        8
    }
    fn open(case: &Case) -> Result<[(OwnedFd, OwnedFd); 2]> {
        Stream::open(case)
    }
}

/// A connection over one of them.
pub struct Bytes<W> {
    out: OwnedFd,
    back: OwnedFd,
    send: Vec<u64>,
    recv: Vec<u64>,
    touch: Touch,
    way: PhantomData<W>,
}

pub fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the same memory; any word is eight valid bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

pub fn bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: the same memory, borrowed mutably once; any eight bytes are a word.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len() * 8) }
}

/// Writes all of it, however often the kernel takes a part or nothing.
pub fn write_all(fd: &OwnedFd, mut rest: &[u8]) -> Result<()> {
    while !rest.is_empty() {
        match write(fd, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
            Err(error) => {
                return Err(error).with_context(|| format!("writing {} bytes", rest.len()));
            }
        }
    }
    Ok(())
}

/// Reads until `into` is full.
pub fn read_all(fd: &OwnedFd, into: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < into.len() {
        match read(fd, &mut into[done..]) {
            Ok(count) => {
                ensure!(count > 0, "the other side is gone");
                done += count;
            }
            Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl<W: Way> Peer for Bytes<W> {
    const NAME: &'static str = W::NAME;

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let (out, back) = match role {
            Role::Ping => {
                let [mine, theirs] = W::open(case)?;
                party.send(Role::Pong.index(), 0, &[theirs.0.as_fd(), theirs.1.as_fd()])?;
                mine
            }
            _ => {
                let mut fds = party.recv(Role::Ping.index())?.1.into_iter();
                (
                    fds.next().context("way out")?,
                    fds.next().context("way in")?,
                )
            }
        };
        for fd in [&out, &back] {
            rustix::io::ioctl_fionbio(fd, case.wait == Wait::Spin)?;
        }
        let words = [case.payload / 8, W::answer(case) / 8];
        Ok(Self {
            out,
            back,
            send: vec![1; words[role.index()]],
            recv: vec![1; words[1 - role.index()]],
            touch: case.touch,
            way: PhantomData,
        })
    }

    fn send(&mut self, stamp: u64) -> Result<()> {
        match self.touch {
            Touch::Touched => {
                let (at, len) = (self.send.as_mut_ptr().cast(), self.send.len() * 8);
                // SAFETY: our own vector of words, that many bytes.
                unsafe { touch::fill(at, len, stamp) }
            }
            _ => self.send[0] = stamp,
        }
        write_all(&self.out, bytes(&self.send))
    }

    fn recv(&mut self) -> Result<u64> {
        read_all(&self.back, bytes_mut(&mut self.recv))?;
        match self.touch {
            // SAFETY: our own vector of words, that many bytes.
            Touch::Touched => unsafe {
                touch::check(self.recv.as_ptr().cast(), self.recv.len() * 8)
            },
            _ => Ok(self.recv[0]),
        }
    }
}
