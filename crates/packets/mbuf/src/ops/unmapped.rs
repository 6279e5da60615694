//! Conversion of bytes in memory to pieces of files, which are not mapped here, and back.
//!
//! [`Chain::make_readable`] converts all pieces back, at any cost.

use super::replace;
use crate::chain::Chain;
use crate::counts::Routine;
use crate::error::Error;
use crate::flags::Flags;
use crate::seg::Seg;
use crate::size::{MHLEN, MLEN};
use crate::zones::How;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

impl Chain {
    /// Reads pieces of files into mbufs, if each fits into one, so that the pieces' storage is released
    /// (`mb_unmapped_compress`). Returns their number. Pieces with further references stay, because no storage would be
    /// released (the traditional `EBUSY`).
    ///
    /// On failure the bytes are unchanged, but some pieces may be read already.
    ///
    /// # Errors
    /// `NoBuffers` when there is no memory, or a limit is reached; `File` where a piece of a file cannot be read. It
    /// blocks if the file does.
    #[doc(alias = "mb_unmapped_compress")]
    pub fn compress_unmapped(&mut self) -> Result<usize, Error> {
        let (mut previous, mut at, mut compressed) = (None::<Seg>, Some(self.first()), 0);
        while let Some(seg) = at {
            let room = if seg.has(Flags::PKTHDR) { MHLEN } else { MLEN };
            previous = Some(
                if seg.has(Flags::EXTPG) && seg.references() == 1 && seg.len() <= room {
                    let new = self.private_copy(seg)?;
                    compressed += 1;
                    replace(self, previous, seg, new)
                } else {
                    seg
                },
            );
            at = previous.and_then(Seg::next);
        }
        Ok(compressed)
    }

    /// Writes all bytes into a file at `offset`, and becomes one piece of it, with the same header
    /// (`mb_mapped_to_unmapped`). A packet that waits for long then takes no memory, and can be sent on with
    /// `sendfile`. The file may be a memfd.
    ///
    /// No piece of the chain may already be at the written place. On failure the chain is as before, and the file's
    /// bytes at `offset` are undefined. It blocks if the file does.
    ///
    /// # Errors
    /// `TooLong` for more than a piece of a file can hold; `File` where it cannot be written; `NoBuffers` when there is
    /// no memory, or a limit is reached.
    #[doc(alias = "mb_mapped_to_unmapped")]
    pub fn move_to_file(&mut self, file: Arc<File>, offset: u64) -> Result<(), Error> {
        self.routine(Routine::Unmap);
        let (flags, kind, total) = (self.first().flags(), self.kind(), self.len());
        if offset.checked_add(total as u64).is_none() {
            let limit = usize::try_from(u64::MAX - offset).unwrap_or(usize::MAX);
            return Err(Error::TooLong {
                wanted: total,
                limit,
            });
        }
        let new = self
            .inner()
            .mini(How::NoWait, kind, flags & Flags::PKTHDR)?;
        let mut new = Chain::new(new);
        let mut done = 0;
        let mut bounce = [0; 4096];
        for seg in self.segs() {
            for start in (0..seg.len()).step_by(bounce.len()) {
                let part = &mut bounce[..(seg.len() - start).min(4096)];
                seg.read(start, part)?;
                let at = offset + done;
                file.write_all_at(part, at).map_err(|source| Error::File {
                    offset: at,
                    len: part.len(),
                    source,
                })?;
                done += part.len() as u64;
            }
        }
        new.attach_file(file, offset, total)
            .map_err(|(error, _)| error)?;
        self.become_copy(new);
        Ok(())
    }
}
