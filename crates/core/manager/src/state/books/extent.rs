//! Shared memory in use: its purpose and its maker.
//!
//! A client's memory is checked before it is taken: all its blocks are present, so its size is the size that the kernel
//! counts. Memory without a descriptor here may still be mapped by both ends of a channel. It is counted until the
//! channel is over.

use std::collections::BTreeMap;

/// The purpose of shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    /// Buffers: chunks of pools.
    Data,
    /// Slot tables and counters of pools.
    Tables,
    /// Halves of channels.
    Rings,
    /// The pages that the manager writes for each domain.
    ControlPages,
}

const KINDS: usize = 4;

pub(crate) type Sums = [u64; KINDS];

/// The maker's own number. A domain's memory may outlast the domain, whose id may then belong to another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Maker(u64);

pub(crate) const MANAGER: Maker = Maker(0);

/// One memfd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub by: Maker,
    pub of: For,
    pub bytes: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    all: Sums,
    makers: BTreeMap<Maker, Sums>,
    last: u64,
}

impl Extent {
    pub fn maker(&mut self) -> Maker {
        self.last += 1;
        Maker(self.last)
    }

    pub fn sum(&self, of: For) -> u64 {
        self.all[of as usize]
    }

    pub fn made_by(&self, maker: Maker, of: For) -> u64 {
        self.makers.get(&maker).map_or(0, |sums| sums[of as usize])
    }

    pub fn add(&mut self, piece: Piece) {
        let Piece { by, of, bytes } = piece;
        self.all[of as usize] += bytes;
        self.makers.entry(by).or_default()[of as usize] += bytes;
    }

    pub fn sub(&mut self, piece: Piece) {
        let Piece { by, of, bytes } = piece;
        debug_assert!(self.made_by(by, of) >= bytes, "{piece:?} is not there");
        self.all[of as usize] = self.all[of as usize].saturating_sub(bytes);
        if let Some(sums) = self.makers.get_mut(&by) {
            sums[of as usize] = sums[of as usize].saturating_sub(bytes);
            if *sums == [0; KINDS] {
                self.makers.remove(&by);
            }
        }
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Extent {
        /// Counts these pieces, and compares the sums by purpose.
        pub fn audit(&self, pieces: impl Iterator<Item = Piece>, sums: Sums) -> Result<(), String> {
            let mut counted = Extent {
                last: self.last,
                ..Extent::default()
            };
            pieces.for_each(|piece| counted.add(piece));
            if counted != *self {
                return Err(format!("extent: {self:?}, counted: {counted:?}"));
            }
            match sums == self.all {
                true => Ok(()),
                false => Err(format!("extent: {:?}, there: {sums:?}", self.all)),
            }
        }
    }
}
