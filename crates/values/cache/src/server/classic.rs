//! Answers to the classic commands.

use super::report;
use super::shared::Shared;
use crate::parse::{self, Command, Put, words};
use crate::reply::Replies;
use crate::stats::Counts;
use crate::store::{Mode, NotCounted, Outcome};
use std::sync::atomic::Ordering;
use tranship_zcopy::Value;

/// Keys of a long line that are answered in one go.
const KEYS_AT_ONCE: usize = 256;

/// A [`Put`] whose value is on its way.
#[derive(Debug)]
pub(super) struct Owned {
    mode: Mode,
    key: Box<[u8]>,
    flags: u32,
    expiry: i64,
    noreply: bool,
}

impl Owned {
    pub(super) fn new(put: &Put<'_>) -> Owned {
        Owned {
            mode: put.mode,
            key: put.key.into(),
            flags: put.flags,
            expiry: put.expiry,
            noreply: put.noreply,
        }
    }

    /// Removes the old value of a `set` whose new value is refused: the client no longer wants the old value there.
    pub(super) fn forget(&self, shared: &Shared) {
        if self.mode == Mode::Set {
            shared.store.delete(&self.key, None);
        }
    }

    pub(super) fn noreply(&self) -> bool {
        self.noreply
    }

    pub(super) fn store(self, shared: &Shared, worker: usize, value: Value, replies: &mut Replies) {
        let counts = &shared.counts[worker];
        let store = &shared.store;
        let outcome = store.put(&self.key, value, self.flags, self.expiry, self.mode);
        if let Mode::Cas(_) = self.mode {
            match outcome {
                Outcome::Stored { .. } => Counts::bump(&counts.cas_hits, 1),
                Outcome::Exists => Counts::bump(&counts.cas_badval, 1),
                _ => Counts::bump(&counts.cas_misses, 1),
            }
        }
        if let Outcome::TooLarge = outcome {
            Counts::bump(&counts.store_too_large, 1);
        }
        if !self.noreply {
            replies.line(match outcome {
                Outcome::Stored { .. } => "STORED",
                Outcome::NotStored => "NOT_STORED",
                Outcome::Exists => "EXISTS",
                Outcome::NotFound => "NOT_FOUND",
                Outcome::TooLarge => "SERVER_ERROR object too large for cache",
                Outcome::NoMemory => "SERVER_ERROR out of memory storing object",
            });
        }
    }
}

/// Answers all but those that store a value or end the connection.
pub(super) fn answer(command: Command<'_>, shared: &Shared, worker: usize, replies: &mut Replies) {
    let counts = &shared.counts[worker];
    let store = &shared.store;
    let (line, noreply) = match command {
        Command::Get { keys, cas, touch } => {
            return get(keys, cas, touch, shared, counts, replies);
        }
        Command::Delete { key, noreply } => match store.delete(key, None) {
            Outcome::NotFound => {
                Counts::bump(&counts.delete_misses, 1);
                ("NOT_FOUND".to_owned(), noreply)
            }
            _ => {
                Counts::bump(&counts.delete_hits, 1);
                ("DELETED".to_owned(), noreply)
            }
        },
        Command::Arithmetic {
            key,
            delta,
            down,
            noreply,
        } => {
            let (hits, misses) = if down {
                (&counts.decr_hits, &counts.decr_misses)
            } else {
                (&counts.incr_hits, &counts.incr_misses)
            };
            let line = match store.arithmetic(key, delta, down, None, None) {
                Ok((new, _)) => {
                    Counts::bump(hits, 1);
                    new.to_string()
                }
                Err(NotCounted::NoNumber) => {
                    "CLIENT_ERROR cannot increment or decrement non-numeric value".to_owned()
                }
                Err(NotCounted::NoMemory) => "SERVER_ERROR out of memory".to_owned(),
                Err(NotCounted::NotFound) => {
                    Counts::bump(misses, 1);
                    "NOT_FOUND".to_owned()
                }
            };
            (line, noreply)
        }
        Command::Touch {
            key,
            expiry,
            noreply,
        } => {
            Counts::bump(&counts.cmd_touch, 1);
            if store.touch(key, expiry) {
                Counts::bump(&counts.touch_hits, 1);
                ("TOUCHED".to_owned(), noreply)
            } else {
                Counts::bump(&counts.touch_misses, 1);
                ("NOT_FOUND".to_owned(), noreply)
            }
        }
        Command::Flush { time, noreply } => {
            Counts::bump(&counts.cmd_flush, 1);
            shared.flush(time);
            ("OK".to_owned(), noreply)
        }
        Command::Verbosity { noreply } => ("OK".to_owned(), noreply),
        Command::Version => (format!("VERSION {}", report::VERSION), false),
        Command::Stats(which) => return report::stats(which, shared, replies),
        Command::Store(_) | Command::Meta(_) | Command::Quit => {
            unreachable!("answered by the connection")
        }
    };
    if !noreply {
        replies.line(&line);
    }
}

