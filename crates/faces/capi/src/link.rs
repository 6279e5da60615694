//! Options of an end of a channel.

use crate::given::wrong;
use crate::options::{
    Grows, TRUST_FULL, TRUST_HALF, TRUST_NONE, TRUST_PRODUCER, no_more, trust, typed,
};
use crate::pool::Pool;
use facade::{ChannelOptions as Link, Error, Wait};
use std::ffi::c_char;

/// As `wait`: look that often (`spins`), then sleep until woken. The default, with 500 looks.
pub const WAIT_SPIN_THEN_SLEEP: u32 = 1;
/// As `wait`: look again and again. Lowest latency, one processor.
pub const WAIT_SPIN: u32 = 2;
/// As `wait`: sleep at once when nothing is there.
pub const WAIT_SLEEP: u32 = 3;

/// Options of a new end of a channel. Set `size` to `sizeof(tranship_channel_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ChannelOptions {
    /// sizeof(tranship_channel_options)
    pub size: usize,
    /// Depth of the ring: a power of two, 2 to 65,536. 0: 256.
    pub lines: u32,
    /// TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how this end waits. 0: the first.
    pub wait: u32,
    /// Looks before it sleeps. 0: 500.
    pub spins: u32,
    /// Levels of trust whose pools a receiver takes: the sum of `1u << level` (`1u << TRANSHIP_TRUST_PRODUCER`, ...).
    /// 0: of all.
    pub accept_trust: u32,
    /// Pool of the receiver's domain into which it copies buffers out of pools of level `none`. NULL: it takes none of
    /// those.
    pub snapshots: *const Pool,
    /// The type of this end's messages, as a text that must be equal at both ends. NULL: bytes. The header that a Rust
    /// type writes (`Layout::c_header`) has the text of each struct (docs/types.md).
    pub message_type: *const c_char,
}

// SAFETY: of integers and a pointer, the size first.
unsafe impl Grows for ChannelOptions {
    const NAME: &str = "tranship_channel_options";
}

/// Returns how an end waits, from one of the numbers above and the number of its looks.
pub(crate) fn wait(wait: u32, spins: u32) -> Result<Wait, Error> {
    match wait {
        0 | WAIT_SPIN_THEN_SLEEP => Ok(Wait::SpinThenSleep(if spins == 0 { 500 } else { spins })),
        WAIT_SPIN => Ok(Wait::Spin),
        WAIT_SLEEP => Ok(Wait::Sleep),
        other => Err(wrong(format!("wait is {other}: 1 to 3, or 0"))),
    }
}

impl ChannelOptions {
    pub(crate) fn link(self) -> Result<Link, Error> {
        let mut link = Link::new().wait(wait(self.wait, self.spins)?);
        if self.lines != 0 {
            link = link.lines(self.lines);
        }
        let known = 1 << TRUST_NONE | 1 << TRUST_PRODUCER | 1 << TRUST_HALF | 1 << TRUST_FULL;
        no_more("accept_trust", self.accept_trust, known)?;
        if self.accept_trust != 0 {
            let levels =
                (TRUST_NONE..=TRUST_FULL).filter(|level| self.accept_trust & 1 << level != 0);
            link = link.accept_trust(levels.flat_map(trust));
        }
        // SAFETY: the caller promises: a pool, or NULL.
        if let Some(pool) = unsafe { self.snapshots.as_ref() } {
            link = link.snapshots(pool.0.id());
        }
        typed(link, self.message_type, Link::message_type)
    }
}
