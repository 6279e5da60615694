//! Counts of senders, where other processes can see them: a page that each process keeps in a memfd while it lives, or
//! in a file that stays.
//!
//! Its reader finds the memfd among the process's descriptors. Nobody is asked or interrupted, and each word has one
//! writer, so a send pays a few stores for it.

pub(crate) mod layout;
mod own;
mod place;

pub(crate) use own::NAME;
pub(crate) use place::Tally;
