//! One attacking process: its knowledge, and the things that it keeps so that it stays in the manager's tables.

use std::any::Any;
use std::collections::VecDeque;
use std::fs::File;

use crate::Random;

/// Results of attacks that are kept at once; the oldest goes when there are more.
const KEPT: usize = 48;

/// State of an attacker.
pub struct Attacker {
    pub random: Random,
    /// Names that honest domains offer.
    pub names: Vec<String>,
    /// A file whose being closed nobody answers. It stays open: closing it would wait here as well.
    pub silent: Option<File>,
    kept: VecDeque<Box<dyn Any>>,
    made: u64,
}

impl std::fmt::Debug for Attacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { random, names, .. } = self;
        write!(f, "Attacker of {names:?}, {random:?}, ")?;
        write!(f, "{} results kept", self.kept.len())
    }
}

impl Attacker {
    #[must_use]
    pub fn new(random: Random, names: Vec<String>, silent: Option<File>) -> Self {
        Self {
            random,
            names,
            silent,
            kept: VecDeque::new(),
            made: 0,
        }
    }

    /// Keeps connections and descriptors, so that their entries in the manager stay.
    pub fn keep(&mut self, what: impl Any) {
        self.kept.push_back(Box::new(what));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// Returns a name that no other process has.
    pub fn fresh(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", std::process::id(), self.made)
    }

    /// Returns one of the honest names.
    pub fn victim(&mut self) -> Option<String> {
        let at = self.random.below(self.names.len() as u64);
        self.names.get(usize::try_from(at).ok()?).cloned()
    }
}
