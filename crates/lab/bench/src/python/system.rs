//! The systems: each a file in `programs/`, or a variant of one. `systems.json` lists them.

use crate::case::Touch;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A system in Python.
#[derive(Debug, Deserialize)]
pub(super) struct System {
    pub(super) name: &'static str,
    /// The file in `programs/` that runs its sides.
    pub(super) program: &'static str,
    /// Its file in `programs/`, and which of the things that that can do.
    pub(super) module: &'static str,
    pub(super) variant: &'static str,
    /// Modules that the program imports.
    pub(super) needs: Vec<&'static str>,
    /// Whether its sides can look again and again; all can sleep.
    pub(super) spins: bool,
}

/// In the order in which each run visits them, after Rust's.
pub(super) static SYSTEMS: LazyLock<Vec<System>> =
    LazyLock::new(|| serde_json::from_str(include_str!("systems.json")).expect("the list"));

/// Two sides; one writer and several readers, each of which reads every array; loaders of batches, with two workers.
pub(super) const PAIR: &str = "run.py";
pub(super) const SPREAD: &str = "spread.py";
pub(super) const LOADER: &str = "loader.py";

/// Bytes of a batch of 32 images of bytes.
pub(super) const BATCH_BYTES: usize = 32 * 3 * 224 * 224;
/// The product in Rust, and in Python with arrays that are born in a pool.
pub(super) const RUST: &str = "tranship";
pub(super) const ARRAYS: &str = "tranship-python";
/// The one whose program has no numpy: it touches a word alone.
const BUFFER: &str = "tranship-python-buffer";

pub(super) const BOTH: &[Touch] = &[Touch::Word, Touch::Touched];

impl System {
    /// How much it writes and reads of its payload.
    pub(super) fn touches(&self) -> &'static [Touch] {
        match self.name {
            BUFFER => &BOTH[..1],
            _ => BOTH,
        }
    }
}

/// The row's `op`.
pub(super) fn name_of(touch: Touch) -> &'static str {
    match touch {
        Touch::Untouched => "untouched",
        Touch::Word => "word",
        Touch::Touched => "touched",
    }
}

/// A file of this crate's, or of its neighbours'.
pub(super) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
