//! Between bytes and fractions of them.

/// Converts to a fraction: exact below 2^53, which is more memory than there is.
pub(super) fn real(bytes: u64) -> f64 {
    bytes as f64
}

/// Rounds down; the result is 0 for a negative number or NaN.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a float's cast saturates
pub(super) fn bytes(value: f64) -> u64 {
    value as u64
}
