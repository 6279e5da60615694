//! What travels beside a buffer.

use smallvec::SmallVec;

/// An operation's metadata: bytes, up to the channel's limit. Short ones take no memory of their own.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Meta(SmallVec<[u8; SHORT]>);

/// Those take none, bytes: what fits into one line of a ring with the rest of the operation.
pub(crate) const SHORT: usize = 40;

impl Meta {
    /// As a vector.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl std::ops::Deref for Meta {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Meta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, f)
    }
}

impl From<&[u8]> for Meta {
    fn from(bytes: &[u8]) -> Meta {
        Meta(SmallVec::from_slice(bytes))
    }
}

impl From<Vec<u8>> for Meta {
    fn from(bytes: Vec<u8>) -> Meta {
        Meta::from(&bytes[..])
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Meta {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == other[..]
    }
}

impl PartialEq<Vec<u8>> for Meta {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == other[..]
    }
}
