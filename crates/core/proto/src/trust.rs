//! The processes that can write the bytes of a pool.

use serde::{Deserialize, Serialize};

/// The processes that can write the bytes of a pool, and the mechanism that ensures it. The level is fixed when the
/// pool is made, because seals cannot be taken back. At every level, the pool's table, all counters and all rings have
/// one writer.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default, Serialize, Deserialize,
)]
#[repr(u8)]
pub enum Trust {
    /// No process can write a buffer once it is received: the receiver copies it into its own memory before it reads
    /// it. A process that maps the pool can read all of it, as at `producer`.
    None = 0,
    /// The pool's writer only, ever: the kernel's seals keep all others out.
    #[default]
    Producer = 1,
    /// The present owner can write, by agreement. Every domain that has the pool could. The library protects its own
    /// mapping whenever a buffer changes hands, so that an honest mistake faults.
    Half = 2,
    /// Every domain that has the pool can write. Each can punch holes into its memory, here and at `half`: the reader
    /// that touches a hole pays for the page.
    Full = 3,
}

impl Trust {
    /// All levels.
    pub const ALL: [Trust; 4] = [Trust::None, Trust::Producer, Trust::Half, Trust::Full];

    /// Says whether every domain that has the pool maps its bytes for writing: at [`Half`](Trust::Half) and above.
    #[doc(hidden)]
    pub fn all_write(self) -> bool {
        self >= Trust::Half
    }

    /// Returns the word that `tranship stat` shows.
    pub fn name(self) -> &'static str {
        match self {
            Trust::None => "none",
            Trust::Producer => "producer",
            Trust::Half => "half",
            Trust::Full => "full",
        }
    }
}

impl std::fmt::Display for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Some of the levels, as bits: those that a receiver accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub struct Levels(u8);

impl Levels {
    /// Every level.
    pub const ALL: Levels = Levels(0b1111);

    /// Says whether a level is among them.
    pub fn has(self, trust: Trust) -> bool {
        self.0 & 1 << trust as u8 != 0
    }

    /// Returns the levels without one.
    #[must_use]
    pub fn without(self, trust: Trust) -> Levels {
        Levels(self.0 & !(1 << trust as u8))
    }

    /// Returns the bits, for the numbers of a refusal.
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    fn from_bits(bits: u64) -> Levels {
        Levels(bits.to_le_bytes()[0])
    }
}

impl FromIterator<Trust> for Levels {
    fn from_iter<I: IntoIterator<Item = Trust>>(levels: I) -> Levels {
        Levels(
            levels
                .into_iter()
                .fold(0, |all, trust| all | 1 << trust as u8),
        )
    }
}

/// Returns the text of a refusal about levels.
pub(crate) fn refused(asked: u64, available: u64) -> String {
    let taken = Levels::from_bits(available);
    let taken = Trust::ALL.into_iter().filter(|trust| taken.has(*trust));
    let taken: Vec<_> = taken.map(Trust::name).collect();
    let its = Trust::ALL.into_iter().find(|trust| *trust as u64 == asked);
    let its = its.map_or("unknown", Trust::name);
    match taken.is_empty() {
        true => format!(": it is `{its}`, and no level is taken"),
        false => format!(": it is `{its}`, taken are `{}`", taken.join("`, `")),
    }
}
