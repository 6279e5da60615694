//! The views through which counters and generations are read.

use tranship_sync::atomic::{AtomicU32, Ordering};

/// One 32-bit counter per slot, written by somebody else: the `ref` of a domain, the `sent` or `rcvd` of a queue.
///
/// The view decides what an out-of-range slot means; a collector passes only slots of its own table.
pub trait Words {
    /// The word of `slot`.
    // Ordering: must be (at least) an acquire load; its partners are the release stores of `transfer.rs`.
    fn load(&self, slot: u32) -> u32;
    /// Loads the words of many slots, in their order, each beside what belongs to it. A view whose words lie side by side
    /// says so with a loop that has their place at hand: every load is an acquire, after which nothing else stays known.
    #[inline(always)]
    fn load_each<T>(
        &self,
        slots: impl Slots,
        beside: impl Iterator<Item = T>,
        mut take: impl FnMut(T, u32),
    ) {
        for (slot, t) in slots.each().zip(beside) {
            take(t, self.load(slot));
        }
    }
    /// The word of `slot` will be loaded soon. A hint.
    fn prefetch(&self, slot: u32) {
        let _ = slot;
    }
}

/// Slots that are looked at together.
pub trait Slots: Copy {
    /// Their numbers, in their order.
    fn each(self) -> impl Iterator<Item = u32>;
    /// The first one and how many there are, where each is known to be the one after the one before: then their words are found from the first one's.
    #[inline(always)]
    fn run(self) -> Option<(u32, usize)> {
        None
    }
}

/// Exactly `N` slots.
pub trait Few<const N: usize>: Slots {}

impl Slots for &[u32] {
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = u32> {
        self.iter().copied()
    }
}

impl<const N: usize> Slots for &[u32; N] {
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = u32> {
        self.iter().copied()
    }
}

impl<const N: usize> Few<N> for &[u32; N] {}

/// The writer's own slot table, as its collector needs it.
pub trait Generations {
    /// The generation of `slot`.
    fn load(&self, slot: u32) -> u32;
    /// Sets the generation of `slot`. Relaxed is enough: the fences order it.
    fn store(&self, slot: u32, generation: u32);
    /// Gives each of these another one.
    #[inline(always)]
    fn change_each(&self, slots: impl Slots, change: impl Fn(u32) -> u32) {
        for slot in slots.each() {
            self.store(slot, change(self.load(slot)));
        }
    }
}

/// No words at all: for a writer without private references, or a manager that reads for a dead writer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWords;

impl Words for NoWords {
    #[inline]
    fn load(&self, _slot: u32) -> u32 {
        0
    }
}

impl Words for [AtomicU32] {
    #[inline]
    fn load(&self, slot: u32) -> u32 {
        self[slot as usize].load(Ordering::Acquire)
    }
}

impl Generations for [AtomicU32] {
    #[inline]
    fn load(&self, slot: u32) -> u32 {
        self[slot as usize].load(Ordering::Relaxed)
    }
    #[inline]
    fn store(&self, slot: u32, generation: u32) {
        self[slot as usize].store(generation, Ordering::Relaxed);
    }
}

impl<W: Words + ?Sized> Words for &W {
    #[inline]
    fn load(&self, slot: u32) -> u32 {
        (**self).load(slot)
    }
}
