//! A word that both sides see, and the loops of publishers.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;

use super::what::BURST;
use crate::clock;
use crate::stats::{Samples, sample};
use crate::systems::shared::Shared;

/// A word of a page that one side writes.
pub struct Word(Shared);

impl Word {
    pub fn make() -> Result<Word> {
        Ok(Word(Shared::make(4096)?))
    }

    pub fn map(fd: OwnedFd) -> Result<Word> {
        Ok(Word(Shared::map(fd, 4096)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    #[inline(always)]
    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: inside the mapping, aligned, accessed as an atomic only.
        unsafe { self.0.at(0, 8).cast::<AtomicU64>().as_ref() }
    }
}

/// Publishes as fast as it goes, after 4000 messages to warm up.
#[inline(always)]
pub fn stream(budget: u64, mut publish: impl FnMut() -> Result<()>) -> Result<Samples> {
    for _ in 0..4000 {
        publish()?;
    }
    sample(budget, BURST, || {
        clock::spent(|| (0..BURST).try_for_each(|_| publish()))
    })
}

/// Sends one message after the other, each when the receivers of the one before have said that they have it. `make` is
/// not measured.
pub fn echoed<S, T>(
    sender: &mut S,
    echo: &Word,
    budget: u64,
    make: impl Fn(&mut S, u64) -> Result<T>,
    send: impl Fn(&mut S, T, u64) -> Result<()>,
) -> Result<Samples> {
    let mut number = 0;
    sample(budget, 1, || {
        let message = make(sender, number)?;
        let took = clock::spent(|| {
            send(sender, message, number)?;
            while echo.get().load(Ordering::Acquire) <= number {
                std::hint::spin_loop();
            }
            Ok(())
        });
        number += 1;
        took
    })
}

/// Says that all have this message.
#[inline(always)]
pub fn answer(echo: &Word, number: u64) {
    echo.get().store(number + 1, Ordering::Release);
}
