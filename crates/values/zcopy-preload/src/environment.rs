//! Settings from the environment, read once.

use std::io::Write;

/// Bytes from which on a block comes from the twin allocator.
const LEAST: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) least: usize,
    /// Bytes from which on a send goes by reference.
    pub(crate) send: Option<usize>,
    pub(crate) max: Option<u64>,
    /// Pages of a pageblock, and from which size on values have pages of their own.
    pub(crate) block_pages: Option<usize>,
    pub(crate) large: Option<usize>,
    pub(crate) stats: bool,
}

pub(crate) fn wishes() -> Wishes {
    Wishes {
        least: number("TRANSHIP_ZCOPY_MIN", SIZE)
            .and_then(short)
            .unwrap_or(LEAST)
            .max(1),
        send: number("TRANSHIP_ZCOPY_SEND", SIZE).and_then(short),
        max: number("TRANSHIP_ZCOPY_MAX", SIZE),
        block_pages: number("TRANSHIP_ZCOPY_BLOCK_PAGES", COUNT).and_then(short),
        large: number("TRANSHIP_ZCOPY_LARGE", SIZE).and_then(short),
        stats: std::env::var_os("TRANSHIP_ZCOPY_STATS").is_some_and(|word| word != "0"),
    }
}

const SIZE: &str = "size; bytes, or a number with KiB, MiB or GiB";
const COUNT: &str = "number of pages; such as 16";

fn short(number: u64) -> Option<usize> {
    usize::try_from(number).ok()
}

/// Prints a message on standard error, in one write: lines of several processes stay whole.
pub(crate) fn say(what: &str) {
    let line = format!("libtranship_zcopy: {what}\n");
    // Standard error may have no reader.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Parses bytes, or a number with `KiB`, `MiB`, `GiB`. An unreadable value is reported, and left out.
fn number(name: &str, what: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let (digits, shift) = [("KiB", 10), ("MiB", 20), ("GiB", 30)]
        .into_iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))
        .unwrap_or((&text, 0));
    let bytes = digits
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_shl(shift));
    if bytes.is_none() {
        say(&format!("{name}={text} is no {what}"));
    }
    bytes
}
