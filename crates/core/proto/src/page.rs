//! The contents of the statistics page (`docs/format.md`, kind 10): records of words, for tools that read it while the
//! manager may hang.
//!
//! A record is a word `kind | words << 16 | text bytes << 32`, its words, and its text, filled up with zeros to whole
//! words. A reader skips unknown kinds, and words beyond those that it knows. It takes missing words for 0. Both kinds
//! and words may therefore be added.

mod records;
mod words;

pub use records::{ChannelView, HoldView, PageRecord, PoolView};
pub use words::{decode_page, encode_page};
