//! Record whether acknowledged writes can have been lost.
//!
//! An acknowledged write lies in the page cache of the server's machine at least, and outlives the server. It does not
//! outlive the machine: then the next flush fails, because its promise would be false.

use crate::{Fault, Info};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Knowledge that all channels to one server share.
#[derive(Debug, Default)]
pub(crate) struct Safety(Mutex<WriteRecord>);

#[derive(Debug, Default)]
struct WriteRecord {
    boot: Option<u128>,
    /// Counts writes that were acknowledged, and how many of them a flush covers.
    written: u64,
    flushed: u64,
    /// Number of times that writes may have been lost, and how many of these were reported.
    losses: u64,
    told: u64,
}

impl Safety {
    fn lock(&self) -> MutexGuard<'_, WriteRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the identity of a server that was reached.
    pub(crate) fn met(&self, info: &Info) {
        let mut known = self.lock();
        let other = known.boot.is_some_and(|boot| boot != info.boot);
        if other && known.written > known.flushed {
            tracing::error!("the server's machine went down with writes that were not flushed");
            known.losses += 1;
            known.flushed = known.written;
        }
        known.boot = Some(info.boot);
    }

    pub(crate) fn wrote(&self) {
        self.lock().written += 1;
    }

    /// Notes that a flush is asked for; returns how many writes it will cover.
    pub(crate) fn flushing(&self) -> u64 {
        self.lock().written
    }

    /// Checks whether a flush that the server reports as done is true.
    pub(crate) fn flushed(&self, covers: u64) -> Result<(), Fault> {
        let mut known = self.lock();
        known.flushed = known.flushed.max(covers);
        match known.told < known.losses {
            true => {
                known.told = known.losses;
                Err(Fault::Lost)
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_boot_loses_and_only_what_is_not_flushed() {
        let info = |boot| Info {
            size: 1,
            read_only: false,
            boot,
        };
        let safety = Safety::default();
        safety.met(&info(1));
        safety.wrote();
        safety.met(&info(1));
        assert_eq!(safety.flushed(safety.flushing()), Ok(()));
        safety.met(&info(2));
        assert_eq!(safety.flushed(safety.flushing()), Ok(()));
        let early = safety.flushing();
        safety.wrote();
        assert_eq!(safety.flushed(early), Ok(()));
        safety.met(&info(3));
        assert_eq!(safety.flushed(safety.flushing()), Err(Fault::Lost));
        assert_eq!(safety.flushed(safety.flushing()), Ok(()));
    }
}
