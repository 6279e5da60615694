//! The meta commands: a key and flags of one letter each, some with a word attached.

use super::words::{self, Wrong, key, number};

/// Kind of a meta command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaKind {
    /// `mg`
    Get,
    /// `ms`, with the number of bytes that follow
    Set(usize),
    /// `md`
    Delete,
    /// `ma`
    Arithmetic,
    /// `mn`
    Noop,
    /// `me`
    Debug,
}

/// A flag with its attached word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flag<'a> {
    /// Letter of the flag.
    pub letter: u8,
    /// Bytes that follow the letter.
    pub word: &'a [u8],
}

impl Flag<'_> {
    /// Returns the attached number.
    ///
    /// # Errors
    /// There is none.
    pub fn number<T: std::str::FromStr>(&self) -> Result<T, Wrong> {
        number(Some(self.word))
            .map_err(|_: Wrong| Wrong::line("CLIENT_ERROR bad token in command line format"))
    }
}

/// A meta command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta<'a> {
    /// Kind of the command.
    pub kind: MetaKind,
    /// Key as it came: perhaps in base64.
    pub key: &'a [u8],
    /// The flags' words.
    pub flags: &'a [u8],
}

impl<'a> Meta<'a> {
    /// Returns the flags, in their order.
    pub fn flags(&self) -> impl Iterator<Item = Flag<'a>> + use<'a> {
        words::words(self.flags).map(|word| Flag {
            letter: word[0],
            word: &word[1..],
        })
    }

    /// Returns whether a flag is there.
    #[must_use]
    pub fn has(&self, letter: u8) -> bool {
        self.flags().any(|flag| flag.letter == letter)
    }

    /// Returns a flag.
    #[must_use]
    pub fn flag(&self, letter: u8) -> Option<Flag<'a>> {
        self.flags().find(|flag| flag.letter == letter)
    }
}

pub(super) fn parse<'a>(name: &[u8], rest: &'a [u8]) -> Result<Meta<'a>, Wrong> {
    if name == b"mn" {
        return Ok(Meta {
            kind: MetaKind::Noop,
            key: b"",
            flags: b"",
        });
    }
    let (word, rest) = words::word(rest);
    let named = |word| key(Some(word)).map_err(|_: Wrong| Wrong::FORMAT);
    let (kind, rest) = match name {
        b"mg" => (MetaKind::Get, rest),
        b"md" => (MetaKind::Delete, rest),
        b"ma" => (MetaKind::Arithmetic, rest),
        b"me" => (MetaKind::Debug, rest),
        _ => {
            let (len, rest) = words::word(rest);
            let len = number(Some(len)).and_then(words::length)?;
            named(word).map_err(|wrong| Wrong {
                swallow: Some(len),
                ..wrong
            })?;
            (MetaKind::Set(len), rest)
        }
    };
    Ok(Meta {
        kind,
        key: named(word)?,
        flags: rest,
    })
}
