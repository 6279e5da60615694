//! Pieces of one call by reference. A packet of the kernel's has room for 17 stretches of memory, and all the datagrams
//! of a call are one packet until the device cuts it. Into the seventeenth the kernel puts only one piece.

use crate::arena::classes::PAGE;

/// Stretches of memory in a packet.
const STRETCHES: usize = 16;

/// Pieces that go together. A piece that lies directly behind the one before it, in the same page, is one with it. An
/// example is the end of a datagram and the start of the next one, if both are in the log.
#[derive(Debug, Default)]
pub(super) struct Packet {
    pieces: Vec<(*const u8, usize)>,
    stretches: usize,
}

/// Position in a [`Packet`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pieces: usize,
    last: usize,
    stretches: usize,
}

impl Packet {
    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.stretches = 0;
    }

    /// Adds a piece. False if there is no room for it.
    pub(super) fn push(&mut self, at: *const u8, len: usize) -> bool {
        let from = at.addr();
        let pages = (from + len).div_ceil(PAGE) - from / PAGE;
        match self.pieces.last_mut() {
            Some((first, before))
                if first.addr() + *before == from && !from.is_multiple_of(PAGE) =>
            {
                *before += len;
                self.stretches += pages - 1;
            }
            _ => {
                self.pieces.push((at, len));
                self.stretches += pages;
            }
        }
        self.stretches <= STRETCHES
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            pieces: self.pieces.len(),
            last: self.pieces.last().map_or(0, |(_, len)| *len),
            stretches: self.stretches,
        }
    }

    /// Removes the pieces that were pushed since.
    pub(super) fn back(&mut self, to: Mark) {
        self.pieces.truncate(to.pieces);
        if let Some((_, len)) = self.pieces.last_mut() {
            *len = to.last;
        }
        self.stretches = to.stretches;
    }

    pub(super) fn pieces(&self) -> &[(*const u8, usize)] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: usize) -> *const u8 {
        std::ptr::without_provenance(address)
    }

    #[test]
    fn what_goes_on_in_a_page_is_one_piece_and_what_is_taken_back_is_as_if_it_never_came() {
        let mut packet = Packet::default();
        assert!(packet.push(at(PAGE), 100) && packet.push(at(PAGE + 100), 20));
        // Behind it, but of another page; and elsewhere.
        assert!(packet.push(at(2 * PAGE - 8), 8) && packet.push(at(2 * PAGE), 8));
        let mark = packet.mark();
        assert!(packet.push(at(2 * PAGE + 8), PAGE) && packet.push(at(9 * PAGE), 2 * PAGE));
        packet.back(mark);
        assert_eq!(
            packet.pieces(),
            [(at(PAGE), 120), (at(2 * PAGE - 8), 8), (at(2 * PAGE), 8)]
        );
        // Thirteen more, whether of one piece or of many.
        assert!(packet.push(at(20 * PAGE), 12 * PAGE) && packet.push(at(40 * PAGE), 1));
        let mark = packet.mark();
        assert!(!packet.push(at(50 * PAGE), 1));
        packet.back(mark);
        assert!(packet.push(at(40 * PAGE + 1), PAGE - 1));
        assert!(!packet.push(at(41 * PAGE), 1));
    }
}
