//! Layout of the page, in words of 64 bits.
//!
//! ```text
//!   head │ place │ place │ …        a place for each sender; only it writes there
//!          owner, counts, sends by kind of socket, way and reason, copied bytes by cause
//! ```

use crate::send::{Cause, Route, Way, Why};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"zc-tally");
pub(crate) const VERSION: u64 = 3;
/// Senders that have a place; the sends of others are not seen.
pub(crate) const PLACES: usize = 128;

// The head.
pub(crate) const HEAD_MAGIC: usize = 0;
pub(crate) const HEAD_VERSION: usize = 1;
pub(crate) const HEAD_PID: usize = 2;
/// Seconds since 1970.
pub(crate) const HEAD_STARTED: usize = 3;
/// Two words: the program's name.
pub(crate) const HEAD_NAME: usize = 4;
/// Senders that found no place.
pub(crate) const HEAD_UNSEEN: usize = 6;
pub(crate) const HEAD: usize = 512;

// A place.
/// 0: never used; [`LEFT`]; else the thread's number.
pub(crate) const OWNER: usize = 0;
/// Mark that the sender of a place is gone. A sender that takes the place over adds to its counts.
pub(crate) const LEFT: u64 = u64::MAX;
pub(crate) const COUNTS: usize = 1;
pub(crate) const COUNTS_MOST: usize = 15;
/// Sends and bytes for each kind of socket, way and reason.
pub(crate) const CHOICES: usize = 16;
const ROUTES: usize = Route::ALL.len();
const WAYS: usize = Way::ALL.len();
const WHYS: usize = Why::ALL.len();
/// Bytes for each cause.
pub(crate) const CAUSES: usize = CHOICES + 2 * ROUTES * WAYS * WHYS;
/// Words of a place: whole pages.
pub(crate) const PLACE: usize = 1024;
const _: () = assert!(CAUSES + Cause::ALL.len() <= PLACE);

/// Words in all.
pub(crate) const ALL: usize = HEAD + PLACES * PLACE;

/// Returns the position of a way's sends to a kind of socket for a reason; the word behind it has their bytes.
pub(crate) fn choice(route: usize, way: usize, why: usize) -> usize {
    debug_assert!(route < ROUTES && way < WAYS && why < WHYS);
    CHOICES + 2 * ((route * WAYS + way) * WHYS + why)
}
