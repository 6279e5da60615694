//! Views of the state for others: records, histories of buffers, and the audit of all books.

pub(super) mod audit;
pub(super) mod stat;
pub(super) mod trace;
