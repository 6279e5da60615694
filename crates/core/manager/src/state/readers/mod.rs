//! Reader sets: assignments of pools to channels, and what joins and leaves a pool's reader set.

pub(super) mod assign;
pub(super) mod departures;
pub(super) mod offers;
pub(super) mod reader_set;
pub(super) mod withdraw;