fn get(
    keys: &[u8],
    cas: bool,
    touch: Option<i64>,
    shared: &Shared,
    counts: &Counts,
    replies: &mut Replies,
) {
    values(words(keys), cas, touch, shared, counts, replies);
    replies.text(b"END\r\n");
}

/// A `get` with a line so long that its keys are answered as they come: of a key that cannot be one its client hears
/// behind values.
#[derive(Debug)]
pub(super) struct Keys {
    cas: bool,
    touch: Option<i64>,
}

/// End of a list of keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeysEnd {
    /// The keys end with their line.
    Line,
    /// The keys end with a word that is no key: the rest of such a long line is not awaited.
    Wrong,
}

impl Keys {
    /// Returns the keys of a line's beginning, and where its first key begins; none of a line that is no `get`.
    pub(super) fn begin(line: &[u8]) -> Option<(Keys, usize)> {
        let (cas, touch, rest) = parse::long_get(line)?;
        Some((Keys { cas, touch }, line.len() - rest.len()))
    }

    /// Returns the start of a line whose keys are answered like this.
    pub(super) fn beginning(&self) -> Vec<u8> {
        let name = match (self.touch.is_some(), self.cas) {
            (false, false) => "get",
            (false, true) => "gets",
            (true, false) => "gat",
            (true, true) => "gats",
        };
        let touch = self
            .touch
            .map_or(String::new(), |touch| format!(" {touch}"));
        format!("{name}{touch} ").into_bytes()
    }

    /// Answers the keys that have come. Returns how many bytes were used, and the end of the keys, if it has come.
    pub(super) fn answer(
        &self,
        input: &[u8],
        shared: &Shared,
        worker: usize,
        replies: &mut Replies,
    ) -> (usize, Option<KeysEnd>) {
        let end = input.iter().position(|byte| *byte == b'\n');
        let line = &input[..end.unwrap_or(input.len())];
        let line = line
            .strip_suffix(b"\r")
            .filter(|_| end.is_some())
            .unwrap_or(line);
        // The last key may still continue.
        let whole = match end {
            Some(_) => line.len(),
            None => line
                .iter()
                .rposition(|byte| *byte == b' ')
                .map_or(0, |at| at + 1),
        };
        let some: Vec<&[u8]> = words(&line[..whole]).take(KEYS_AT_ONCE).collect();
        let is_key = |word: &&&[u8]| parse::key(Some(word)).is_ok();
        let good = some.iter().take_while(is_key).count();
        values(
            some[..good].iter().copied(),
            self.cas,
            self.touch,
            shared,
            &shared.counts[worker],
            replies,
        );
        if good < some.len() || end.is_none() && line.len() - whole > parse::KEY {
            replies.line("CLIENT_ERROR bad command line format");
            return (0, Some(KeysEnd::Wrong));
        }
        let looked_at = match some.last() {
            Some(last) if good == KEYS_AT_ONCE => {
                last.as_ptr_range().end as usize - input.as_ptr() as usize
            }
            _ => whole,
        };
        match end {
            Some(end) if words(&line[looked_at..]).next().is_none() => {
                replies.text(b"END\r\n");
                (end + 1, Some(KeysEnd::Line))
            }
            _ => (looked_at, None),
        }
    }
}

fn values<'a>(
    keys: impl Iterator<Item = &'a [u8]>,
    cas: bool,
    touch: Option<i64>,
    shared: &Shared,
    counts: &Counts,
    replies: &mut Replies,
) {
    let (mut asked, mut hits) = (0, 0);
    for key in keys {
        asked += 1;
        let Some(item) = shared.store.get(key, touch) else {
            continue;
        };
        hits += 1;
        let number = cas.then_some(item.cas);
        replies.value_line(key, item.flags, item.value.len(), number);
        replies.value(item.value);
    }
    Counts::bump(&counts.cmd_get, asked);
    Counts::bump(&counts.get_hits, hits);
    Counts::bump(&counts.get_misses, asked - hits);
    if touch.is_some() {
        Counts::bump(&counts.cmd_touch, asked);
        Counts::bump(&counts.touch_hits, hits);
    }
}

impl Shared {
    /// Removes everything at a time: a number of seconds from now, or a date.
    fn flush(&self, time: i64) {
        let (now, at) = self.store.moment(time);
        // Relaxed: nothing else depends on it.
        self.flush_at
            .store(if at > now { at } else { 0 }, Ordering::Relaxed);
        if at == now {
            self.store.clear();
        } else if at < now {
            self.store.clear_unused_since(at);
        }
    }

    pub(super) fn flush_if_due(&self) {
        // Relaxed: a thread that sees the time flushes; a second flush does no harm.
        let at = self.flush_at.load(Ordering::Relaxed);
        if at != 0 && i64::from(self.store.now()) >= at {
            self.flush_at.store(0, Ordering::Relaxed);
            self.store.clear();
        }
    }
}
