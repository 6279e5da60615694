//! Notes about buffers in use, and the report of remaining ones.
//!
//! The counters always tell which buffers these are. The time, the channel and the place in the program are noted only
//! on request. Buffers then take the slow path. The fast path checks for that anyway, so that the notes cost nothing
//! otherwise.

use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tranship_proto::{BufferId, ChannelId, DomainId, PoolId};

/// The environment variable that switches notes on: `1` or `backtrace`. With `0` or nothing, nothing is noted.
const VARIABLE: &str = "TRANSHIP_LEAKS";

/// The notes about buffers, for `Admin::leaks` and the report that is printed when the domain ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Leaks {
    /// Notes nothing, and prints nothing.
    #[default]
    Off,
    /// Notes since when each buffer is there, and by which channel it came. Buffers that remain when the domain ends
    /// are printed to stderr.
    Report,
    /// Notes also the place in the program that asked for the buffer. That is slow.
    Backtrace,
}

impl Leaks {
    #[doc(hidden)] // how a domain begins
    pub fn of_environment() -> Leaks {
        let value = tranship_sys::process::trusted_env(VARIABLE);
        match value.as_ref().and_then(|value| value.to_str()) {
            None | Some("0") => Leaks::Off,
            Some("backtrace") => Leaks::Backtrace,
            Some(_) => Leaks::Report,
        }
    }
}

/// A buffer of another domain's pool that this domain holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldBuffer {
    /// The pool.
    pub pool: PoolId,
    /// The buffer's writer.
    pub writer: DomainId,
    /// The buffer.
    pub id: BufferId,
    /// The buffer's length by its writer's word, bytes; at most the pool's size.
    pub bytes: u64,
    /// The number of its handles.
    pub handles: u32,
    /// When and by which channel it came, if that is noted.
    pub got: Option<Got>,
}

/// A buffer of an own pool that was not freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnBuffer {
    /// The pool.
    pub pool: PoolId,
    /// The pool's name.
    pub pool_name: String,
    /// The buffer.
    pub id: BufferId,
    /// The buffer's capacity, bytes.
    pub bytes: u64,
    /// When and where it was allocated.
    pub got: Got,
}

/// When, and from where, the domain got a buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Got {
    /// The time since then.
    pub age: Duration,
    /// The channel by which it came, and the channel's name.
    pub channel: Option<(ChannelId, String)>,
    /// The place in the program.
    pub backtrace: Option<String>,
}

/// The buffers that a domain still has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeakReport {
    /// The domain's name.
    pub domain: String,
    /// Other domains' buffers.
    pub held: Vec<HeldBuffer>,
    /// The domain's own buffers; only if [`Leaks`] are noted.
    pub own: Vec<OwnBuffer>,
}

impl LeakReport {
    /// Says whether no buffer is left.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.own.is_empty()
    }
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |all: u64, bytes: u64| all.saturating_add(bytes);
        let bytes = self.held.iter().map(|h| h.bytes).fold(0, sum);
        let own = self.own.iter().map(|o| o.bytes).fold(0, sum);
        write!(
            f,
            "tranship: domain {:?} still has {} buffers of others ({bytes} bytes) and {} of its own ({own} bytes)",
            self.domain,
            self.held.len(),
            self.own.len()
        )?;
        for h in &self.held {
            let (id, pool, writer, bytes, handles) = (h.id, h.pool, h.writer, h.bytes, h.handles);
            write!(
                f,
                "\n  buffer {id} of pool {pool} (written by domain {writer}): {bytes} bytes, {handles} handles"
            )?;
            h.got.iter().try_for_each(|got| got.fmt(f))?;
        }
        for o in &self.own {
            let (id, pool, name, bytes) = (o.id, o.pool, &o.pool_name, o.bytes);
            write!(
                f,
                "\n  buffer {id} of its own pool {pool} ({name:?}): {bytes} bytes"
            )?;
            o.got.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((channel, name)) = &self.channel {
            write!(f, ", by channel {channel} ({name:?})")?;
        }
        write!(f, ", for {:.1} s", self.age.as_secs_f64())?;
        match &self.backtrace {
            Some(text) => write!(f, ", from\n{text}"),
            None => Ok(()),
        }
    }
}

/// The notes.
#[derive(Debug)]
pub struct Notes {
    with_place: bool,
    all: Mutex<HashMap<(PoolId, u32), Note>>,
    pub(super) said: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Note {
    since: Instant,
    channel: Option<(ChannelId, String)>,
    place: Option<Backtrace>,
    /// An own buffer that other domains may have: its handles are counted from here on.
    pub(super) frozen: bool,
}

impl Notes {
    pub(super) fn of(leaks: Leaks) -> Option<Notes> {
        (leaks != Leaks::Off).then(|| Notes {
            with_place: leaks == Leaks::Backtrace,
            all: Mutex::default(),
            said: AtomicBool::new(false),
        })
    }

    pub(super) fn all(&self) -> MutexGuard<'_, HashMap<(PoolId, u32), Note>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a slot's buffer is in use from here on.
    #[cold]
    pub fn got(&self, pool: PoolId, slot: u32, channel: Option<(ChannelId, &str)>) {
        let note = Note {
            since: Instant::now(),
            channel: channel.map(|(id, name)| (id, name.to_owned())),
            place: self.with_place.then(Backtrace::force_capture),
            frozen: false,
        };
        self.all().insert((pool, slot), note);
    }

    /// Records that an own buffer is frozen, or can be written again.
    pub fn set_frozen(&self, pool: PoolId, slot: u32, frozen: bool) {
        if let Some(note) = self.all().get_mut(&(pool, slot)) {
            note.frozen = frozen;
        }
    }

    /// Removes the note of a buffer that was freed, or went to another domain.
    pub fn gone(&self, pool: PoolId, slot: u32) {
        self.all().remove(&(pool, slot));
    }
}

impl Note {
    pub(super) fn got(&self) -> Got {
        Got {
            age: self.since.elapsed(),
            channel: self.channel.clone(),
            backtrace: self.place.as_ref().map(ToString::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_what_liars_say_have_an_end() {
        let held = |slot| HeldBuffer {
            pool: PoolId(1),
            writer: DomainId(2),
            id: BufferId::new(PoolId(1), slot, 2),
            bytes: u64::MAX,
            handles: 1,
            got: None,
        };
        let report = LeakReport {
            domain: "one".to_owned(),
            held: vec![held(1), held(2)],
            own: Vec::new(),
        };
        let all = format!("2 buffers of others ({} bytes)", u64::MAX);
        assert!(report.to_string().contains(&all), "{report}");
    }
}
