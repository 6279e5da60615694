//! Which errors are part of the game in which everybody is killed now and then. (The chaos scenes use this file, too.)

use crate::product::error::Refusal;
use crate::product::{Error, ErrorKind};

/// Why a party ends: a rule was broken, and the test fails.
pub type Broken = String;

pub fn broken(e: impl std::fmt::Display) -> Broken {
    e.to_string()
}

/// A manager or peer that goes away is part of the game. A breach of protocol between honest parties is not.
pub fn bearable(e: &Error) -> Result<(), Broken> {
    let gone = [libc::EPIPE, libc::ECONNRESET, libc::ECONNREFUSED];
    match e.kind() {
        ErrorKind::ManagerAway | ErrorKind::NoManager | ErrorKind::TimedOut => Ok(()),
        ErrorKind::System if gone.contains(&e.errno()) => Ok(()),
        _ if e.find::<Refusal>().is_some() => Ok(()),
        _ => Err(format!("domain: {e} ({e:?})")),
    }
}

/// True when the channel is over, false when it goes on.
pub fn send_over(e: &Error) -> Result<bool, Broken> {
    match e.kind() {
        ErrorKind::Full | ErrorKind::PoolPending | ErrorKind::OutOfMemory | ErrorKind::TooLarge => {
            Ok(false)
        }
        ErrorKind::PeerGone => {
            eprintln!("send: {e}");
            Ok(true)
        }
        _ => bearable(e).map(|()| false),
    }
}

/// True when the channel is over, false when it goes on.
pub fn recv_over(e: &Error) -> Result<bool, Broken> {
    match e.kind() {
        ErrorKind::PeerGone | ErrorKind::NotConnected | ErrorKind::PeerDied | ErrorKind::Lost => {
            eprintln!("recv: {e}");
            Ok(true)
        }
        ErrorKind::TimedOut => Ok(false),
        _ => Err(format!("recv: {e} ({e:?})")),
    }
}
