//! write(2), writev(2), send(2), sendto(2), sendmsg(2).

use crate::inside::inside;
use crate::readonly::is_readonly;
use crate::{next, state};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use tranship_sys::{errno, signals};
use zcopy::{Piece, Socket};

/// Pieces shorter than that are not worth a question.
const WORTH: usize = 4096;
/// What may be asked of a send that goes by reference.
const KNOWN: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// write(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's word, here and below.
    unsafe { one(fd, from, len, 0).unwrap_or_else(|| next::write(fd, from, len)) }
}

/// send(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> isize {
    // SAFETY: the caller's word.
    unsafe { one(fd, from, len, flags).unwrap_or_else(|| next::send(fd, from, len, flags)) }
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
    // SAFETY: the caller's word.
    unsafe {
        let reference = if to.is_null() {
            one(fd, from, len, flags)
        } else {
            None
        };
        reference.unwrap_or_else(|| next::sendto(fd, from, len, flags, to, to_len))
    }
}

/// writev(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, pieces: *const libc::iovec, count: c_int) -> isize {
    // SAFETY: the caller's word.
    unsafe {
        let all = usize::try_from(count)
            .ok()
            .and_then(|count| many(fd, pieces, count, 0));
        all.unwrap_or_else(|| next::writev(fd, pieces, count))
    }
}

/// sendmsg(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's word.
    unsafe {
        let all = message.as_ref().and_then(|message| {
            // Descriptors and the like go their way, and so does what has an address.
            let plain = message.msg_control.is_null() && message.msg_name.is_null();
            plain
                .then(|| many(fd, message.msg_iov, message.msg_iovlen, flags))
                .flatten()
        });
        all.unwrap_or_else(|| next::sendmsg(fd, message, flags))
    }
}

/// # Safety
/// The range is mapped memory.
unsafe fn one(fd: c_int, from: *const c_void, len: usize, flags: c_int) -> Option<isize> {
    if len < WORTH || flags & !KNOWN != 0 {
        return None;
    }
    // SAFETY: mapped, says the caller.
    let piece = unsafe { piece(from.cast(), len)? };
    by_reference(fd, &[piece], flags)
}

/// What can go by reference: the twin allocator's, and what never changes.
///
/// # Safety
/// The range is mapped memory until the piece was sent.
unsafe fn piece(at: *const u8, len: usize) -> Option<Piece<'static>> {
    if len < WORTH {
        return None;
    }
    // A length that cannot be is the kernel's to refuse.
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
unsafe fn many(fd: c_int, pieces: *const libc::iovec, count: usize, flags: c_int) -> Option<isize> {
    if count == 0 || count > 1024 || pieces.is_null() || flags & !KNOWN != 0 {
        return None;
    }
    // SAFETY: the caller's list.
    let list = unsafe { std::slice::from_raw_parts(pieces, count) };
    let all = list
        .iter()
        .try_fold(0usize, |all, one| all.checked_add(one.iov_len));
    if all.is_none_or(|all| all > isize::MAX.unsigned_abs()) {
        return None;
    }
    let mut any = false;
    let pieces: Vec<_> = list
        .iter()
        .filter(|one| one.iov_len > 0)
        .map(|one| {
            let (at, len) = (one.iov_base.cast::<u8>().cast_const(), one.iov_len);
            // SAFETY: mapped, says the caller.
            let ours = unsafe { piece(at, len) };
            any |= ours.is_some();
            // SAFETY: mapped, says the caller; the kernel would read it as this does.
            ours.unwrap_or_else(|| Piece::Bytes(unsafe { std::slice::from_raw_parts(at, len) }))
        })
        .collect();
    if !any {
        return None;
    }
    by_reference(fd, &pieces, flags)
}

/// None: nothing was sent, and the C library is to do it.
fn by_reference(fd: c_int, pieces: &[Piece<'_>], flags: c_int) -> Option<isize> {
    let before = errno::get();
    // SAFETY: the caller has it open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // Files, datagrams and whatever else is no stream socket, said the kernel.
    let socket = Socket::without_notifications(fd).ok();
    let mut socket = socket.filter(Socket::is_stream);
    let answer = socket.as_mut().and_then(|socket| {
        if flags & libc::MSG_DONTWAIT != 0 && !tranship_sys::stream::is_nonblocking(fd) {
            return None;
        }
        let quiet = flags & libc::MSG_NOSIGNAL != 0;
        inside(|| state::with_sender(|sender| all(sender, fd, socket, pieces, quiet))).flatten()
    });
    match answer {
        None => {
            errno::set(before);
            None
        }
        Some(Ok(sent)) => {
            errno::set(before);
            isize::try_from(sent).ok()
        }
        Some(Err(error)) => {
            errno::set(error.raw_os_error().unwrap_or(libc::EIO));
            Some(-1)
        }
    }
}

/// Sends what there is room for. A blocking socket is waited for by the kernel, and what ends that is what ends write(2).
fn all(
    sender: &mut zcopy::Sender,
    fd: BorrowedFd<'_>,
    socket: &mut Socket,
    pieces: &[Piece<'_>],
    quiet: bool,
) -> io::Result<usize> {
    let counts = sender.counts();
    let outcome = sender.send(fd, socket, pieces);
    let now = sender.counts();
    let added = [
        now.referred_bytes - counts.referred_bytes,
        now.copied_bytes - counts.copied_bytes,
        1,
    ];
    for (count, by) in state::DONE.iter().zip(added) {
        // Relaxed: counts.
        count.fetch_add(by, Ordering::Relaxed);
    }
    // The sender raises no signal; write(2) does.
    if !quiet
        && outcome
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    {
        signals::raise_sigpipe();
    }
    outcome
}
