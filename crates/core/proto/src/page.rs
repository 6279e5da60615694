//! What is on the statistics page (`docs/format.md`, kind 10): records of words, for tools that read it while the manager may hang.
//!
//! A record is a word `kind | words << 16 | text bytes << 32`, its words, and its text, filled up with zeros to whole words. Who reads skips kinds that it
//! does not know and words beyond those that it knows, and takes words that are not there for 0: both may be added.

mod records;
mod words;

pub use records::{ChannelView, HoldView, PageRecord, PoolView};
pub use words::{decode_page, encode_page};
