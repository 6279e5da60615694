//! Errors after which the other end may come again.

use tranship_core::{Error, ErrorKind};

/// Says whether the other end is gone, and may come again.
pub(crate) fn is_gone(error: &Error) -> bool {
    use ErrorKind::{Lost, NotConnected, PeerDied, PeerGone};
    matches!(error.kind(), PeerGone | PeerDied | Lost | NotConnected)
}
