//! Options that the writers of topics and queues have alike.

use crate::pieces;
use std::ops::RangeInclusive;
use tranship_core::{Error, ErrorKind, PoolOptions, Trust};

/// Most bytes of a writer's own pool, by default. Only addresses are reserved: memory is added as it is needed.
const POOL_BYTES: u64 = 1 << 30;
/// Most buffers of a writer's own pool, by default.
const POOL_SLOTS: u32 = 1024;
/// How many lines a ring may have.
const LINES: RangeInclusive<u32> = 2..=65_536;

/// Returns the shape of the own pool of a writer of `name`. `given`: as the program wants it.
pub fn pool(given: Option<&PoolOptions>, name: &str) -> PoolOptions {
    let usual = || PoolOptions::new(POOL_BYTES).slots(POOL_SLOTS).name(name);
    given.cloned().unwrap_or_else(usual).trust(Trust::Producer)
}

/// Checks the depth of a ring, and how many pieces its messages may have. `of` names the kind of its name, and the options.
///
/// # Errors
/// `BadArgument`.
pub fn check(of: (&str, &str), depth: u32, (pieces, keep): (u32, u32)) -> Result<(), Error> {
    if depth.is_power_of_two() && LINES.contains(&depth) {
        return pieces::check_most(pieces, keep);
    }
    let ((kind, options), (least, most)) = (of, (LINES.start(), LINES.end()));
    let text = format!(
        "a {kind}'s depth is a power of two from {least} to {most} ({options}::depth), not {depth}"
    );
    Err(Error::new(ErrorKind::BadArgument, text))
}
