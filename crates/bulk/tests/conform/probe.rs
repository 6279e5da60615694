//! What touching memory really does, in this crate's words.

use tranship_bulk::Access;
use tranship_testkit::probe;

pub struct Probe(probe::Probe);

impl Probe {
    pub fn new() -> Probe {
        Probe(probe::Probe::new())
    }

    /// Reads a byte at the address, and writes it back.
    pub fn touch(&self, address: usize) -> Access {
        match self.0.touch(address) {
            probe::Access::None => Access::None,
            probe::Access::Read => Access::Read,
            probe::Access::ReadWrite => Access::ReadWrite,
        }
    }
}
