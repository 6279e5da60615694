//! The bytes of chains: copying them in and out, sharing them, reading and writing them as other crates do.

mod buf;
mod copy;
mod io;
mod share;

pub use buf::{Reader, Writer};
