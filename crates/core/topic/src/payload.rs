//! What can be published.

use tranship_core::{Buffer, BufferMut, Error, ErrorKind, INLINE_BYTES, SendError};

/// What a publisher can send: a [`Buffer`] or a [`BufferMut`] of the topic's own pool, or a few bytes inside the line;
/// each alone or with a word of the program's own, as `(buffer, word)`.
///
/// Both kinds of buffer are shared: nobody but the publisher can write a topic's pool.
pub trait Publish: Sealed {
    /// What an error gives back.
    type Unsent;

    #[doc(hidden)]
    fn into_parts(self) -> (Parts<Self::Bytes>, u64);

    #[doc(hidden)]
    fn unsent(buffer: Option<Buffer>, word: u64) -> Option<Self::Unsent>;
}

#[doc(hidden)]
pub trait Sealed {
    type Bytes: AsRef<[u8]>;
}

#[doc(hidden)]
#[derive(Debug)]
pub enum Parts<B> {
    Buffer(Buffer),
    Bytes(B),
}

impl<B: AsRef<[u8]>> Parts<B> {
    /// Says whether bytes fit into a line.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Parts::Bytes(bytes) = self else {
            return Ok(());
        };
        let len = bytes.as_ref().len();
        if len <= INLINE_BYTES {
            return Ok(());
        }
        let text = format!(
            "{len} bytes do not fit into a line, which holds {INLINE_BYTES}: put them into a buffer (Publisher::alloc)"
        );
        Err(Error::new(ErrorKind::TooLarge, text))
    }
}

impl Sealed for Buffer {
    type Bytes = [u8; 0];
}

impl Publish for Buffer {
    type Unsent = Buffer;

    fn into_parts(self) -> (Parts<[u8; 0]>, u64) {
        (Parts::Buffer(self), 0)
    }

    fn unsent(buffer: Option<Buffer>, _: u64) -> Option<Buffer> {
        buffer
    }
}

impl Sealed for BufferMut {
    type Bytes = [u8; 0];
}

/// An error gives back the frozen buffer.
impl Publish for BufferMut {
    type Unsent = Buffer;

    fn into_parts(self) -> (Parts<[u8; 0]>, u64) {
        (Parts::Buffer(self.freeze()), 0)
    }

    fn unsent(buffer: Option<Buffer>, _: u64) -> Option<Buffer> {
        buffer
    }
}

impl<'a> Sealed for &'a [u8] {
    type Bytes = &'a [u8];
}

impl<'a> Publish for &'a [u8] {
    type Unsent = ();

    fn into_parts(self) -> (Parts<&'a [u8]>, u64) {
        (Parts::Bytes(self), 0)
    }

    fn unsent(_: Option<Buffer>, _: u64) -> Option<()> {
        Some(())
    }
}

impl<'a, const N: usize> Sealed for &'a [u8; N] {
    type Bytes = &'a [u8];
}

impl<'a, const N: usize> Publish for &'a [u8; N] {
    type Unsent = ();

    fn into_parts(self) -> (Parts<&'a [u8]>, u64) {
        const { assert!(N <= INLINE_BYTES, "so many bytes do not fit into a line") };
        (Parts::Bytes(self), 0)
    }

    fn unsent(_: Option<Buffer>, _: u64) -> Option<()> {
        Some(())
    }
}

impl<P: Sealed> Sealed for (P, u64) {
    type Bytes = P::Bytes;
}

impl<P: Publish> Publish for (P, u64) {
    type Unsent = (P::Unsent, u64);

    fn into_parts(self) -> (Parts<P::Bytes>, u64) {
        (self.0.into_parts().0, self.1)
    }

    fn unsent(buffer: Option<Buffer>, word: u64) -> Option<(P::Unsent, u64)> {
        Some((P::unsent(buffer, 0)?, word))
    }
}

/// Makes the error that gives back what was not published.
pub(crate) fn not_sent<P: Publish>(
    error: Error,
    parts: Parts<P::Bytes>,
    word: u64,
) -> SendError<P::Unsent> {
    let buffer = match parts {
        Parts::Buffer(buffer) => Some(buffer),
        Parts::Bytes(_) => None,
    };
    let unsent = P::unsent(buffer, word).expect("a payload gives back what it was made of");
    SendError::new(error, unsent)
}
