//! write(2), writev(2), send(2), sendto(2), sendmsg(2).

use crate::inside::{inside, is_inside};
use crate::readable::is_readable;
use crate::readonly::is_readonly;
use crate::{next, state};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use tranship_sys::{errno, signals};
use zcopy::kernel::scatter;
use zcopy::{Counts, Piece, Sender, Socket};

/// Pieces shorter than that are not worth a question.
const WORTH: usize = 4096;
/// Pieces of one call.
const MOST: usize = scatter::MOST;
/// Flags that are allowed for a send that goes by reference.
const KNOWN: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// write(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    // SAFETY: the caller promises it, here and below.
    unsafe { one(fd, from, len, 0, || next::write(fd, from, len)) }
}

/// send(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller promises it.
    unsafe { one(fd, from, len, flags, || next::send(fd, from, len, flags)) }
}

/// sendto(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    to: *const libc::sockaddr,
    to_len: libc::socklen_t,
) -> isize {
    // SAFETY: the caller promises it.
    unsafe {
        let copy = || next::sendto(fd, from, len, flags, to, to_len);
        if to.is_null() {
            one(fd, from, len, flags, copy)
        } else {
            copy()
        }
    }
}

/// writev(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the caller promises it.
    unsafe {
        let copy = || next::writev(fd, pieces, count);
        match usize::try_from(count) {
            Ok(count) => many(fd, pieces, count, 0, copy),
            Err(_) => copy(),
        }
    }
}

/// sendmsg(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the caller promises it.
    unsafe {
        let copy = || next::sendmsg(fd, message, flags);
        if !may_look(fd, flags) || !is_readable(message.cast(), size_of::<libc::msghdr>()) {
            return copy();
        }
        let plain = message.read_unaligned();
        // Messages with descriptors and the like go to the C library, and so do those with an address.
        if plain.msg_control.is_null() && plain.msg_name.is_null() {
            many(fd, plain.msg_iov, plain.msg_iovlen, flags, copy)
        } else {
            copy()
        }
    }
}

/// Returns whether such a send may be one of ours. A send that the kernel refuses whatever the memory, or with other
/// flags, is the C library's.
fn may_look(fd: c_int, flags: c_int) -> bool {
    fd >= 0 && flags & !KNOWN == 0 && !is_inside()
}

/// # Safety
/// As write(2).
unsafe fn one(
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    copy: impl Fn() -> isize,
) -> isize {
    if len < WORTH || !may_look(fd, flags) {
        return copy();
    }
    // SAFETY: the caller promises it.
    match unsafe { piece(from.cast(), len) } {
        Some(piece) => sent(fd, std::iter::once(piece), flags, copy),
        None => copy(),
    }
}

/// Returns a piece that can go by reference: memory of the twin allocator, or memory that never changes.
///
/// # Safety
/// The range is mapped memory until the piece was sent.
unsafe fn piece(at: *const u8, len: usize) -> Option<Piece<'static>> {
    if len < WORTH {
        return None;
    }
    // The kernel refuses an impossible length.
    let last = at.wrapping_add(len - 1);
    if last < at {
        return None;
    }
    if let Some(arena) = state::arena_of(at).filter(|arena| arena.owns(last)) {
        // SAFETY: mapped, says the caller.
        return Some(unsafe { Piece::raw(arena, at, len) });
    }
    // SAFETY: it never changes, says the program, and stays as long as the process.
    is_readonly(at, len).then(|| Piece::ReadOnly(unsafe { std::slice::from_raw_parts(at, len) }))
}

/// # Safety
/// As writev(2).
unsafe fn many(
    fd: c_int,
    pieces: *const libc::iovec,
    count: usize,
    flags: c_int,
    copy: impl Fn() -> isize,
) -> isize {
    if count == 0 || count > MOST || !may_look(fd, flags) || !pieces.is_aligned() {
        return copy();
    }
    // The kernel refuses a list that it cannot read either.
    if !is_readable(pieces.cast(), count * size_of::<libc::iovec>()) {
        return copy();
    }
    // SAFETY: the caller's list, which is there.
    let list = unsafe { std::slice::from_raw_parts(pieces, count) };
    // SAFETY: the caller promises it.
    let ours = |one: &libc::iovec| unsafe { piece(one.iov_base.cast::<u8>(), one.iov_len) };
    // The kernel refuses impossible lengths and places.
    let all = list.iter().try_fold(0usize, |all, one| {
        let at = one.iov_base.addr();
        let can_be = one.iov_len == 0 || at != 0 && at.checked_add(one.iov_len).is_some();
        all.checked_add(one.iov_len).filter(|_| can_be)
    });
    if all.is_none_or(|all| all > isize::MAX.unsigned_abs())
        || !list.iter().any(|one| ours(one).is_some())
    {
        return copy();
    }
    let pieces = list.iter().filter(|one| one.iov_len > 0).map(|one| {
        ours(one).unwrap_or_else(|| {
            // SAFETY: mapped, says the caller. Where that is wrong the kernel finds it: nothing is read here before
            // `may_be_kept` has asked.
            Piece::Bytes(unsafe {
                std::slice::from_raw_parts(one.iov_base.cast::<u8>(), one.iov_len)
            })
        })
    });
    sent(fd, pieces, flags, copy)
}

