//! A value that is being received, and the line end behind it, which is looked at and not kept.

use std::io::IoSliceMut;
use tranship_zcopy::ValueMut;

/// Bytes of the line end.
const END: usize = 2;

/// Part of a value that has arrived so far.
#[derive(Debug)]
pub(super) struct Incoming {
    value: ValueMut,
    end: [u8; END],
    /// Bytes received of both.
    got: usize,
}

impl Incoming {
    pub(super) fn new(value: ValueMut) -> Incoming {
        Incoming {
            value,
            end: [0; END],
            got: 0,
        }
    }

    /// Returns the number of missing bytes.
    pub(super) fn missing(&self) -> usize {
        self.value.len() + END - self.got
    }

    /// Returns the room for the rest of the value, in two parts.
    fn room(&mut self) -> [&mut [u8]; 2] {
        let of_value = self.got.min(self.value.len());
        let of_end = self.got - of_value;
        [&mut self.value[of_value..], &mut self.end[of_end..]]
    }

    /// Returns [`Incoming::room`] and the bytes that follow.
    pub(super) fn parts<'a>(&'a mut self, behind: &'a mut [u8]) -> [IoSliceMut<'a>; 3] {
        let [value, end] = self.room();
        [value, end, behind].map(IoSliceMut::new)
    }

    /// Notes that this many bytes were put into the room.
    pub(super) fn came(&mut self, bytes: usize) {
        self.got += bytes;
    }

    /// Takes the missing bytes from the start of `bytes`; returns how many.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> usize {
        let mut taken = 0;
        for room in self.room() {
            let (now, rest) = bytes.split_at(room.len().min(bytes.len()));
            room[..now.len()].copy_from_slice(now);
            taken += now.len();
            bytes = rest;
        }
        self.got += taken;
        taken
    }

    /// Returns the bytes that have come.
    pub(super) fn so_far(&self) -> [&[u8]; 2] {
        let of_value = self.got.min(self.value.len());
        [&self.value[..of_value], &self.end[..self.got - of_value]]
    }

    /// Returns the value, if a line end is behind it; else whether the line ends there all the same.
    pub(super) fn finish(self) -> Result<ValueMut, bool> {
        match &self.end {
            b"\r\n" => Ok(self.value),
            end => Err(end.ends_with(b"\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_zcopy::Arena;

    /// A value and its end come in two parts or three, by reading or by copying, cut anywhere. The bytes after them are
    /// left.
    #[test]
    fn a_value_and_its_end_come_in_parts_that_are_cut_anywhere() {
        let arena = Arena::new().expect("an arena");
        let whole = b"value\r\nnext";
        for first in 0..=whole.len() {
            let mut one = Incoming::new(arena.alloc(5).expect("room"));
            let mut behind = [0; 4];
            // Fills both parts in order, as readv(2) does.
            let mut from = &whole[..first];
            for part in &mut one.parts(&mut behind) {
                let (now, rest) = from.split_at(part.len().min(from.len()));
                part[..now.len()].copy_from_slice(now);
                from = rest;
            }
            let of_value = first.min(one.missing());
            one.came(of_value);
            assert_eq!(behind[..first - of_value], whole[of_value..first]);
            assert_eq!(one.so_far().concat(), whole[..of_value]);
            let rest = &whole[of_value..];
            assert_eq!(one.take(rest), 7 - of_value);
            assert_eq!(one.missing(), 0);
            assert_eq!(one.finish().expect("a line end")[..], *b"value");
        }
    }

    #[test]
    fn what_ends_otherwise_is_no_value_and_says_whether_its_line_is_over() {
        let arena = Arena::new().expect("an arena");
        for (end, is_over) in [
            (b"xx", false),
            (b"\rx", false),
            (b"x\n", true),
            (b"\n\n", true),
        ] {
            let mut one = Incoming::new(arena.alloc(0).expect("room"));
            assert_eq!(one.take(end), 2);
            assert_eq!(one.finish().err(), Some(is_over));
        }
    }
}
