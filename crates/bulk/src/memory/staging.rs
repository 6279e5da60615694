//! What the other end of a channel of level `none` is shown in the place of a pool: memory in which a buffer's bytes are from the
//! moment at which they are sent over that channel.
//!
//! The other end copies them out of it when the buffer arrives. Were it shown the pool, one copy less would do, but then it could
//! read what goes to others, what was not sent yet, and what was never to be sent.

use super::Memory;
use crate::account::Account;
use crate::{Error, Kind, PoolInfo, Trust};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_region::View;
use tranship_sys::map::Within;

/// One channel's, with a place for each buffer of the pool.
#[derive(Debug)]
pub(crate) struct Staging(Memory);

impl Staging {
    /// All zeros. As much memory as the pool, charged to who makes it: what is not there would be charged to who reads it.
    pub(crate) fn make(info: &PoolInfo, account: &Arc<Account>) -> Result<Staging, Error> {
        let memory = Memory::make(info, account, Within::ANYWHERE)?;
        memory.seal(Trust::None)?;
        Ok(Staging(memory))
    }

    pub(crate) fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.0.fd()
    }

    /// Copies a buffer's bytes in, which must be readable now.
    pub(crate) fn put(&self, pool: &Memory, index: u32) -> Result<(), Error> {
        let (bytes, at) = (pool.view(index)?, self.0.offset(index));
        let written = self.0.map.write(at, bytes);
        written.map_err(Error::of(Kind::BufferInvalid))
    }

    /// It was not sent after all.
    pub(crate) fn wipe(&self, index: u32) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let begin = self.0.offset(index);
        for at in (begin..begin + self.0.buffer_bytes()).step_by(ZEROS.len()) {
            // Whole pages: inside.
            let _ = self.0.map.write(at, View::from_slice(&ZEROS));
        }
    }
}
