//! Frames on a byte stream: place in the input and length, 8 bytes each, then the bytes.

use crate::demo::consumers::Work;
use anyhow::{Context, Result, bail};
use std::io::{ErrorKind, Read, Write};

/// A longer frame is a mistake.
const LONGEST: usize = 1 << 30;

pub(super) fn write(to: &mut impl Write, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&offset.to_le_bytes());
    head[8..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    to.write_all(&head)?;
    Ok(to.write_all(bytes)?)
}

/// Hands every frame to the work until the stream ends. `after_each` hears the frame's length and how many bytes of it
/// were copied on the way here.
pub(crate) fn consume(
    mut from: impl Read,
    work: &mut dyn Work,
    mut after_each: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    let mut bytes = Vec::new();
    while let Some((offset, len)) = head(&mut from)? {
        // Grown once; not cleared, so that no time goes into zeros.
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        from.read_exact(&mut bytes[..len])
            .context("reading a frame")?;
        work.frame(offset, &bytes[..len])?;
        // Into the kernel and out again.
        after_each(len, 2 * len)?;
    }
    Ok(())
}

/// Returns the next head; nothing at the end of the stream.
fn head(from: &mut impl Read) -> Result<Option<(u64, usize)>> {
    let mut words = [[0u8; 8]; 2];
    match from.read_exact(words.as_flattened_mut()) {
        Ok(()) => {}
        Err(end) if end.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error).context("reading a frame's head"),
    }
    let len = usize::try_from(u64::from_le_bytes(words[1])).unwrap_or(usize::MAX);
    if len > LONGEST {
        bail!("a frame of {len} bytes, at most {LONGEST}");
    }
    Ok(Some((u64::from_le_bytes(words[0]), len)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::consumers::Outcome;

    struct Collect(Vec<(u64, Vec<u8>)>);

    impl Work for Collect {
        fn frame(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
            self.0.push((offset, bytes.to_vec()));
            Ok(())
        }

        fn outcome(&mut self) -> Result<Outcome> {
            bail!("not asked for")
        }
    }

    #[test]
    fn frames_survive_the_way_and_a_cut_one_is_an_error() {
        let frames = [(0, vec![1; 300]), (300, vec![2; 5]), (305, vec![])];
        let mut stream = Vec::new();
        for (offset, bytes) in &frames {
            write(&mut stream, *offset, bytes).expect("writing");
        }
        let mut seen = Collect(Vec::new());
        consume(stream.as_slice(), &mut seen, |_, _| Ok(())).expect("consuming");
        assert_eq!(seen.0, frames);
        let cut = &stream[..stream.len() - 17];
        assert!(consume(cut, &mut Collect(Vec::new()), |_, _| Ok(())).is_err());
    }

    #[test]
    fn a_huge_length_is_an_error() {
        let mut stream = vec![0; 8];
        stream.extend(u64::MAX.to_le_bytes());
        assert!(consume(stream.as_slice(), &mut Collect(Vec::new()), |_, _| Ok(())).is_err());
    }
}
