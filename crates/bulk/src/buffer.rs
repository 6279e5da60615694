//! Handles of buffers: one that is owned, and one that was copied.

use crate::domain::Shared;
use crate::memory::Memory;
use crate::{BufferState, Error, Kind};
use std::sync::Arc;
use tranship_region::View;

/// A buffer that this domain owns: to be filled, read, moved, passed, copied.
///
/// Dropping it lets it go: it becomes free in its pool, or goes back to the domain that its pool came from.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) domain: Arc<Shared>,
    pub(crate) at: (u64, u32),
    pub(crate) live: bool,
    /// Stays mapped as long as the handle, also when the pool ends.
    pub(crate) memory: Option<Arc<Memory>>,
}

impl Buffer {
    pub(crate) fn new(domain: &Arc<Shared>, at: (u64, u32), memory: Option<Arc<Memory>>) -> Buffer {
        Buffer {
            domain: Arc::clone(domain),
            at,
            live: true,
            memory,
        }
    }

    /// Alone ours, or with copies elsewhere.
    #[must_use]
    pub fn state(&self) -> BufferState {
        let state = self.domain.lock();
        let slot = state.slot(self.at.0, self.at.1);
        slot.map_or(BufferState::Invalid, |(_, slot)| slot.state())
    }

    /// Copies bytes in. [`Kind::BufferState`] while copies are out, and in a `producer` pool of somebody else.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.domain.write_raw(self.at, offset, bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.live {
            self.domain.let_go(self.at);
        }
    }
}

/// A copy of somebody else's buffer, for reading.
///
/// Dropping it releases it, later if copies that were made of it are still out.
#[derive(Debug)]
pub struct ReadBuffer {
    pub(crate) domain: Arc<Shared>,
    pub(crate) at: (u64, u32),
    pub(crate) channel: u64,
    pub(crate) live: bool,
    /// As in [`Buffer`].
    pub(crate) memory: Option<Arc<Memory>>,
}

impl ReadBuffer {
    pub(crate) fn new(
        domain: &Arc<Shared>,
        at: (u64, u32),
        channel: u64,
        memory: Option<Arc<Memory>>,
    ) -> ReadBuffer {
        ReadBuffer {
            domain: Arc::clone(domain),
            at,
            channel,
            live: true,
            memory,
        }
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if self.live {
            self.domain.let_copy_go(self.channel, self.at);
        }
    }
}

/// What both kinds of handles can do.
macro_rules! readable {
    ($name:ident) => {
        impl $name {
            /// Its pool's number.
            #[must_use]
            pub fn pool(&self) -> u64 {
                self.at.0
            }

            /// Its place in the pool.
            #[must_use]
            pub fn index(&self) -> u32 {
                self.at.1
            }

            /// Its length, bytes.
            #[must_use]
            pub fn len(&self) -> usize {
                length(&self.domain, self.at)
            }

            /// Never: a buffer has at least one page.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                false
            }

            /// Copies bytes out.
            pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
                self.domain.read_raw(self.at, offset, to)
            }

            /// Its bytes in place, while `with` runs; others may change them if they break the rules of a `full` or `half`
            /// pool, or created a `producer` pool. `with` must not use the domain.
            pub fn view<R>(&self, with: impl FnOnce(View<'_>) -> R) -> Result<R, Error> {
                view(&self.domain, self.at, with)
            }
        }
    };
}
readable!(Buffer);
readable!(ReadBuffer);

/// What can be read, and so copied: [`Buffer`] and [`ReadBuffer`].
pub trait Readable: sealed::Sealed {}

impl Readable for Buffer {}
impl Readable for ReadBuffer {}

pub(crate) mod sealed {
    use super::{Arc, Buffer, ReadBuffer, Shared};

    pub trait Sealed {
        #[doc(hidden)]
        fn place(&self) -> (&Arc<Shared>, (u64, u32));
    }

    impl Sealed for Buffer {
        fn place(&self) -> (&Arc<Shared>, (u64, u32)) {
            (&self.domain, self.at)
        }
    }

    impl Sealed for ReadBuffer {
        fn place(&self) -> (&Arc<Shared>, (u64, u32)) {
            (&self.domain, self.at)
        }
    }
}

fn length(domain: &Shared, (pool, index): (u64, u32)) -> usize {
    let state = domain.lock();
    let slot = state.slot(pool, index);
    slot.map_or(0, |(pool, _)| pool.memory.buffer_bytes())
}

/// With the memory kept mapped and no lock held. What the handle allows stays allowed while it is borrowed: only
/// operations that take it, or a death, change that.
fn view<R>(
    domain: &Shared,
    (pool, index): (u64, u32),
    with: impl FnOnce(View<'_>) -> R,
) -> Result<R, Error> {
    let mut state = domain.lock();
    state.settle((pool, index));
    let (found, slot) = state.slot(pool, index)?;
    if slot.state() == BufferState::Invalid {
        return Err(Kind::BufferInvalid.into());
    }
    let memory = Arc::clone(&found.memory);
    drop(state);
    Ok(with(memory.view(index)?))
}
