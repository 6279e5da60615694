//! The classic commands.

use super::command::{Command, Put};
use super::words::{KEY, Wrong, is_control, key, length, number, word, words};
use crate::store::Mode;

pub(super) fn parse<'a>(name: &[u8], rest: &'a [u8]) -> Result<Command<'a>, Wrong> {
    understand(name, rest).map_err(|wrong| match wrong {
        // A client that wants no answer would take it for the next command's. An unknown command has no such word.
        Wrong { answer, swallow } if answer != Wrong::UNKNOWN.answer && is_quiet(rest) => Wrong {
            answer: "",
            swallow,
        },
        other => other,
    })
}

fn is_quiet(rest: &[u8]) -> bool {
    noreply(
        rest.rsplit(|byte| *byte == b' ')
            .find(|word| !word.is_empty()),
    )
}

fn understand<'a>(name: &[u8], rest: &'a [u8]) -> Result<Command<'a>, Wrong> {
    let mut words = words(rest);
    match name {
        b"get" | b"gets" => keys(rest, name == b"gets", None),
        b"gat" | b"gats" => {
            let (expiry, rest) = word(rest);
            let expiry = number(Some(expiry).filter(|word| !word.is_empty()))?;
            keys(rest, name == b"gats", Some(expiry))
        }
        b"set" => put(Mode::Set, rest),
        b"add" => put(Mode::Add, rest),
        b"replace" => put(Mode::Replace, rest),
        b"append" => put(Mode::Append(None), rest),
        b"prepend" => put(Mode::Prepend(None), rest),
        b"cas" => put(Mode::Cas(0), rest),
        b"delete" => {
            let key = key(words.next())?;
            // An old form has a time of 0.
            let next = words
                .next()
                .filter(|word| *word != b"0")
                .or_else(|| words.next());
            match next {
                None => Ok(Command::Delete {
                    key,
                    noreply: false,
                }),
                Some(b"noreply") => Ok(Command::Delete { key, noreply: true }),
                Some(_) => Err(Wrong::line(
                    "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
                )),
            }
        }
        b"incr" | b"decr" => {
            let key = key(words.next())?;
            let delta = words.next().ok_or(Wrong::UNKNOWN)?;
            let delta = number(Some(delta))
                .map_err(|_: Wrong| Wrong::line("CLIENT_ERROR invalid numeric delta argument"))?;
            Ok(Command::Arithmetic {
                key,
                delta,
                down: name == b"decr",
                noreply: noreply(words.next()),
            })
        }
        b"touch" => {
            let key = key(words.next())?;
            let expiry = words.next().ok_or(Wrong::UNKNOWN)?;
            let expiry = number(Some(expiry))
                .map_err(|_: Wrong| Wrong::line("CLIENT_ERROR invalid exptime argument"))?;
            Ok(Command::Touch {
                key,
                expiry,
                noreply: noreply(words.next()),
            })
        }
        b"flush_all" => {
            let first = words.next();
            let time = match first {
                None | Some(b"noreply") => 0,
                time => number(time)
                    .map_err(|_: Wrong| Wrong::line("CLIENT_ERROR invalid exptime argument"))?,
            };
            Ok(Command::Flush {
                time,
                noreply: noreply(first) || noreply(words.next()),
            })
        }
        b"stats" => Ok(Command::Stats(words.next().unwrap_or_default())),
        b"version" => Ok(Command::Version),
        b"verbosity" => {
            let (first, second) = (words.next(), words.next());
            if first.is_none() || words.next().is_some() {
                return Err(Wrong::UNKNOWN);
            }
            if !noreply(first) {
                number::<u32>(first)?;
            }
            Ok(Command::Verbosity {
                noreply: noreply(first) || noreply(second),
            })
        }
        b"quit" => Ok(Command::Quit),
        _ => Err(Wrong::UNKNOWN),
    }
}

/// Splits the beginning of a line that asks for keys: whether with numbers, a new time to live, and the rest.
pub fn long_get(line: &[u8]) -> Option<(bool, Option<i64>, &[u8])> {
    let (name, rest) = word(line);
    match name {
        b"get" | b"gets" => Some((name == b"gets", None, rest)),
        b"gat" | b"gats" => {
            let (expiry, rest) = word(rest);
            Some((name == b"gats", Some(number(Some(expiry)).ok()?), rest))
        }
        _ => None,
    }
}

fn keys(rest: &[u8], cas: bool, touch: Option<i64>) -> Result<Command<'_>, Wrong> {
    if rest.iter().all(|byte| *byte == b' ') {
        return Err(Wrong::UNKNOWN);
    }
    // All in one pass; only a long line can have a key that is too long.
    if rest
        .iter()
        .fold(false, |wrong, byte| wrong | is_control(*byte))
    {
        return Err(Wrong::FORMAT);
    }
    if rest.len() > KEY {
        words(rest).try_for_each(|word| key(Some(word)).map(drop))?;
    }
    Ok(Command::Get {
        keys: rest,
        cas,
        touch,
    })
}

fn put(mode: Mode, rest: &[u8]) -> Result<Command<'_>, Wrong> {
    let mut words = words(rest);
    let name = words.next().ok_or(Wrong::UNKNOWN)?;
    let (flags, expiry, len) = (words.next(), words.next(), words.next());
    if len.is_none() {
        return Err(Wrong::UNKNOWN);
    }
    // A value that follows is swallowed if its length is known, so that it is not taken for commands.
    let len = length(number(len)?)?;
    let swallow = |wrong: Wrong| Wrong {
        swallow: Some(len),
        ..wrong
    };
    let key = key(Some(name)).map_err(swallow)?;
    let flags = number(flags).map_err(swallow)?;
    let expiry = number(expiry).map_err(swallow)?;
    let mode = match mode {
        // Without its last word the line is no command, and neither are the bytes after it.
        Mode::Cas(_) => {
            Mode::Cas(number(Some(words.next().ok_or(Wrong::UNKNOWN)?)).map_err(swallow)?)
        }
        other => other,
    };
    Ok(Command::Store(Put {
        mode,
        key,
        flags,
        expiry,
        len,
        noreply: noreply(words.next()),
    }))
}

fn noreply(word: Option<&[u8]>) -> bool {
    word == Some(b"noreply")
}
