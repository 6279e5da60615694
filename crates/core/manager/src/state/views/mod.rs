//! What others are shown: records of the state, histories of buffers, and the audit of all books.

pub(super) mod audit;
pub(super) mod stat;
pub(super) mod trace;
