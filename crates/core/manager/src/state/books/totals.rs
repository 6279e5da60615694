//! Memory granted and stranded, over all pools and heaps and by user; and when some of it was requested last.

use super::accounts::{Accounts, Of};
use std::time::Duration;

/// The shortest time between two requests, or searches, for memory.
pub(crate) const SHRINK_PAUSE: Duration = Duration::from_millis(250);

/// Bytes.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    granted: u64,
    stranded: u64,
    /// The highest sum of both that claims alone led to: only they may exceed the total.
    claimed: u64,
    /// When unused memory was last taken back.
    taken_back: Option<Duration>,
    asked_to_shrink: Option<Duration>,
}

impl Totals {
    pub fn granted(&self) -> u64 {
        self.granted
    }

    pub fn stranded(&self) -> u64 {
        self.stranded
    }

    pub fn grant(&mut self, uid: u32, bytes: u64, accounts: &mut Accounts) {
        self.granted += bytes;
        accounts.add(uid, Of::Bytes, bytes);
    }

    pub fn ungrant(&mut self, uid: u32, bytes: u64, accounts: &mut Accounts) {
        self.granted -= bytes;
        accounts.sub(uid, Of::Bytes, bytes);
    }

    pub fn strand(&mut self, payer: u32, bytes: u64, accounts: &mut Accounts) {
        self.stranded += bytes;
        accounts.add(payer, Of::Bytes, bytes);
    }

    pub fn unstrand(&mut self, payer: u32, bytes: u64, accounts: &mut Accounts) {
        self.stranded -= bytes;
        accounts.sub(payer, Of::Bytes, bytes);
    }

    /// Records that the present memory was claimed, even if it exceeds the total.
    pub fn was_claimed(&mut self) {
        self.claimed = self.claimed.max(self.granted + self.stranded);
    }

    /// Says whether it is time to take back unused grants again.
    pub fn takes_back(&mut self, now: Duration) -> bool {
        is_due(&mut self.taken_back, now)
    }

    /// Says whether it is time to ask others to shrink again.
    pub fn asks_to_shrink(&mut self, now: Duration) -> bool {
        is_due(&mut self.asked_to_shrink, now)
    }
}

fn is_due(last: &mut Option<Duration>, now: Duration) -> bool {
    if last.is_some_and(|t| t + SHRINK_PAUSE > now) {
        return false;
    }
    *last = Some(now);
    true
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Totals {
        /// Compares the sums with a fresh count.
        pub fn audit(&self, counted: (u64, u64), total_bytes: u64) -> Result<(), String> {
            let (granted, stranded) = counted;
            if counted != (self.granted, self.stranded) {
                return Err(format!("{granted} granted, {stranded} stranded, {self:?}"));
            }
            if granted + stranded > total_bytes.max(self.claimed) {
                return Err(format!(
                    "{granted} granted, {stranded} stranded of {total_bytes}"
                ));
            }
            Ok(())
        }
    }
}
