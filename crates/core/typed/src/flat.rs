//! FlatBuffers, built inside a buffer and read where they lie.
//!
//! ```
//! # mod tranship { pub use tranship_core::*; pub use tranship_typed as typed; }
//! use flatbuffers::{ForwardsUOffset, Vector};
//! use tranship::{Domain, PoolOptions};
//! use tranship::typed::flat;
//!
//! let domain = Domain::embedded()?;
//! let pool = domain.create_pool(PoolOptions::new(16 << 20))?;
//! let mut builder = flat::builder(1000, |len| pool.alloc(len))?;
//! let names = [builder.create_string("a"), builder.create_string("b")];
//! let names = builder.create_vector(&names); // or a table of your schema's
//! builder.finish(names, None);
//! let buffer = flat::finish(builder)?; // to be sent
//!
//! let names = flat::root::<Vector<ForwardsUOffset<&str>>>(&buffer)?;
//! assert_eq!((names.len(), names.get(1)), (2, "b"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use flatbuffers::{Allocator, FlatBufferBuilder, Follow, Verifiable};
use std::convert::Infallible;
use std::fmt;
use std::ops::{Deref, DerefMut};
use tranship_core::{Buffer, BufferMut, Error, ErrorKind};

/// The length of a [`Builder`]'s memory is a multiple of this, since FlatBuffers are aligned from their end.
const ALIGN: usize = 64;

/// Builds a FlatBuffer inside a buffer.
pub type Builder<'a> = FlatBufferBuilder<'a, Room<'a>>;

type Alloc<'a> = Box<dyn FnMut(usize) -> Result<BufferMut, Error> + 'a>;

/// The memory in which a FlatBuffer grows: a buffer, and a larger one when that is full.
pub struct Room<'a> {
    memory: Memory,
    alloc: Alloc<'a>,
    /// The error for which there was no larger buffer. The builder cannot fail, so it then continues in private memory.
    failed: Option<Error>,
}

enum Memory {
    Buffer(BufferMut),
    Private(Vec<u8>),
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Room({} bytes)", self.len())
    }
}

impl Deref for Room<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Buffer(buffer) => buffer,
            Memory::Private(bytes) => bytes,
        }
    }
}

impl DerefMut for Room<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Buffer(buffer) => buffer,
            Memory::Private(bytes) => bytes,
        }
    }
}

#[expect(
    unsafe_code,
    reason = "the library's trait is unsafe, and its only way to build in memory of one's own"
)]
// SAFETY: `grow_downwards` makes the memory longer, keeps the old contents at its end, and `len` is its length, as the trait says. No other
// process can write the memory: `ours` lets no other buffer in.
unsafe impl Allocator for Room<'_> {
    type Error = Infallible;

    fn grow_downwards(&mut self) -> Result<(), Infallible> {
        let old = self.len();
        let new = (2 * old).next_multiple_of(ALIGN).max(ALIGN);
        let grown = match &self.failed {
            None => (self.alloc)(new).and_then(ours),
            Some(failed) => Err(failed.clone()),
        };
        let mut grown = match grown {
            Ok(buffer) => Memory::Buffer(buffer),
            Err(error) => {
                self.failed = Some(error);
                Memory::Private(vec![0; new])
            }
        };
        let to = match &mut grown {
            Memory::Buffer(buffer) => &mut buffer[..],
            Memory::Private(bytes) => bytes,
        };
        let (fresh, kept) = to.split_at_mut(new - old);
        fresh.fill(0);
        kept.copy_from_slice(self);
        self.memory = grown;
        Ok(())
    }

    fn len(&self) -> usize {
        self.deref().len()
    }
}

/// Returns the buffer if no other domain can write it.
fn ours(mut buffer: BufferMut) -> Result<BufferMut, Error> {
    match buffer.bytes_mut() {
        Some(_) => Ok(buffer),
        None => {
            let text = "other domains can write the pool: a FlatBuffer is built in a pool of level producer or none";
            Err(Error::new(ErrorKind::BufferState, text))
        }
    }
}

/// Makes a builder whose memory comes from `alloc`, such as a channel's or a pool's. The first buffer has `bytes`
/// bytes. Each time a buffer is full, the builder allocates one twice as long and copies the contents to it.
///
/// # Errors
/// Of `alloc`; `BufferState`: other domains can write its memory.
pub fn builder<'a>(
    bytes: usize,
    mut alloc: impl FnMut(usize) -> Result<BufferMut, Error> + 'a,
) -> Result<Builder<'a>, Error> {
    let mut buffer = ours(alloc(bytes.next_multiple_of(ALIGN).max(ALIGN))?)?;
    buffer.fill(0);
    Ok(FlatBufferBuilder::new_in(Room {
        memory: Memory::Buffer(buffer),
        alloc: Box::new(alloc),
        failed: None,
    }))
}

/// Takes the finished FlatBuffer out, as a buffer that can be sent. Nothing is copied.
///
/// # Errors
/// The error of `alloc`, if it failed when the builder had to grow.
///
/// # Panics
/// If the builder is not finished. (`FlatBufferBuilder` panics for this reason too.)
pub fn finish(builder: Builder<'_>) -> Result<Buffer, Error> {
    let _ = builder.finished_data();
    let (room, start) = builder.collapse_in();
    match (room.memory, room.failed) {
        (Memory::Buffer(buffer), None) => Ok(buffer.freeze().slice(start..)),
        (_, Some(failed)) => Err(failed),
        (Memory::Private(_), None) => Err(ErrorKind::Internal.into()),
    }
}

/// Checks a received FlatBuffer, and returns its root, which lies in the buffer.
///
/// # Errors
/// `PeerViolation`: the bytes are not a FlatBuffer of that type. `BufferState`: the sender can still change the bytes,
/// so that no check holds. The bytes cannot change where the pool's level is `none`, where they were copied or carried,
/// and after `trust_writer`. Otherwise copy them ([`Buffer::to_vec`]).
pub fn root<'b, T>(buffer: &'b Buffer) -> Result<T::Inner, Error>
where
    T: Follow<'b> + Verifiable + 'b,
{
    let bytes = crate::value::unchanging(buffer)?;
    flatbuffers::root::<T>(bytes).map_err(|invalid| {
        let text = format!("bytes came that are no such FlatBuffer: {invalid}");
        Error::new(ErrorKind::PeerViolation, text)
    })
}
