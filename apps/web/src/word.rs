//! The word that goes along with each message: whose request it is, and how its reply ends.

use std::fmt;

/// Names a request of a connection, and has the flags of its reply.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 15 | slot of the connection at the front |
/// | 16 to 31 | generation of the slot |
/// | 32 to 47 | number of the request on its connection |
/// | 48 to 53 | flags |
/// | 54 to 63 | status of the reply; 0: a request, or a note |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word(pub u64);

impl Word {
    /// The bytes that the request came in hold no further request.
    pub const END: u64 = 1 << 48;
    /// With [`END`](Word::END): those bytes end within a request.
    pub const PARTIAL: u64 = 1 << 49;
    /// The connection ends after the reply.
    pub const CLOSE: u64 = 1 << 50;
    /// More of the same reply follows.
    pub const MORE: u64 = 1 << 51;
    /// The reply says that the connection stays, to a client of HTTP/1.0.
    pub const KEEP: u64 = 1 << 52;
    /// The reply has no body: the method is HEAD.
    pub const HEAD: u64 = 1 << 53;
    /// From the front: `http` has nothing of this connection, and the bytes begin with the request of this number.
    pub const START: u64 = 1 << 52;
    /// A note of `http`: it does not know the connection, and has not read the bytes.
    pub const UNKNOWN: u64 = 1 << 51;

    /// All shares of a roll call.
    pub const WHOLE: u16 = 1 << 15;
    /// Slot of a roll call; no connection has it.
    const ROLL: u16 = u16::MAX;

    const STATUS: u32 = 54;

    /// Makes the word of a connection's request.
    #[must_use]
    pub fn new(slot: u16, generation: u16, request: u16) -> Word {
        Word(u64::from(slot) | u64::from(generation) << 16 | u64::from(request) << 32)
    }

    /// Makes the word of a roll call: its number, and the share of it that takes this way.
    #[must_use]
    pub fn roll(number: u16, share: u16) -> Word {
        Word::new(Word::ROLL, number, share)
    }

    /// Divides a share of a roll call among several ways, of which there is at least one.
    pub fn rolls(number: u16, share: u16, ways: usize) -> impl Iterator<Item = Word> {
        let ways = u16::try_from(ways).unwrap_or(u16::MAX);
        let first = share % ways;
        (0..ways).map(move |way| {
            let rest = if way == 0 { first } else { 0 };
            Word::roll(number, share / ways + rest)
        })
    }

    /// Returns number and share, if this is the word of a roll call.
    #[must_use]
    pub fn as_roll(self) -> Option<(u16, u16)> {
        (self.slot() == Word::ROLL).then(|| (self.generation(), self.request()))
    }

    /// Returns the connection's slot.
    #[must_use]
    pub fn slot(self) -> u16 {
        self.part(0)
    }

    /// Returns the slot's generation.
    #[must_use]
    pub fn generation(self) -> u16 {
        self.part(16)
    }

    /// Returns the number of the request on its connection.
    #[must_use]
    pub fn request(self) -> u16 {
        self.part(32)
    }

    /// Says whether a flag is set.
    #[must_use]
    pub fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Sets flags.
    #[must_use]
    pub fn with(self, flags: u64) -> Word {
        Word(self.0 | flags)
    }

    /// Clears flags.
    #[must_use]
    pub fn without(self, flags: u64) -> Word {
        Word(self.0 & !flags)
    }

    /// Returns the status; 0: none.
    #[must_use]
    pub fn status(self) -> u16 {
        self.part(Word::STATUS) & 0x3ff
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(self, status: u16) -> Word {
        let without = self.0 & ((1 << Word::STATUS) - 1);
        Word(without | u64::from(status & 0x3ff) << Word::STATUS)
    }

    /// Returns the connection and the request alone, by which its messages find each other.
    #[must_use]
    pub fn name(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }

    #[allow(clippy::cast_possible_truncation)] // 16 bits
    fn part(self, shift: u32) -> u16 {
        (self.0 >> shift) as u16
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slot, generation, request) = (self.slot(), self.generation(), self.request());
        write!(f, "{slot}.{generation}#{request} status {}", self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::Word;

    #[test]
    fn parts_do_not_overlap() {
        let word = Word::new(u16::MAX - 1, 2, 3)
            .with(Word::CLOSE)
            .with_status(404);
        assert_eq!(
            (word.slot(), word.generation(), word.request()),
            (u16::MAX - 1, 2, 3)
        );
        assert!(word.has(Word::CLOSE) && !word.has(Word::END | Word::HEAD));
        assert_eq!(word.with_status(502).status(), 502);
        assert!(!word.without(Word::CLOSE).has(Word::CLOSE));
        assert_eq!(word.as_roll(), None);
        assert_eq!(Word::roll(7, Word::WHOLE).as_roll(), Some((7, Word::WHOLE)));
        let shares = Word::rolls(7, Word::WHOLE, 3).filter_map(Word::as_roll);
        assert_eq!(shares.map(|(_, share)| share).sum::<u16>(), Word::WHOLE);
    }
}
