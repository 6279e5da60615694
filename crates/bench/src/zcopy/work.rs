//! One cell's work.

use std::time::Duration;

/// Connections at a time.
pub const CONNECTIONS: usize = 16;
/// Bytes before each value, as a protocol has.
pub const HEADER: usize = 40;

/// One cell's work.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub value: usize,
    pub count: usize,
    pub depth: usize,
    pub copies: bool,
    pub budget: Duration,
}
