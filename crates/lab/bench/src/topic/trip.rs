//! One message in flight: until its receivers have said that they have it.

use std::sync::atomic::Ordering;

use anyhow::Result;

use crate::clock;
use crate::stats::Samples;
use crate::topic_ring::Word;

/// Sends one message after the other. `make` is not measured.
pub fn sample<S, T>(
    sender: &mut S,
    echo: &Word,
    budget: u64,
    make: impl Fn(&mut S, u64) -> Result<T>,
    send: impl Fn(&mut S, T, u64) -> Result<()>,
) -> Result<Samples> {
    let mut samples = Samples::new(1 << 17, 1);
    let begun = clock::ticks();
    for number in 0.. {
        let message = make(sender, number)?;
        let before = clock::ticks();
        send(sender, message, number)?;
        while echo.get().load(Ordering::Acquire) <= number {
            std::hint::spin_loop();
        }
        let now = clock::ticks();
        if !samples.push(now - before) || now - begun > budget {
            break;
        }
    }
    Ok(samples)
}

/// Says that all have this message.
#[inline(always)]
pub fn answer(echo: &Word, number: u64) {
    echo.get().store(number + 1, Ordering::Release);
}
