//! Answers to the meta commands. Flags that are returned come back in the order in which they were asked for.

use super::shared::Shared;
use crate::parse::{Flag, KEY, Meta, MetaKind, Wrong};
use crate::reply::Replies;
use crate::stats::Counts;
use crate::store::{Item, Mode, NotCounted, Outcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tranship_zcopy::Value;

type Answer<T> = Result<T, &'static str>;

const INVALID: &str = "CLIENT_ERROR invalid flag";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const TOKEN: &str = "CLIENT_ERROR bad token in command line format";

/// An `ms` whose value is on its way.
#[derive(Debug)]
pub(super) struct OwnedSet {
    key: Box<[u8]>,
    written: Box<[u8]>,
    flags: Box<[u8]>,
    mode: Mode,
    /// The number it gets.
    number: Option<u64>,
    /// If the key has no value, store one with this time to live.
    vivify: Option<i64>,
    client: u32,
    expiry: i64,
}

/// Returns the key itself, if it is written in base64, too.
fn key(meta: &Meta<'_>) -> Answer<Box<[u8]>> {
    if !meta.has(b'b') {
        return Ok(meta.key.into());
    }
    let key = STANDARD
        .decode(meta.key)
        .map_err(|_: base64::DecodeError| "CLIENT_ERROR error decoding key")?;
    if key.is_empty() || key.len() > KEY {
        return Err("CLIENT_ERROR bad command line format");
    }
    Ok(key.into())
}

fn number<T: std::str::FromStr>(meta: &Meta<'_>, letter: u8) -> Answer<Option<T>> {
    let wrong = match letter {
        b'D' => "CLIENT_ERROR invalid numeric delta value",
        b'J' => "CLIENT_ERROR invalid numeric initial value",
        _ => TOKEN,
    };
    meta.flag(letter)
        .map(|flag| flag.number().map_err(|_: Wrong| wrong))
        .transpose()
}

/// All flags. Each command takes each of them, and heeds those that it has a meaning for: `P` and `L` are for proxies
/// alone.
const FLAGS: &[u8] = b"bcfhklqstuvxCDEFIJLMNOPRT";
/// The longest opaque, bytes.
const OPAQUE: usize = 32;

/// Checks the flags, whatever the command. Each letter counts once, so no line asks for more flags than there are
/// letters.
fn check(meta: &Meta<'_>) -> Answer<()> {
    let mut seen = 0u64;
    for flag in meta.flags() {
        let at = FLAGS.iter().position(|letter| *letter == flag.letter);
        let bit = 1 << at.ok_or(INVALID)?;
        if seen & bit != 0 {
            return Err(DUPLICATE);
        }
        seen |= bit;
        if flag.letter == b'O' && flag.word.len() > OPAQUE {
            return Err("CLIENT_ERROR opaque token too long");
        }
    }
    for letter in [b'C', b'D', b'E', b'J'] {
        number::<u64>(meta, letter)?;
    }
    for letter in [b'N', b'R', b'T'] {
        number::<i64>(meta, letter)?;
    }
    number::<u32>(meta, b'F').map(drop)
}

impl OwnedSet {
    pub(super) fn new(meta: &Meta<'_>) -> Answer<OwnedSet> {
        check(meta)?;
        let cas: Option<u64> = number(meta, b'C')?;
        let numbered = |mode| match cas {
            // An older number than the stored one: with I, the value is stored all the same, and marked as stale.
            Some(cas) if meta.has(b'I') => Mode::CasOrStale(cas),
            Some(cas) => Mode::Cas(cas),
            None => mode,
        };
        let mode = match meta.flag(b'M').map(|flag| flag.word.first().copied()) {
            None | Some(Some(b'S' | b's')) => numbered(Mode::Set),
            Some(Some(b'R' | b'r')) => numbered(Mode::Replace),
            // A missing value has no number: asked for or not, it is the same.
            Some(Some(b'E' | b'e')) => Mode::Add,
            Some(Some(b'A' | b'a')) => Mode::Append(cas),
            Some(Some(b'P' | b'p')) => Mode::Prepend(cas),
            Some(_) => return Err("CLIENT_ERROR invalid mode for ms M token"),
        };
        Ok(OwnedSet {
            key: key(meta)?,
            written: meta.key.into(),
            flags: meta.flags.into(),
            mode,
            number: number(meta, b'E')?,
            vivify: number(meta, b'N')?,
            client: number(meta, b'F')?.unwrap_or(0),
            expiry: number(meta, b'T')?.unwrap_or(0),
        })
    }

    /// Removes the old value of a command whose new value is refused and must replace it: the client no longer wants
    /// the old value there.
    pub(super) fn forget(&self, shared: &Shared) {
        if self.mode == Mode::Set {
            shared.store.delete(&self.key, None);
        }
    }

    pub(super) fn store(self, shared: &Shared, worker: usize, value: Value, replies: &mut Replies) {
        let meta = Meta {
            kind: MetaKind::Set(0),
            key: &self.written,
            flags: &self.flags,
        };
        let store = &shared.store;
        let put = |mode, expiry| {
            store.put_as(
                &self.key,
                value.clone(),
                self.client,
                expiry,
                mode,
                self.number,
            )
        };
        let mut outcome = put(self.mode, self.expiry);
        if let (Mode::Append(_) | Mode::Prepend(_), Some(expiry)) = (self.mode, self.vivify) {
            // Another client may store the value, or delete it, in between.
            while let Outcome::NotStored = outcome {
                outcome = match put(Mode::Add, expiry) {
                    Outcome::NotStored => put(self.mode, expiry),
                    stored => stored,
                };
            }
        }
        let counts = &shared.counts[worker];
        if let Mode::Cas(_) | Mode::CasOrStale(_) = self.mode {
            match outcome {
                Outcome::Stored { .. } => Counts::bump(&counts.cas_hits, 1),
                Outcome::Exists => Counts::bump(&counts.cas_badval, 1),
                _ => Counts::bump(&counts.cas_misses, 1),
            }
        }
        let sent = value.len();
        let (code, cas, len) = match outcome {
            Outcome::Stored { cas, len } => ("HD", cas, len),
            Outcome::NotStored => ("NS", 0, sent),
            Outcome::Exists => ("EX", 0, sent),
            Outcome::NotFound => ("NF", 0, sent),
            Outcome::TooLarge => {
                Counts::bump(&counts.store_too_large, 1);
                return replies.line("SERVER_ERROR object too large for cache");
            }
            Outcome::NoMemory => {
                return replies.line("SERVER_ERROR out of memory storing object");
            }
        };
        if code == "HD" && meta.has(b'q') {
            return;
        }
        let mut line = code.as_bytes().to_vec();
        for flag in meta.flags() {
            match flag.letter {
                b'c' => push(&mut line, b'c', cas),
                b's' => push(&mut line, b's', len as u64),
                _ => common(&mut line, flag, &meta),
            }
        }
        end(line, replies);
    }
}

/// Answers all but `ms`.
pub(super) fn answer(meta: &Meta<'_>, shared: &Shared, worker: usize, replies: &mut Replies) {
    let done = match meta.kind {
        MetaKind::Noop => {
            replies.line("MN");
            Ok(())
        }
        MetaKind::Get => get(meta, shared, &shared.counts[worker], replies),
        MetaKind::Delete => delete(meta, shared, &shared.counts[worker], replies),
        MetaKind::Arithmetic => arithmetic(meta, shared, &shared.counts[worker], replies),
        MetaKind::Debug => debug(meta, shared, replies),
        MetaKind::Set(_) => unreachable!("answered when its value is there"),
    };
    if let Err(answer) = done {
        replies.line(answer);
    }
}

fn get(meta: &Meta<'_>, shared: &Shared, counts: &Counts, replies: &mut Replies) -> Answer<()> {
    check(meta)?;
    let key = key(meta)?;
    let touch: Option<i64> = number(meta, b'T')?;
    let vivify: Option<i64> = number(meta, b'N')?;
    let renew: Option<i64> = number(meta, b'R')?;
    let known: Option<u64> = number(meta, b'C')?;
    let store = &shared.store;
    Counts::bump(&counts.cmd_get, 1);
    let won;
    let found = match meta.has(b'u') {
        true => store.look(&key, touch),
        false => store.get(&key, touch),
    };
    if touch.is_some() {
        Counts::bump(&counts.cmd_touch, 1);
        let count = match found {
            Some(_) => &counts.touch_hits,
            None => &counts.touch_misses,
        };
        Counts::bump(count, 1);
    }
    let item = match (found, vivify) {
        (Some(item), _) => {
            Counts::bump(&counts.get_hits, 1);
            let due = item.stale || renew.is_some_and(|renew| item.ttl >= 0 && item.ttl < renew);
            // A value that another client is renewing is reported so.
            won = due && !item.won && store.win(&key);
            item
        }
        (None, Some(expiry)) => {
            Counts::bump(&counts.get_misses, 1);
            let Some(value) = store.reserve(0) else {
                return Err("SERVER_ERROR out of memory storing object");
            };
            store.put_as(
                &key,
                value.freeze(),
                0,
                expiry,
                Mode::Add,
                number(meta, b'E')?,
            );
            won = store.win(&key);
            match store.peek(&key) {
                Some(item) => Item {
                    won: !won && item.won,
                    ..item
                },
                None => return Err("SERVER_ERROR out of memory storing object"),
            }
        }
        (None, None) => {
            Counts::bump(&counts.get_misses, 1);
            if !meta.has(b'q') {
                let mut line = b"EN".to_vec();
                for flag in meta.flags() {
                    common(&mut line, flag, meta);
                }
                end(line, replies);
            }
            return Ok(());
        }
    };
    let len = item.value.len();
    // A value that the client has already is not sent again.
    let with_value = meta.has(b'v') && known != Some(item.cas);
    let mut line = if with_value {
        format!("VA {len}").into_bytes()
    } else {
        b"HD".to_vec()
    };
    for flag in meta.flags() {
        match flag.letter {
            b'c' => push(&mut line, b'c', item.cas),
            b'f' => push(&mut line, b'f', item.flags),
            // The mark as it was before this read.
            b'h' => push(&mut line, b'h', u8::from(item.fetched)),
            b'l' => push(&mut line, b'l', item.idle),
            b's' => push(&mut line, b's', len),
            b't' => push(&mut line, b't', item.ttl),
            _ => common(&mut line, flag, meta),
        }
    }
    if won {
        line.extend_from_slice(b" W");
    }
    if item.stale {
        line.extend_from_slice(b" X");
    }
    if item.won && !won {
        line.extend_from_slice(b" Z");
    }
    end(line, replies);
    if with_value {
        replies.value(item.value);
    }
    Ok(())
}

fn delete(meta: &Meta<'_>, shared: &Shared, counts: &Counts, replies: &mut Replies) -> Answer<()> {
    check(meta)?;
    let key = key(meta)?;
    let cas: Option<u64> = number(meta, b'C')?;
    let new: Option<u64> = number(meta, b'E')?;
    let expiry: Option<i64> = number(meta, b'T')?;
    let store = &shared.store;
    let is_stale = meta.has(b'I');
    let outcome = if meta.has(b'x') {
        let flags = number(meta, b'F')?.unwrap_or(0);
        store.empty(&key, cas, flags, expiry.unwrap_or(0), new, is_stale)
    } else if is_stale {
        store.invalidate(&key, cas, expiry, new)
    } else {
        store.delete(&key, cas)
    };
    let code = match outcome {
        Outcome::Stored { .. } => "HD",
        Outcome::Exists => "EX",
        Outcome::NoMemory => return Err("SERVER_ERROR out of memory"),
        _ => "NF",
    };
    let count = if code == "HD" {
        &counts.delete_hits
    } else {
        &counts.delete_misses
    };
    Counts::bump(count, 1);
    if meta.has(b'q') && code == "HD" {
        return Ok(());
    }
    let mut line = code.as_bytes().to_vec();
    for flag in meta.flags() {
        common(&mut line, flag, meta);
    }
    end(line, replies);
    Ok(())
}

fn arithmetic(
    meta: &Meta<'_>,
    shared: &Shared,
    counts: &Counts,
    replies: &mut Replies,
) -> Answer<()> {
    check(meta)?;
    let key = key(meta)?;
    let delta = number(meta, b'D')?.unwrap_or(1);
    let first: u64 = number(meta, b'J')?.unwrap_or(0);
    let cas: Option<u64> = number(meta, b'C')?;
    let renumber: Option<u64> = number(meta, b'E')?;
    let vivify: Option<i64> = number(meta, b'N')?;
    let touch: Option<i64> = number(meta, b'T')?;
    let down = match meta.flag(b'M').map(|flag| flag.word.first().copied()) {
        None | Some(Some(b'I' | b'i' | b'+')) => false,
        Some(Some(b'D' | b'd' | b'-')) => true,
        Some(_) => return Err("CLIENT_ERROR invalid mode for ma M token"),
    };
    let store = &shared.store;
    let (hits, misses) = if down {
        (&counts.decr_hits, &counts.decr_misses)
    } else {
        (&counts.incr_hits, &counts.incr_misses)
    };
    let (new, outcome) = match store.arithmetic(&key, delta, down, cas, renumber) {
        Err(NotCounted::NoNumber) => {
            return Err("CLIENT_ERROR cannot increment or decrement non-numeric value");
        }
        Err(NotCounted::NoMemory) => return Err("SERVER_ERROR out of memory"),
        Err(NotCounted::NotFound) => match vivify {
            Some(expiry) => {
                let text = first.to_string();
                let Some(mut value) = store.reserve(text.len()) else {
                    return Err("SERVER_ERROR out of memory storing object");
                };
                value[..text.len()].copy_from_slice(text.as_bytes());
                let value = value.freeze();
                (
                    first,
                    store.put_as(&key, value, 0, expiry, Mode::Add, renumber),
                )
            }
            None => (0, Outcome::NotFound),
        },
        Ok(done) => {
            if let Some(expiry) = touch {
                store.touch(&key, expiry);
            }
            done
        }
    };
    let (code, number) = match outcome {
        Outcome::Stored { cas, .. } => {
            Counts::bump(hits, 1);
            ("HD", cas)
        }
        Outcome::Exists => ("EX", 0),
        Outcome::NotFound => {
            Counts::bump(misses, 1);
            ("NF", 0)
        }
        _ => ("NS", 0),
    };
    if meta.has(b'q') && code == "HD" {
        return Ok(());
    }
    let text = new.to_string();
    let with_value = code == "HD" && meta.has(b'v');
    let mut line = if with_value {
        format!("VA {}", text.len()).into_bytes()
    } else {
        code.as_bytes().to_vec()
    };
    for flag in meta.flags() {
        match flag.letter {
            b'c' => push(&mut line, b'c', number),
            b't' => push(
                &mut line,
                b't',
                store.peek(&key).map_or(-1, |item| item.ttl),
            ),
            _ => common(&mut line, flag, meta),
        }
    }
    end(line, replies);
    if with_value {
        replies.line(&text);
    }
    Ok(())
}

fn debug(meta: &Meta<'_>, shared: &Shared, replies: &mut Replies) -> Answer<()> {
    let key = key(meta)?;
    match shared.store.peek(&key) {
        None => replies.line("EN"),
        Some(item) => {
            let mut line = b"ME ".to_vec();
            line.extend_from_slice(meta.key);
            line.extend_from_slice(
                format!(
                    " exp={} la={} cas={} fetch={} cls=1 size={}",
                    item.ttl,
                    item.idle,
                    item.cas,
                    if item.fetched { "yes" } else { "no" },
                    item.value.len() + key.len()
                )
                .as_bytes(),
            );
            end(line, replies);
        }
    }
    Ok(())
}

/// Flags that every command returns.
fn common(line: &mut Vec<u8>, flag: Flag<'_>, meta: &Meta<'_>) {
    match flag.letter {
        b'k' => {
            line.extend_from_slice(b" k");
            line.extend_from_slice(meta.key);
            if meta.has(b'b') {
                line.extend_from_slice(b" b");
            }
        }
        b'O' => {
            line.extend_from_slice(b" O");
            line.extend_from_slice(flag.word);
        }
        _ => {}
    }
}

fn push(line: &mut Vec<u8>, letter: u8, value: impl std::fmt::Display) {
    line.extend_from_slice(format!(" {}{value}", char::from(letter)).as_bytes());
}

fn end(mut line: Vec<u8>, replies: &mut Replies) {
    line.extend_from_slice(b"\r\n");
    replies.text(&line);
}
