//! Between bytes and fractions of them.

/// Converts to a fraction: exact below 2^53, which is more memory than there is.
pub(crate) fn real(bytes: u64) -> f64 {
    bytes as f64
}

/// Rounds down; the result is 0 for a negative number or NaN.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a float's cast saturates
pub(crate) fn bytes(value: f64) -> u64 {
    value as u64
}

/// Returns the next multiple, or the largest one.
pub(crate) fn up(value: u64, grain: u64) -> u64 {
    let grain = grain.max(1);
    value
        .checked_next_multiple_of(grain)
        .unwrap_or(u64::MAX / grain * grain)
}

pub(crate) fn down(value: u64, grain: u64) -> u64 {
    value - value % grain.max(1)
}
