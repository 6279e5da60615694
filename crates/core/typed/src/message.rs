//! Types of messages, and of items behind a message.

use crate::layout::Layout;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// A value that its bytes in memory represent completely, and whose layout is known: a plain struct, an integer, or an
/// array of these.
///
/// `#[derive(Message)]` describes the layout. `zerocopy`'s derive macros, which have to stand beside it, prove that the
/// bytes are the value: a struct has no padding and no pointers. A type for which some bytes are not a value, such as
/// `bool` or an enum, has `TryFromBytes` in place of `FromBytes`.
///
/// ```
/// # extern crate tranship_typed as typed;
/// use typed::Message;
/// use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// # #[message(crate = typed)]
/// #[repr(C)]
/// struct Frame {
///     taken_ns: u64,
///     width: u32,
///     height: u32,
/// }
/// assert!(Frame::layout().to_string().contains("width: u32 at 8"));
/// ```
///
/// A struct with padding does not compile:
///
/// ```compile_fail
/// # extern crate tranship_typed as typed;
/// use typed::Message;
/// use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// # #[message(crate = typed)]
/// #[repr(C)]
/// struct Holed {
///     kind: u8,
///     taken_ns: u64, // seven bytes before it are nobody's
/// }
/// ```
pub trait Message: TryFromBytes + IntoBytes + Immutable + KnownLayout + Sized + 'static {
    /// Describes the type: its name, its size, its fields.
    fn layout() -> Layout;
}

macro_rules! plain {
    ($($type:ident)*) => {
        $(impl Message for $type {
            fn layout() -> Layout {
                Layout::of::<$type>(stringify!($type))
            }
        })*
    };
}

plain!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 bool);

/// The empty message. A channel that carries only items is `Sender<(), [T]>`.
impl Message for () {
    fn layout() -> Layout {
        Layout::of::<()>("()")
    }
}

impl<T: Message, const N: usize> Message for [T; N] {
    fn layout() -> Layout {
        T::layout().times(N)
    }
}

/// Data behind a message in the same buffer: `()`, nothing, or `[T]`, any number of items.
pub trait Items: sealed::Sealed + 'static {
    /// One item.
    type Item: Message;

    /// Returns the layout of a message `M` with these items behind it.
    #[doc(hidden)]
    fn behind<M: Message>() -> Layout;

    /// Returns how many items a message of `bytes` bytes has, or `None` if no message has that length.
    #[doc(hidden)]
    fn count<M: Message>(bytes: usize) -> Option<usize>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl<T> Sealed for [T] {}
}

/// Returns the offset of the first item behind a message: the message's size, rounded up to the alignment of an item.
pub(crate) const fn first<M, T>() -> usize {
    size_of::<M>().next_multiple_of(align_of::<T>())
}

impl Items for () {
    type Item = ();

    fn behind<M: Message>() -> Layout {
        M::layout()
    }

    fn count<M: Message>(bytes: usize) -> Option<usize> {
        (bytes == size_of::<M>()).then_some(0)
    }
}

impl<T: Message> Items for [T] {
    type Item = T;

    fn behind<M: Message>() -> Layout {
        M::layout().followed_by(T::layout(), first::<M, T>())
    }

    fn count<M: Message>(bytes: usize) -> Option<usize> {
        const { assert!(size_of::<T>() > 0, "items have bytes") };
        let items = bytes.checked_sub(first::<M, T>())?;
        items
            .is_multiple_of(size_of::<T>())
            .then(|| items / size_of::<T>())
    }
}
