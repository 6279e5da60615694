//! What the environment says, read once.

/// Bytes from which on a block comes from the twin allocator.
const LEAST: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) least: usize,
    pub(crate) max: Option<u64>,
    pub(crate) stats: bool,
}

pub(crate) fn wishes() -> Wishes {
    Wishes {
        least: size("TRANSHIP_ZCOPY_MIN")
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(LEAST)
            .max(1),
        max: size("TRANSHIP_ZCOPY_MAX"),
        stats: std::env::var_os("TRANSHIP_ZCOPY_STATS").is_some_and(|word| word != "0"),
    }
}

/// Bytes, or a number with `KiB`, `MiB`, `GiB`. What cannot be read is said, and left out.
fn size(name: &str) -> Option<u64> {
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
        eprintln!(
            "libtranship_zcopy: {name}={text} is no size; bytes, or a number with KiB, MiB or GiB"
        );
    }
    bytes
}
