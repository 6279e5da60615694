//! What goes along with an image from one component to the next.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What goes along with an image: in front of its bytes, as JSON behind its length.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Number of the image, from 0, and of all.
    pub number: u32,
    pub total: u32,
    /// Name of its file.
    pub name: String,
    /// Size in pixels, as far as it is known.
    pub width: u32,
    pub height: u32,
    /// Why the image is lost.
    pub fault: Option<String>,
}

impl Note {
    /// Says that the image is lost. Returns what is left of it.
    pub(crate) fn loses(&mut self, why: impl ToString) -> Vec<u8> {
        self.fault = Some(why.to_string());
        Vec::new()
    }

    pub(crate) fn write(&self) -> Result<Vec<u8>> {
        let text = serde_json::to_vec(self)?;
        let len = u32::try_from(text.len())?.to_le_bytes();
        Ok([&len[..], &text].concat())
    }

    /// Reads a note, and returns the bytes behind it.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Note, &[u8])> {
        let (len, rest) = bytes
            .split_first_chunk()
            .context("a message without a note")?;
        let len = usize::try_from(u32::from_le_bytes(*len))?;
        let (note, rest) = rest
            .split_at_checked(len)
            .context("a note that is cut off")?;
        Ok((serde_json::from_slice(note)?, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::Note;

    #[test]
    fn a_note_is_read_as_it_was_written_and_never_beyond_its_end() {
        let note = Note {
            number: 3,
            name: "a \"name\"".to_owned(),
            ..Note::default()
        };
        let bytes = [note.write().expect("a note"), vec![7; 5]].concat();
        let (read, rest) = Note::read(&bytes).expect("a note");
        assert_eq!((read.number, read.name, rest), (3, note.name, &[7; 5][..]));
        for len in 0..bytes.len() - 5 {
            Note::read(&bytes[..len]).expect_err("cut off");
        }
    }
}
