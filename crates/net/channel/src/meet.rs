//! Introduction of two carriers: each states the end that its program has and the room that the receiver has.

use crate::wire::Wire;
use crate::word::{Hello, Word};
use std::time::{Duration, Instant};
use tranship_core::carrier::Ends;
use tranship_core::{Error, ErrorKind, Pool};

/// Longest time that the other end may take for its introduction.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the introduction of this end, and the pool that receives for it.
pub(crate) fn introduction(ends: &Ends) -> Result<(Hello, Option<Pool>), Error> {
    let sends = ends.sends();
    let (pool, messages, bytes) = match sends {
        true => (None, 0, 0),
        false => {
            let pool = ends.arrivals()?;
            let bytes = pool.max_bytes();
            (Some(pool), ends.lines(), bytes)
        }
    };
    let hello = Hello {
        sends,
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
pub(crate) fn hear(wire: &mut Wire, sends: bool) -> Result<Hello, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        wire.flush();
        match wire.next()? {
            Some((Word::Hello(hello), 0)) => return judge(wire, hello, sends),
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

fn judge(wire: &mut Wire, hello: Hello, sends: bool) -> Result<Hello, Error> {
    if hello.sends == sends {
        let both = match sends {
            true => "send",
            false => "receive",
        };
        let why = format!("both ends want to {both}: one sends, one receives");
        let kind = ErrorKind::SameRole;
        refuse(wire, kind, &why);
        return Err(Error::new(kind, format!("{}: {why}", wire.place)));
    }
    if !hello.sends && (hello.messages == 0 || hello.bytes == 0) {
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
