//! Words of a line, and the errors in them.

/// The longest key, bytes.
pub const KEY: usize = 250;

/// The longest value that may be announced, with its line end 2 GiB less a byte, as for memcached.
const LONGEST: usize = i32::MAX as usize - 2;

/// Error of a line, as the client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The answer's line, without its end; empty: none.
    pub answer: &'static str,
    /// Number of bytes before a line end that follow and are no command.
    pub swallow: Option<usize>,
}

impl Wrong {
    pub(super) const UNKNOWN: Wrong = Wrong::line("ERROR");
    pub(super) const FORMAT: Wrong = Wrong::line("CLIENT_ERROR bad command line format");

    pub(super) const fn line(answer: &'static str) -> Wrong {
        Wrong {
            answer,
            swallow: None,
        }
    }
}

/// Returns the first word and the rest.
pub(super) fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let start = line
        .iter()
        .position(|byte| *byte != b' ')
        .unwrap_or(line.len());
    let line = &line[start..];
    let end = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    (&line[..end], &line[end..])
}

/// Returns the words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
}

pub(super) fn number<T: std::str::FromStr>(word: Option<&[u8]>) -> Result<T, Wrong> {
    word.and_then(|word| std::str::from_utf8(word).ok())
        .and_then(|word| word.parse().ok())
        .ok_or(Wrong::FORMAT)
}

/// Checks the length of a value that follows. A value that no server takes is not awaited either.
pub(super) fn length(length: i64) -> Result<usize, Wrong> {
    usize::try_from(length)
        .ok()
        .filter(|len| *len <= LONGEST)
        .ok_or(Wrong::FORMAT)
}

/// Returns whether no key may have it.
pub(super) fn is_control(byte: u8) -> bool {
    byte < b' ' || byte == 127
}

/// Returns a word as a key, if it may be used.
///
/// # Errors
/// A key that is empty, too long, or has a control character.
pub fn key(word: Option<&[u8]>) -> Result<&[u8], Wrong> {
    let word = word.ok_or(Wrong::UNKNOWN)?;
    let wrong = |byte: &u8| *byte == b' ' || is_control(*byte);
    if word.is_empty() || word.len() > KEY || word.iter().any(wrong) {
        return Err(Wrong::FORMAT);
    }
    Ok(word)
}
