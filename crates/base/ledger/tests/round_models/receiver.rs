//! A domain without a desk, to which the first reader forwards: it counts what it receives, as on any channel.

use crate::code::Said;
use crate::config::{Config, SLOTS, Without};
use crate::replay::{Run, Script};
use crate::words;

pub fn take(held: &mut [u8; SLOTS], config: &Config, script: &Script<'_>) -> Run<Said> {
    let message = script.load(words::FORWARDED)?;
    if message == 0 {
        return Ok(Said::Nothing);
    }
    let slot = usize::from(message.to_le_bytes()[0]) - 1;
    let named = u32::try_from(message >> 8).expect("a generation");
    // The locked instruction is the fence, too.
    script.count(words::refs(slot), true)?;
    if !config.is(Without::Check) && script.load(words::generation(slot))? != named.into() {
        script.count(words::refs(slot), false)?;
        script.store(words::FORWARDED, 0)?;
        return Ok(Said::Refused);
    }
    held[slot] += 1;
    script.count(words::rcvd(slot), true)?;
    script.store(words::FORWARDED, 0)?;
    let slot = u8::try_from(slot).expect("small");
    Ok(Said::Holds {
        slot,
        generation: named,
    })
}

pub fn release(held: &mut [u8; SLOTS], slot: u8, script: &Script<'_>) -> Run<Said> {
    held[usize::from(slot)] -= 1;
    script.count(words::refs(slot.into()), false)?;
    Ok(Said::Nothing)
}