/// Sends pieces of which some are the twin allocator's or never change: by reference, or by the C library (`copy`).
/// Works like send(2).
fn sent(
    fd: c_int,
    pieces: impl Iterator<Item = Piece<'static>> + Clone,
    flags: c_int,
    copy: impl Fn() -> isize,
) -> isize {
    let before = errno::get();
    let plan = inside(|| plan(fd, pieces.clone(), flags)).unwrap_or(Plan::Leave);
    // Only the error of a send is reported.
    errno::set(before);
    match plan {
        Plan::Sent(Ok(sent)) => return sent.cast_signed(),
        Plan::Sent(Err(error)) => {
            errno::set(error.raw_os_error().unwrap_or(libc::EIO));
            return -1;
        }
        Plan::Leave => return copy(),
        Plan::Count => {}
    }
    // Outside: the work of a signal handler meanwhile, or a jump out of it, is the program's.
    let sent = copy();
    let after = errno::get();
    inside(|| {
        state::with_sender(|sender, list| {
            list.extend(pieces);
            let counts = sender.counts();
            // Without memory for the list the send is not counted.
            let _ = sender.copied(list, usize::try_from(sent).unwrap_or(0));
            done(counts, sender.counts());
        })
    });
    errno::set(after);
    sent
}

/// Handling of a send.
enum Plan {
    /// The send was done, or failed.
    Sent(io::Result<usize>),
    /// The C library copies it, and it is counted.
    Count,
    /// The send is not for this library: the C library does it.
    Leave,
}

/// Sends by reference where that is likely to pay.
fn plan(fd: c_int, pieces: impl Iterator<Item = Piece<'static>>, flags: c_int) -> Plan {
    // A thread that only writes files needs no pipe.
    if !state::has_sender() && socket(fd, flags).is_none() {
        return Plan::Leave;
    }
    let plan = state::with_sender(|sender, list| {
        list.extend(pieces);
        if !sender.may_refer(list) {
            return Plan::Count;
        }
        match socket(fd, flags) {
            Some(socket) if list.iter().all(may_be_kept) => {
                Plan::Sent(by_reference(sender, fd, socket, list, flags))
            }
            _ => Plan::Leave,
        }
    });
    plan.unwrap_or(Plan::Leave)
}

/// Headers that go along with references are copied here, not by the kernel. How far one of them can be read that
/// cannot be read whole is the kernel's to say.
fn may_be_kept(piece: &Piece<'_>) -> bool {
    match piece {
        Piece::Bytes(bytes) if bytes.len() < WORTH => is_readable(bytes.as_ptr(), bytes.len()),
        _ => true,
    }
}

/// Returns the record of a stream socket. Files, datagrams and other descriptors go to the C library, and so do
/// unsupported flags.
fn socket(fd: c_int, flags: c_int) -> Option<Socket> {
    // SAFETY: the caller has it open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let socket = Socket::without_notifications(fd).ok()?;
    let waits = flags & libc::MSG_DONTWAIT != 0 && !tranship_sys::stream::is_nonblocking(fd);
    (socket.is_stream() && !waits).then_some(socket)
}

/// Sends as many bytes as there is room for. The kernel waits for a blocking socket, and the wait ends as that of
/// write(2).
fn by_reference(
    sender: &mut Sender,
    fd: c_int,
    mut socket: Socket,
    pieces: &[Piece<'_>],
    flags: c_int,
) -> io::Result<usize> {
    // SAFETY: the caller has it open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let counts = sender.counts();
    let outcome = sender.send(fd, &mut socket, pieces);
    done(counts, sender.counts());
    // The sender raises no signal; write(2) does.
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if flags & libc::MSG_NOSIGNAL == 0 && outcome.as_ref().is_err_and(gone) {
        signals::raise_sigpipe();
    }
    outcome
}

/// Counts one send, from the sender's counts before and after it.
fn done(before: Counts, after: Counts) {
    let added = [
        after.referred_bytes - before.referred_bytes,
        after.copied_bytes - before.copied_bytes,
        1,
    ];
    for (count, by) in state::DONE.iter().zip(added) {
        // Relaxed: counts.
        count.fetch_add(by, Ordering::Relaxed);
    }
}
