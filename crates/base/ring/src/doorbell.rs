//! The descriptor to poll: whoever sleeps in a poll loop is woken by a message to its end of a socket.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use tranship_sys::socket;

/// The message. It says nothing but that there is something to look at.
pub const PRESSED: &[u8] = b"W";
/// More of them than a socket holds; what comes meanwhile wakes once more.
const MOST: usize = 64;

/// Makes the other end readable; false if it is not, for want of memory or because it is gone. Never blocks: where there is no
/// room it is readable.
pub fn press(far: impl AsFd) -> bool {
    match socket::sendmsg(far, PRESSED, &[], true) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Takes what was sent, for a socket with nothing else in it.
pub fn clear(near: impl AsFd) {
    socket::discard(near, MOST);
}
