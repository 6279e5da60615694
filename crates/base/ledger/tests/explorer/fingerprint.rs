//! A visited state is remembered by a 128-bit fingerprint. For n states the chance that two share one is below n^2 / 2^129 (10^-23 for a
//! hundred million).

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Two independent lanes over the bytes of a state, eight at a time. All states have the same shape, so lengths of
/// arrays are left out.
struct Two {
    lanes: (u64, u64),
    word: u64,
    bytes: u32,
}

impl Two {
    fn byte(&mut self, byte: u8) {
        self.word = self.word << 8 | u64::from(byte);
        self.bytes += 1;
        if self.bytes == 8 {
            self.mix();
        }
    }

    fn mix(&mut self) {
        let (a, b) = self.lanes;
        let a = (a ^ self.word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let b = (b.rotate_left(23) ^ self.word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.lanes = (a ^ a >> 29, b ^ b >> 32);
        (self.word, self.bytes) = (0, 0);
    }
}

impl Hasher for Two {
    fn write(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        while let (0, Some((eight, rest))) = (self.bytes, bytes.split_first_chunk()) {
            self.word = u64::from_be_bytes(*eight);
            self.mix();
            bytes = rest;
        }
        for &byte in bytes {
            self.byte(byte);
        }
    }
    fn write_usize(&mut self, _length: usize) {}
    fn write_isize(&mut self, discriminant: isize) {
        self.byte(discriminant.to_le_bytes()[0]);
    }
    fn finish(&self) -> u64 {
        self.lanes.0
    }
}

pub fn fingerprint(state: &impl Hash) -> u128 {
    let mut two = Two {
        lanes: (1, 2),
        word: 0,
        bytes: 0,
    };
    state.hash(&mut two);
    two.mix();
    two.mix();
    u128::from(two.lanes.0) << 64 | u128::from(two.lanes.1)
}

/// Fingerprints are random already.
#[derive(Default)]
pub struct Plain(u64);

impl Hasher for Plain {
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, n: u128) {
        #[allow(clippy::cast_possible_truncation, reason = "any 64 bits do")]
        let low = n as u64;
        self.0 = low;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

pub type Seen = HashSet<u128, BuildHasherDefault<Plain>>;
