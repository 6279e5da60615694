//! A bounded busy wait: pause some times, then give the core away some times, then say that it is spent.

use crate::atomic::{spin_loop, yield_now};

/// What one turn of a [`Spin`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It paused: look again.
    Paused,
    /// It gave the core to others: look again.
    Yielded,
    /// Nothing: the budget is spent, go to sleep (or call [`Spin::reset`] to go on).
    Spent,
}

/// A budget of busy waiting.
#[derive(Debug, Clone)]
pub struct Spin {
    pauses: u32,
    yields: u32,
    used: u32,
}

impl Spin {
    /// First `pauses` pauses, then `yields` yields (`u32::MAX`: never spent).
    pub const fn new(pauses: u32, yields: u32) -> Self {
        Self {
            pauses,
            yields,
            used: 0,
        }
    }

    /// One turn.
    #[inline]
    pub fn turn(&mut self) -> Turn {
        if self.used < self.pauses {
            self.used += 1;
            spin_loop();
            return Turn::Paused;
        }
        self.turn_slow()
    }

    #[cold]
    fn turn_slow(&mut self) -> Turn {
        if self.yields != u32::MAX {
            if self.used - self.pauses >= self.yields {
                return Turn::Spent;
            }
            self.used = self.used.saturating_add(1);
        }
        yield_now();
        Turn::Yielded
    }

    /// Starts again, after the wait was worth it.
    #[inline]
    pub fn reset(&mut self) {
        self.used = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_then_yields_then_is_spent() {
        let mut spin = Spin::new(2, 1);
        let turns: Vec<_> = (0..5).map(|_| spin.turn()).collect();
        assert_eq!(
            turns,
            [
                Turn::Paused,
                Turn::Paused,
                Turn::Yielded,
                Turn::Spent,
                Turn::Spent
            ]
        );
        spin.reset();
        assert_eq!(spin.turn(), Turn::Paused);
        let mut endless = Spin::new(0, u32::MAX);
        assert!((0..100).all(|_| endless.turn() == Turn::Yielded));
    }
}
