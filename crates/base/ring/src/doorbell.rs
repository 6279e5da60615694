//! The descriptor for poll loops: a message to one end of a socket wakes a thread that polls it.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use tranship_sys::socket;

/// The message. It says only that there is something to look at.
pub const PRESSED: &[u8] = b"W";
/// More messages than a socket holds. A message that comes meanwhile wakes the thread once more.
const MOST: usize = 64;

/// Makes the other end readable. Returns false if it is not, for lack of memory or because it is gone. Never blocks: a
/// full socket is readable.
pub fn press(far: impl AsFd) -> bool {
    match socket::sendmsg(far, PRESSED, &[], true) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// Takes all messages from a socket that carries nothing else.
pub fn clear(near: impl AsFd) {
    socket::discard(near, MOST);
}
