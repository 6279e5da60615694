//! `docs/format.md` in code: one file per kind of shared object, links apart (`ring`).
//!
//! Each kind has a side for its only writer (`...Rw`, made by `create`) and a side for its readers (`...Ro`, made by
//! `open`). `open` verifies the memfd and checks the header once. A reader's side can only load.

pub mod aggregate;
pub mod control_page;
pub mod counts;
mod header;
mod load;
pub mod page;
pub mod refs;
pub mod table;
pub mod trace;

pub use aggregate::{AggregateError, Piece};
pub use control_page::{ControlPageRo, ControlPageRw};
pub use counts::{CountsRo, CountsRw, Way};
pub use header::{FORMAT_VERSION, Kind, MAGIC, Says, open_shared};
pub use load::{LoadU32, LoadU64};
pub use page::{PageRo, PageRw};
pub use refs::{RefsRo, RefsRw};
pub use table::{Slot, SlotRo, TableRo, TableRw};
pub use trace::{TraceRo, TraceRw, Traced};

use crate::{MakeError, VerifyError};
use std::io;

/// Most slots of a pool: 20 bits of an id.
pub const SLOT_LIMIT: u32 = 1 << 20;

/// Errors of making an object.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The number is more, or fewer, than the format allows.
    #[error("{count} {what}: from {min} to {max} are allowed")]
    Count {
        what: &'static str,
        count: u32,
        min: u32,
        max: u32,
    },
    /// No memory.
    #[error(transparent)]
    Make(#[from] MakeError),
}

/// Errors about a shared object that does not have the agreed form.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A number that the format does not allow. Nothing was looked at.
    #[error("{count} {what}: from {min} to {max} are allowed")]
    Count {
        what: &'static str,
        count: u32,
        min: u32,
        max: u32,
    },
    /// The memfd is not safe to use.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The object could not be mapped.
    #[error("mapping {len_bytes} bytes: {source}")]
    Map { len_bytes: usize, source: io::Error },
    /// The header's field has another value.
    #[error("{field} is {found:#x}, not {expected:#x}")]
    Header {
        field: &'static str,
        found: u64,
        expected: u64,
    },
}

/// A number out of range, for both kinds of errors.
#[derive(Clone, Copy, Debug)]
pub struct BadCount {
    pub what: &'static str,
    pub count: u32,
    pub min: u32,
    pub max: u32,
}

macro_rules! from_bad_count {
    ($error:ident) => {
        impl From<BadCount> for $error {
            fn from(bad: BadCount) -> $error {
                let BadCount {
                    what,
                    count,
                    min,
                    max,
                } = bad;
                $error::Count {
                    what,
                    count,
                    min,
                    max,
                }
            }
        }
    };
}
from_bad_count!(CreateError);
from_bad_count!(OpenError);

fn check_count(what: &'static str, count: u32, min: u32, max: u32) -> Result<(), BadCount> {
    if (min..=max).contains(&count) {
        return Ok(());
    }
    Err(BadCount {
        what,
        count,
        min,
        max,
    })
}

/// Returns `fixed + each * count`, rounded up to whole pages of 4096 bytes (and of the machine's pages, if larger). The
/// counts are checked before, so it cannot overflow.
pub fn rounded(fixed: usize, each: usize, count: u32) -> usize {
    let page = tranship_sys::page_size().max(4096);
    (fixed + each * count as usize).next_multiple_of(page)
}

#[cfg(test)]
mod tests;
