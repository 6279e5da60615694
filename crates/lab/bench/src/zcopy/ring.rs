//! The server with io_uring: a linked send of a header and a SEND_ZC of the value out of one registered buffer for each reply. What was
//! sent must not be written before the notification, so it is a server whose values never change.

use super::work::{CONNECTIONS, HEADER, Work, cpu};
use crate::party::Party;
use crate::stats::{Facts, Measured};
use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::epoll;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};

const PAGE: usize = 4096;
/// Replies of all connections that may be on their way.
const ENTRIES: u32 = 1024;
/// In place of a connection's number.
const RING: u64 = u64::MAX;
static HEAD: [u8; HEADER] = [b'h'; HEADER];

/// Whether the kernel takes so many bytes as a buffer for SEND_ZC.
pub fn possible(bytes: usize) -> Result<()> {
    let ring = IoUring::new(8).context("io_uring")?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    ensure!(
        probe.is_supported(opcode::SendZc::CODE),
        "a kernel without SEND_ZC"
    );
    let room = vec![0u8; bytes + PAGE];
    let whole = libc::iovec {
        iov_base: room.as_ptr().cast_mut().cast(),
        iov_len: room.len(),
    };
    // SAFETY: it is unregistered before the memory goes.
    let done = unsafe { ring.submitter().register_buffers(&[whole]) };
    done.context("registering the values (RLIMIT_MEMLOCK?)")?;
    Ok(ring.submitter().unregister_buffers()?)
}

struct Due {
    stream: TcpStream,
    due: VecDeque<usize>,
    /// Sends that are not done.
    busy: usize,
    asked: Vec<u8>,
    open: bool,
}

pub fn serve(party: &Party, work: Work) -> Result<Vec<Measured>> {
    let mut room = vec![0u8; work.value * work.count + PAGE];
    let from = room.as_ptr().align_offset(PAGE);
    for (seed, value) in room[from..]
        .chunks_exact_mut(work.value)
        .take(work.count)
        .enumerate()
    {
        value.fill(u8::try_from(seed % 251)?);
    }
    let values = &room[from..from + work.value * work.count];
    let mut ring = IoUring::new(ENTRIES)?;
    let whole = libc::iovec {
        iov_base: values.as_ptr().cast_mut().cast(),
        iov_len: values.len(),
    };
    // SAFETY: it lives longer than the ring, which only reads it.
    unsafe { ring.submitter().register_buffers(&[whole]) }.context("registering the values")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    party.tell(1, u64::from(listener.local_addr()?.port()))?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // SAFETY: the ring's, which lives longer than this list.
    let own = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    epoll::add(
        &poll,
        own,
        epoll::EventData::new_u64(RING),
        epoll::EventFlags::IN,
    )?;
    let mut all = Vec::new();
    for number in 0..CONNECTIONS {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&poll, &stream, data, epoll::EventFlags::IN)?;
        all.push(Due {
            stream,
            due: VecDeque::new(),
            busy: 0,
            asked: Vec::new(),
            open: true,
        });
    }
    let (mut served, mut begun) = (0u64, None);
    let mut events = Vec::with_capacity(CONNECTIONS + 1);
    while all.iter().any(|one| one.open) {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            // The ring interrupts whoever waits for something else.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        begun = begun.or_else(|| Some(cpu()));
        for event in &events {
            let number = event.data.u64();
            let Some(one) = all
                .get_mut(usize::try_from(number)?)
                .filter(|_| number != RING)
            else {
                continue;
            };
            if !one.read(work.count)? {
                one.open = false;
                epoll::delete(&poll, &one.stream)?;
            }
            served += one.send(&mut ring, number, values, work.value)?;
        }
        ring.submit()?;
        let done: Vec<cqueue::Entry> = ring.completion().collect();
        for entry in done {
            if cqueue::notif(entry.flags()) {
                continue;
            }
            let one = &mut all[usize::try_from(entry.user_data())?];
            one.busy -= 1;
            let gone = [libc::EPIPE, libc::ECONNRESET, libc::ECANCELED].contains(&-entry.result());
            ensure!(entry.result() > 0 || gone, "a send: {}", entry.result());
            if one.open && !gone {
                served += one.send(&mut ring, entry.user_data(), values, work.value)?;
            }
        }
        ring.submit()?;
    }
    let cpu = cpu().saturating_sub(begun.context("nobody asked")?);
    Ok(vec![Measured {
        op: String::new(),
        median_ns: cpu as f64 / served.max(1) as f64,
        p99_ns: 0.0,
        per_second: 0.0,
        facts: Facts::new(),
        sampled: None,
    }])
}

impl Due {
    /// False at the end.
    fn read(&mut self, count: usize) -> Result<bool> {
        let mut room = [0; 256];
        match self.stream.read(&mut room) {
            Ok(0) => return Ok(false),
            Ok(got) => self.asked.extend_from_slice(&room[..got]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let whole = self.asked.len() / 8 * 8;
        for request in self.asked[..whole].chunks_exact(8) {
            let index = usize::try_from(u64::from_le_bytes(request.try_into()?))?;
            self.due.push_back(index % count);
        }
        self.asked.drain(..whole);
        Ok(true)
    }

    /// Queues what is due, if all before it is sent: one link after the other. Says how many.
    fn send(&mut self, ring: &mut IoUring, number: u64, values: &[u8], size: usize) -> Result<u64> {
        if self.busy > 0 || self.due.is_empty() {
            return Ok(0);
        }
        let fd = types::Fd(self.stream.as_raw_fd());
        let replies = self.due.len();
        for (nth, index) in self.due.drain(..).enumerate() {
            let value = &values[index * size..][..size];
            let head = opcode::Send::new(fd, HEAD.as_ptr(), u32::try_from(HEADER)?);
            let head = head
                .flags(libc::MSG_MORE | libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                .build();
            let body = opcode::SendZc::new(fd, value.as_ptr(), u32::try_from(size)?);
            let body = body
                .buf_index(Some(0))
                .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                .build();
            let linked = if nth + 1 < replies {
                squeue::Flags::IO_LINK
            } else {
                squeue::Flags::empty()
            };
            let both = [
                head.flags(squeue::Flags::IO_LINK).user_data(number),
                body.flags(linked).user_data(number),
            ];
            // SAFETY: header and values outlive the ring, and nobody writes them.
            unsafe { ring.submission().push_multiple(&both) }
                .context("more replies than entries")?;
            self.busy += 2;
        }
        Ok(replies as u64)
    }
}
