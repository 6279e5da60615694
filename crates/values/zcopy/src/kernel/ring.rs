//! A ring of io_uring(7) that sends datagrams out of registered memory (Linux 6.15): the pages are looked up and held
//! once, at registration, instead of for each send.

use super::segment::{FLAGS, with_message};
use rustix::fd::OwnedFd;
use rustix::io_uring::{
    IORING_NOTIF_USAGE_ZC_COPIED, IORING_OFF_CQ_RING, IORING_OFF_SQ_RING, IORING_OFF_SQES,
    IoringCqeFlags, IoringEnterFlags, IoringOp, IoringRegisterOp, IoringSendFlags,
    IoringSetupFlags, io_uring_cqe, io_uring_enter, io_uring_params, io_uring_ptr,
    io_uring_register, io_uring_setup, io_uring_sqe, io_uring_user_data,
};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_sys::map;

/// Bytes of memory that can be registered.
pub const MOST: usize = 1 << 30;
/// Notifications that may wait before the kernel keeps them elsewhere.
const NOTIFICATIONS: u32 = 1024;

/// A ring, used by one thread at a time.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    submissions: Area,
    completions: Area,
    entries: Area,
    params: io_uring_params,
}

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct Area {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the only handle to mappings of its own.
unsafe impl Send for Ring {}

impl Area {
    fn new(fd: &OwnedFd, len: usize, offset: u64) -> io::Result<Area> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: wherever there is room.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, fd, offset)? };
        let at = NonNull::new(at.cast()).expect("no mapping at zero");
        Ok(Area { at, len })
    }

    /// Returns a number that the kernel reads or writes too.
    fn number(&self, offset: u32) -> &AtomicU32 {
        assert!(offset as usize + size_of::<u32>() <= self.len);
        // SAFETY: inside, aligned, at the kernel's offsets.
        unsafe { self.at.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    /// Returns the address of an entry of a table.
    fn entry<T>(&self, offset: u32, index: u32) -> NonNull<T> {
        let at = offset as usize + index as usize * size_of::<T>();
        assert!(at + size_of::<T>() <= self.len);
        // SAFETY: inside.
        unsafe { self.at.add(at).cast() }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: ours, and no other code has its address.
        let _ = unsafe { map::unmap(self.at, self.len) };
    }
}

impl Ring {
    /// Makes a ring. Its descriptor is closed on exec.
    ///
    /// # Errors
    /// If there is no io_uring, or it is forbidden.
    pub fn new() -> io::Result<Ring> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::CQSIZE | IoringSetupFlags::COOP_TASKRUN;
        params.cq_entries = NOTIFICATIONS;
        // SAFETY: nothing is handed over but the parameters.
        let fd = unsafe { io_uring_setup(1, &mut params)? };
        let words = |offset: u32, count: u32, size: usize| offset as usize + count as usize * size;
        let submissions = words(params.sq_off.array, params.sq_entries, size_of::<u32>());
        let completions = words(params.cq_off.cqes, params.cq_entries, size_of::<[u64; 2]>());
        let entries = words(0, params.sq_entries, size_of::<io_uring_sqe>());
        Ok(Ring {
            submissions: Area::new(&fd, submissions, IORING_OFF_SQ_RING)?,
            completions: Area::new(&fd, completions, IORING_OFF_CQ_RING)?,
            entries: Area::new(&fd, entries, IORING_OFF_SQES)?,
            fd,
            params,
        })
    }

    /// Registers the pages that are mapped at an address now, once for each ring. They are held until the ring and all
    /// its sends are gone, whatever becomes of the mapping. Sends name them by their present addresses.
    ///
    /// # Errors
    /// ENOMEM beyond RLIMIT_MEMLOCK, EFAULT if not all of it is mapped for writing.
    ///
    /// # Safety
    /// The range belongs to the caller.
    pub unsafe fn register(&self, at: NonNull<u8>, len: usize) -> io::Result<()> {
        let one = libc::iovec {
            iov_base: at.as_ptr().cast(),
            iov_len: len,
        };
        // SAFETY: one range, as the operation wants it.
        unsafe {
            io_uring_register(
                &self.fd,
                IoringRegisterOp::RegisterBuffers,
                (&raw const one).cast(),
                1,
            )?;
        }
        Ok(())
    }

    /// Sends pieces like [`super::segment::send_pieces`], by reference to registered pages. Returns true if a
    /// notification with this mark comes when the kernel no longer needs the pages, maybe within this call
    /// ([`Ring::notified`]). That also holds for a send that fails after the kernel has taken it. Each notification
    /// says whether the kernel copied the bytes after all.
    ///
    /// # Errors
    /// Those of sendmsg(2); EINVAL or EOPNOTSUPP from a kernel that lacks the operation, or that refuses the call
    /// itself; ENOBUFS if the kernel has no room.
    ///
    /// # Safety
    /// All pieces are registered. Their bytes do not change until the last reader has taken them.
    pub unsafe fn send(
        &mut self,
        socket: impl AsFd,
        to: Option<SocketAddr>,
        pieces: &[(*const u8, usize)],
        size: Option<u16>,
        mark: u64,
        notified: &mut impl FnMut(u64, bool),
    ) -> (io::Result<()>, bool) {
        let socket = socket.as_fd().as_raw_fd();
        with_message(to, pieces, size, |message| {
            let mut entry = io_uring_sqe {
                opcode: IoringOp::SendmsgZc,
                fd: socket,
                ..Default::default()
            };
            entry.ioprio.send_flags = IoringSendFlags::FIXED_BUF | IoringSendFlags::ZC_REPORT_USAGE;
            entry.addr_or_splice_off_in.addr =
                io_uring_ptr::new((&raw const *message).cast_mut().cast());
            entry.len.len = 1;
            entry.op_flags.send_flags =
                rustix::net::SendFlags::from_bits_retain(FLAGS.cast_unsigned());
            entry.user_data = io_uring_user_data::from_u64(SEND | mark);
            self.submit(entry, notified)
        })
    }

    /// Gives the kernel one entry and waits for its result, which comes at once, because the operation does not wait.
    /// Returns whether a notification follows.
    fn submit(
        &mut self,
        entry: io_uring_sqe,
        notified: &mut impl FnMut(u64, bool),
    ) -> (io::Result<()>, bool) {
        let offsets = &self.params.sq_off;
        // SAFETY: the kernel has read the entry before: there is one at a time.
        unsafe { self.entries.entry::<io_uring_sqe>(0, 0).write(entry) };
        // SAFETY: as above; it holds the number of the entry.
        unsafe { self.submissions.entry::<u32>(offsets.array, 0).write(0) };
        let tail = self.submissions.number(offsets.tail);
        // Relaxed: only this thread writes it.
        let next = tail.load(Ordering::Relaxed).wrapping_add(1);
        // Ordering: release, so that the kernel sees the entry that this counts.
        tail.store(next, Ordering::Release);
        loop {
            // Ordering: acquire, partner of the kernel's release: it has read the entry.
            let taken = self
                .submissions
                .number(offsets.head)
                .load(Ordering::Acquire)
                == next;
            // The result is there when the entry has been taken; otherwise this waits for it.
            let (submit, wait, flags) = if taken {
                (0, 1, IoringEnterFlags::GETEVENTS)
            } else {
                (1, 0, IoringEnterFlags::empty())
            };
            // SAFETY: the message lives until this returns, and the kernel has its result by then.
            let entered = unsafe { io_uring_enter(&self.fd, submit, wait, flags) };
            match entered {
                Ok(_) => {}
                // Only a wait is interrupted.
                Err(rustix::io::Errno::INTR) if taken => {}
                // The result of the send is not known, so a notification may come.
                Err(error) if taken => return (Err(error.into()), true),
                Err(error) => {
                    // Ordering: release, as above: the entry was not taken, and is withdrawn.
                    tail.store(next.wrapping_sub(1), Ordering::Release);
                    return (Err(refusal(error)), false);
                }
            }
            let mut own = None;
            self.completed(&mut |mark, result, follows| {
                if mark & SEND == 0 {
                    notified(mark, is_copied(result));
                } else {
                    own = Some((result, follows));
                }
            });
            if let Some((result, follows)) = own {
                let sent = match result {
                    0.. => Ok(()),
                    failed => Err(io::Error::from_raw_os_error(-failed)),
                };
                return (sent, follows);
            }
        }
    }

    /// Tells the marks of sends whose pages the kernel no longer needs, and whether it copied them after all.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn notified(&mut self, tell: &mut impl FnMut(u64, bool)) -> io::Result<()> {
        // SAFETY: nothing is handed over.
        unsafe { io_uring_enter(&self.fd, 0, 0, IoringEnterFlags::GETEVENTS)? };
        self.completed(&mut |mark, result, _| tell(mark, is_copied(result)));
        Ok(())
    }

    /// Takes the kernel's completions: mark, result, and whether more comes. The mark of a notification is without
    /// [`SEND`].
    fn completed(&self, tell: &mut impl FnMut(u64, i32, bool)) {
        let offsets = &self.params.cq_off;
        let head = self.completions.number(offsets.head);
        // Relaxed: only this thread writes it.
        let mut at = head.load(Ordering::Relaxed);
        // Ordering: acquire, partner of the kernel's release.
        let end = self
            .completions
            .number(offsets.tail)
            .load(Ordering::Acquire);
        while at != end {
            let index = at & (self.params.cq_entries - 1);
            let place = self.completions.entry::<[u64; 2]>(offsets.cqes, index);
            let place = place.cast::<io_uring_cqe>();
            // SAFETY: an entry that the kernel has written and does not write again before the head has passed it.
            let (data, result, flags) = unsafe {
                let entry = place.as_ref();
                (entry.user_data.u64_(), entry.res, entry.flags)
            };
            let mark = if flags.contains(IoringCqeFlags::NOTIF) {
                data & !SEND
            } else {
                data
            };
            tell(mark, result, flags.contains(IoringCqeFlags::MORE));
            at = at.wrapping_add(1);
        }
        // Ordering: release, so that the kernel writes no entry that is still read.
        head.store(at, Ordering::Release);
    }
}

