//! Buffers that domains hold of other domains' pools: for how long, how much of it is charged, and what is done.

pub(super) mod hog;
pub(super) mod hold;
pub(super) mod judge;
pub(super) mod watch;
