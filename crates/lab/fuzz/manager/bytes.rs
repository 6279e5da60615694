//! An input, read as choices. After its end every choice is zero.

pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub fn of(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (some, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        some
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    pub fn small(&mut self, n: u32) -> u32 {
        u32::from(self.byte()) % n
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// Returns a number: mostly a small one, sometimes any, sometimes one at a limit.
    pub fn number(&mut self) -> u32 {
        match self.byte() {
            small @ 0..=199 => u32::from(small) % 24,
            200..=219 => 4096 << self.below(12),
            220..=229 => u32::MAX - u32::from(self.byte()),
            _ => {
                let mut word = [0; 4];
                let some = self.take(4);
                word[..some.len()].copy_from_slice(some);
                u32::from_le_bytes(word)
            }
        }
    }

    pub fn wide(&mut self) -> u64 {
        u64::from(self.number()) << self.below(33)
    }

    /// Returns one of these ids, or any number.
    pub fn pick(&mut self, of: &[u32]) -> u32 {
        match self.byte() {
            known @ 0..=239 if !of.is_empty() => of[usize::from(known) % of.len()],
            _ => self.number(),
        }
    }
}
