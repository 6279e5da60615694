//! close(2), closefrom(3), close_range(2), dup2(2), dup3(2): a program that closes unknown descriptors leaves ours
//! open.
//!
//! Daemons do so when they start. Files that come under those numbers later must not be taken for ours.

use crate::inside::is_inside;
use crate::next;
use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use tranship_sys::errno;

/// Descriptors that are kept: enough for a hundred threads that send. The program may close the descriptors of further
/// threads.
const MOST: usize = 512;
static KEPT: [AtomicI32; MOST] = [const { AtomicI32::new(NONE) }; MOST];
/// One more than the highest descriptor, and than the last place, that was ever used.
static TOP: AtomicI32 = AtomicI32::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);
const NONE: RawFd = -1;

// All relaxed: a program that closes a descriptor while another thread makes it cannot know of it.
/// Keeps a descriptor: from now on it is ours.
pub(crate) fn keep(fd: RawFd) {
    TOP.fetch_max(fd + 1, Ordering::Relaxed);
    for (number, place) in KEPT.iter().enumerate() {
        let taken = place.compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() || taken == Err(fd) {
            USED.fetch_max(number + 1, Ordering::Relaxed);
            return;
        }
    }
}

fn kept() -> &'static [AtomicI32] {
    &KEPT[..USED.load(Ordering::Relaxed).min(MOST)]
}

/// Forgets a descriptor that is closed, or about to be.
pub(crate) fn give_up(fd: RawFd) {
    for place in kept() {
        let _ = place.compare_exchange(fd, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Returns whether the program may not close it. A descriptor that we close ourselves is ours no more.
fn is_ours(fd: RawFd) -> bool {
    let there = (0..TOP.load(Ordering::Relaxed)).contains(&fd)
        && kept()
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == fd);
    if there && is_inside() {
        give_up(fd);
        return false;
    }
    there
}

/// close(2). For a descriptor of ours it returns the error for an unused number.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_ours(fd) {
        errno::set(libc::EBADF);
        return -1;
    }
    // SAFETY: the caller promises it.
    unsafe { next::close(fd) }
}

/// close_range(2).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut first = first;
    while let Some(ours) = first_of_ours(first, last) {
        if ours > first {
            // SAFETY: the caller promises it.
            let done = unsafe { next::close_range(first, ours - 1, flags) };
            if done != 0 {
                return done;
            }
        }
        if ours == last {
            return 0;
        }
        first = ours + 1;
    }
    // SAFETY: the caller promises it.
    unsafe { next::close_range(first, last, flags) }
}

/// closefrom(3).
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let first = c_uint::try_from(first).unwrap_or(0);
    let before = errno::get();
    // SAFETY: the caller promises it.
    unsafe { close_range(first, c_uint::MAX, 0) };
    errno::set(before);
}

/// dup2(2). A number of ours is refused, as one that is not allowed.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if is_ours(to) {
        errno::set(libc::EBADF);
        return -1;
    }
    // SAFETY: the caller promises it.
    unsafe { next::dup2(from, to) }
}

/// dup3(2), like [`dup2`].
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if is_ours(to) {
        errno::set(libc::EBADF);
        return -1;
    }
    // SAFETY: the caller promises it.
    unsafe { next::dup3(from, to, flags) }
}

/// Returns the lowest of ours in a range.
fn first_of_ours(first: c_uint, last: c_uint) -> Option<c_uint> {
    let all = kept().iter().map(|place| place.load(Ordering::Relaxed));
    all.filter_map(|fd| c_uint::try_from(fd).ok())
        .filter(|fd| (first..=last).contains(fd))
        .min()
}
