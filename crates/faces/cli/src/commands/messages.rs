//! Messages that commands send, and messages as lines: what `topic echo` and `queue peek` show of them.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use tranship::Message;
use tranship_proto::shown;

/// Most bytes of a message that a command sends.
pub(super) const MOST: u64 = 1 << 30;

/// Returns the message that a command line has: a text, or a file's content.
pub(super) fn given(text: Option<&str>, file: Option<&Path>) -> Result<Option<Vec<u8>>> {
    match (text, file) {
        (Some(text), _) => Ok(Some(text.into())),
        (None, Some(path)) => {
            let reading = || format!("reading {}", path.display());
            let file = File::open(path).with_context(reading)?;
            whole(file).with_context(reading).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// Reads a message to its end.
pub(super) fn whole(from: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(
        bytes.len() as u64 <= MOST,
        "it has more than {MOST} bytes, the most that this command sends as one message"
    );
    Ok(bytes)
}

/// Returns a message's first bytes, without copying the rest.
pub(super) fn first(message: &Message, most: usize) -> Vec<u8> {
    let mut start = Start(Vec::new(), most);
    // Writing ends with an error when there is enough.
    let _ = message.write_to(&mut start);
    start.0
}

/// Takes the beginning of what is written to it, and then no more.
struct Start(Vec<u8>, usize);

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = (self.1 - self.0.len()).min(bytes.len());
        self.0.extend(bytes.iter().take(room));
        Ok(room)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a line: text as text, other bytes as hexadecimal numbers.
pub(super) fn line(word: u64, len: usize, bytes: &[u8]) -> String {
    let cut = if bytes.len() < len { "..." } else { "" };
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|text| !text.chars().any(|c| c.is_control() && !c.is_whitespace()));
    let said = match text {
        Some(text) => format!("{:?}", shown(text)),
        None => hex(bytes),
    };
    format!("word {word}, {len} bytes: {said}{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_the_rest_is_numbers() {
        assert_eq!(line(7, 5, b"hello"), "word 7, 5 bytes: \"hello\"");
        assert_eq!(line(0, 900, b"hel"), "word 0, 900 bytes: \"hel\"...");
        assert_eq!(line(0, 2, &[0, 255]), "word 0, 2 bytes: 00ff");
        assert!(!line(0, 1, b"\x1b").contains('\x1b'));
    }
}
