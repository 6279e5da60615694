//! Why a frame does not go on.

use std::io;
use tranship_mbuf::Error;

/// The reason why a frame was not forwarded.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The frame is not for this host, or broken.
    Refused,
    /// No mbuf was free, or the peer's address is not known yet.
    Lost,
    /// A port is gone.
    Io(io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::TooShort { .. } => Trouble::Refused,
            _ => Trouble::Lost,
        }
    }
}

impl From<tranship_mbuf::NoBuffers> for Trouble {
    fn from(_: tranship_mbuf::NoBuffers) -> Self {
        Trouble::Lost
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Io(error)
    }
}
