//! Real effect of touching memory, without dying of it: the kernel copies to and from user memory through the same page
//! tables as the program's own loads and stores.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsRawFd;

/// Access at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    None,
    Read,
    ReadWrite,
}

#[derive(Debug)]
pub struct Probe {
    from: PipeReader,
    to: PipeWriter,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe::new()
    }
}

impl Probe {
    pub fn new() -> Probe {
        let (from, to) = std::io::pipe().expect("pipe");
        Probe { from, to }
    }

    /// Reads a byte at the address, and writes it back.
    pub fn touch(&self, address: usize) -> Access {
        let at = std::ptr::with_exposed_provenance_mut::<libc::c_void>(address);
        // SAFETY: the kernel checks the address; the byte that is written is the one that was read.
        unsafe {
            if libc::write(self.to.as_raw_fd(), at, 1) != 1 {
                return Access::None;
            }
            if libc::read(self.from.as_raw_fd(), at, 1) == 1 {
                return Access::ReadWrite;
            }
            let mut byte = 0u8;
            let own = (&raw mut byte).cast();
            assert_eq!(libc::read(self.from.as_raw_fd(), own, 1), 1);
        }
        Access::Read
    }
}
