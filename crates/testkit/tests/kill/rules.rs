//! Which errors are part of the game in which everybody is killed now and then. (The chaos scenes use this file, too.)

use crate::product::{DomainError, RecvError, SendFailure};

/// Why a party ends: a rule was broken, and the test fails.
pub type Broken = String;

pub fn broken(e: impl std::fmt::Display) -> Broken {
    e.to_string()
}

/// A manager or peer that goes away is part of the game. A breach of protocol between honest parties is not.
pub fn bearable(e: &DomainError) -> Result<(), Broken> {
    match e {
        DomainError::ManagerAway
        | DomainError::NoManager { .. }
        | DomainError::TimedOut { .. }
        | DomainError::Refused(_) => Ok(()),
        DomainError::System { source, .. }
            if matches!(
                source.raw_os_error(),
                Some(libc::EPIPE | libc::ECONNRESET | libc::ECONNREFUSED)
            ) =>
        {
            Ok(())
        }
        other => Err(format!("domain: {other} ({other:?})")),
    }
}

/// True when the channel is over, false when it goes on.
pub fn send_over(e: &SendFailure) -> Result<bool, Broken> {
    match e {
        SendFailure::Full { .. } | SendFailure::NotAssigned { .. } | SendFailure::List(_) => {
            Ok(false)
        }
        SendFailure::PeerGone(_) => {
            eprintln!("send: {e}");
            Ok(true)
        }
        SendFailure::Assign(e) => bearable(e).map(|()| false),
        other => Err(format!("send: {other} ({other:?})")),
    }
}

/// True when the channel is over, false when it goes on.
pub fn recv_over(e: &RecvError) -> Result<bool, Broken> {
    match e {
        RecvError::PeerGone(_)
        | RecvError::NotConnected(_)
        | RecvError::PeerDied(_)
        | RecvError::Lost(_) => {
            eprintln!("recv: {e}");
            Ok(true)
        }
        RecvError::TimedOut { .. } => Ok(false),
        other => Err(format!("recv: {other} ({other:?})")),
    }
}