/// Makes the error of the call itself, which says nothing about the socket: a sandbox refuses with any error number.
fn refusal(error: rustix::io::Errno) -> io::Error {
    use rustix::io::Errno;
    let room = matches!(error, Errno::AGAIN | Errno::BUSY | Errno::NOMEM);
    io::Error::from_raw_os_error(if room {
        libc::ENOBUFS
    } else {
        libc::EOPNOTSUPP
    })
}

/// Decodes the field that a notification has in place of a result.
fn is_copied(usage: i32) -> bool {
    usage & IORING_NOTIF_USAGE_ZC_COPIED != 0
}

/// The bit that distinguishes a send's own result from a notification; marks do not have it.
const SEND: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn registered_bytes_are_sent_and_a_notification_comes() {
        let ring = Ring::new();
        let Ok(mut ring) = ring else {
            eprintln!("SKIPPED: no io_uring: {:?}", ring.err());
            return;
        };
        let len = 8 * 4096;
        let room = map::reserve_private(len, 4096).expect("room");
        // SAFETY: ours.
        unsafe {
            room.as_ptr().write_bytes(7, len);
            ring.register(room, len).expect("a few pages");
        }
        let (from, to) = (
            UdpSocket::bind("127.0.0.1:0"),
            UdpSocket::bind("127.0.0.1:0"),
        );
        let (from, to) = (from.expect("a socket"), to.expect("a socket"));
        let pieces = [
            (room.as_ptr().cast_const(), 10),
            (room.as_ptr().wrapping_add(5000).cast_const(), 10),
        ];
        let mut marks = Vec::new();
        let target = Some(to.local_addr().expect("an address"));
        // SAFETY: registered, and written no more.
        let (sent, follows) = unsafe {
            ring.send(&from, target, &pieces, Some(10), 3, &mut |mark, copied| {
                marks.push((mark, copied));
            })
        };
        match sent {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                eprintln!("SKIPPED: a kernel before 6.15: {error}");
            }
            sent => {
                sent.expect("room");
                let mut bytes = [0; 64];
                for _ in 0..2 {
                    assert_eq!(to.recv(&mut bytes).expect("a datagram"), 10);
                    assert_eq!(bytes[..10], [7; 10]);
                }
                while follows && marks.is_empty() {
                    ring.notified(&mut |mark, copied| marks.push((mark, copied)))
                        .expect("enter");
                }
                assert_eq!(marks, [(3, true)], "the kernel copies what it loops");
                // A piece too long for a datagram fails, and is reported as well if the kernel reports it.
                let long = [(room.as_ptr().cast_const(), len); 3];
                // SAFETY: as above.
                let (sent, follows) = unsafe {
                    ring.send(&from, target, &long, None, 4, &mut |m, copied| {
                        marks.push((m, copied))
                    })
                };
                let failed = sent.expect_err("98,304 bytes");
                assert_eq!(failed.raw_os_error(), Some(libc::EMSGSIZE));
                while follows && marks.len() < 2 {
                    ring.notified(&mut |mark, copied| marks.push((mark, copied)))
                        .expect("enter");
                }
                assert_eq!(marks.len(), 1 + usize::from(follows));
            }
        }
        // SAFETY: ours, and used no more.
        unsafe { map::unmap(room, len).expect("mapped") };
    }
}
