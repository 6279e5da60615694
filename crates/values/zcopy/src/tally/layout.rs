//! Layout of the page, in words of 64 bits.
//!
//! ```text
//!   head │ place │ place │ …        a place for each sender; only it writes there
//!          owner, counts, sends by way and reason, copied bytes by cause, what each way costs by kind of socket and size
//! ```

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"zc-tally");
pub(crate) const VERSION: u64 = 2;
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
/// Sends and bytes for each way and reason.
pub(crate) const CHOICES: usize = 16;
const WAYS: usize = 8;
const WHYS: usize = 12;
/// Bytes for each cause.
pub(crate) const CAUSES: usize = CHOICES + 2 * WAYS * WHYS;
const CAUSES_MOST: usize = 8;
/// Words for each kind of socket and doubling of the size. They are the sends, the way in use, and how often it
/// changed. For each way there are its cost (a `f64`, nanoseconds a KiB) and how often it was measured.
pub(crate) const SIZES: usize = CAUSES + CAUSES_MOST;
const ROUTES: usize = 8;
/// Doublings from [`SMALLEST`] on; the last stands for all above.
pub(crate) const DOUBLINGS: usize = 22;
/// The logarithm of the smallest size of which there is anything to say.
pub(crate) const SMALLEST: u32 = 10;
const SIZE_WORDS: usize = 2 + 2 * WAYS;
pub(crate) const CHANGES_SHIFT: u32 = 8;
pub(crate) const REFUSED: u64 = 1 << 63;
/// Words of a place: whole pages.
pub(crate) const PLACE: usize = 3584;
const _: () = assert!(SIZES + ROUTES * DOUBLINGS * SIZE_WORDS <= PLACE);

/// Words in all.
pub(crate) const ALL: usize = HEAD + PLACES * PLACE;

/// Sends of a way for a reason; the word behind it is their bytes.
pub(crate) fn choice(way: usize, why: usize) -> usize {
    debug_assert!(way < WAYS && why < WHYS);
    CHOICES + 2 * (way * WHYS + why)
}

/// Returns the position of the record for a kind of socket and a size; `logarithm` is its number of bits less one.
pub(crate) fn size(route: usize, logarithm: u32) -> usize {
    debug_assert!(route < ROUTES);
    let doubling = logarithm.saturating_sub(SMALLEST) as usize;
    SIZES + (route * DOUBLINGS + doubling.min(DOUBLINGS - 1)) * SIZE_WORDS
}
