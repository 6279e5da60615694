//! Introduction of two carriers: each states its program's role and the room that the receiver has.

use crate::wire::Wire;
use crate::word::{Hello, Word};
use std::time::{Duration, Instant};
use tranship_core::{Ends, Error, ErrorKind, Pool, Role};

/// Longest time that the other end may take for its introduction.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the introduction of this end, and the pool that receives for it.
pub(crate) fn introduction(ends: &Ends) -> Result<(Hello, Option<Pool>), Error> {
    let role = ends.role();
    let (pool, messages, bytes) = match role {
        Role::Source => (None, 0, 0),
        Role::Sink => {
            let pool = ends.arrivals()?;
            let bytes = pool.max_bytes();
            (Some(pool), ends.lines(), bytes)
        }
    };
    let hello = Hello {
        role,
        messages,
        bytes,
    };
    Ok((hello, pool))
}

/// Sends the introduction of this end.
pub(crate) fn say(wire: &mut Wire, hello: Hello) {
    wire.push(&Word::Hello(hello));
    wire.flush();
}

/// Waits for the introduction of the other end, and judges it.
///
/// # Errors
/// `TimedOut`, `SameRole`, `PeerViolation`, and the reason for which the other end is gone.
pub(crate) fn hear(wire: &mut Wire, role: Role) -> Result<Hello, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        wire.flush();
        match wire.next()? {
            Some((Word::Hello(hello), 0)) => return judge(wire, hello, role),
            Some((Word::Over { kind, why }, 0)) => {
                return Err(wire.told(kind, &why, ErrorKind::PeerGone));
            }
            Some((word, bytes)) => {
                let text = format!("{word:?} with {bytes} bytes before its introduction");
                return Err(wire.violation(text));
            }
            None => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (place, limit) = (&wire.place, PATIENCE.as_secs());
            let text = format!("{place} did not say within {limit} s which end of a channel it is");
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        wire.wait(left);
    }
}

fn judge(wire: &mut Wire, hello: Hello, role: Role) -> Result<Hello, Error> {
    if hello.role == role {
        let both = match role {
            Role::Source => "send",
            Role::Sink => "receive",
        };
        let why = format!("both ends want to {both}: one sends, one receives");
        let kind = ErrorKind::SameRole;
        refuse(wire, kind, &why);
        return Err(Error::new(kind, format!("{}: {why}", wire.place)));
    }
    if hello.role == Role::Sink && (hello.messages == 0 || hello.bytes == 0) {
        return Err(wire.violation("a receiver that has room for nothing".to_owned()));
    }
    Ok(hello)
}

/// Tells the other end that nothing more comes.
pub(crate) fn refuse(wire: &mut Wire, kind: ErrorKind, why: &str) {
    let (kind, why) = (kind.number(), why.to_owned());
    wire.push(&Word::Over { kind, why });
    wire.flush();
}
