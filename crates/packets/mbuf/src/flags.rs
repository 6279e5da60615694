//! An mbuf's flags and kind: one word, 24 bits and 8.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub, SubAssign};

/// Flags of an mbuf (`m_flags`), with its kind (`m_type`) in the top byte.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Flags(pub(crate) u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        impl Flags {
            $($(#[$doc])* pub const $name: Flags = Flags($value);)*
        }
        const NAMES: &[(&str, Flags)] = &[$((stringify!($name), Flags::$name)),*];
    };
}

flags! {
    /// The mbuf has external storage (`M_EXT`).
    EXT = 1;
    /// The mbuf begins a packet (`M_PKTHDR`).
    PKTHDR = 1 << 1;
    /// The mbuf ends a record (`M_EOR`).
    EOR = 1 << 2;
    /// The mbuf's storage must not be written (`M_RDONLY`).
    RDONLY = 1 << 3;
    /// Sent or received as a link-level broadcast (`M_BCAST`).
    BCAST = 1 << 4;
    /// Sent or received as a link-level multicast (`M_MCAST`).
    MCAST = 1 << 5;
    /// The packet is for another host (`M_PROMISC`).
    PROMISC = 1 << 6;
    /// The header's VLAN tag is valid (`M_VLANTAG`).
    VLANTAG = 1 << 7;
    /// The storage is not mapped here (`M_EXTPG`).
    EXTPG = 1 << 8;
    /// The storage may change under the reader: it was received from a writer that is not trusted.
    VOLATILE = 1 << 9;
    /// The header's time stamp is valid (`M_TSTMP`).
    TSTMP = 1 << 10;
    /// The time stamp is of high precision (`M_TSTMP_HPREC`).
    TSTMP_HPREC = 1 << 11;
    /// The time stamp is the receive offload's (`M_TSTMP_LRO`).
    TSTMP_LRO = 1 << 12;
    /// For the protocol (`M_PROTO1`), like the following ten; cleared between layers.
    PROTO1 = 1 << 13;
    /// `M_PROTO2`
    PROTO2 = 1 << 14;
    /// `M_PROTO3`
    PROTO3 = 1 << 15;
    /// `M_PROTO4`
    PROTO4 = 1 << 16;
    /// `M_PROTO5`
    PROTO5 = 1 << 17;
    /// `M_PROTO6`
    PROTO6 = 1 << 18;
    /// `M_PROTO7`
    PROTO7 = 1 << 19;
    /// `M_PROTO8`
    PROTO8 = 1 << 20;
    /// `M_PROTO9`
    PROTO9 = 1 << 21;
    /// `M_PROTO10`
    PROTO10 = 1 << 22;
    /// `M_PROTO11`
    PROTO11 = 1 << 23;
}

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// All flags that belong to the protocol (`M_PROTOFLAGS`).
    pub const PROTOFLAGS: Flags = Flags(0x7ff << 13);
    /// Flags that go with a packet header when it is copied or moved (`M_COPYFLAGS`).
    pub const COPYFLAGS: Flags = Flags(
        Self::PKTHDR.0
            | Self::EOR.0
            | Self::RDONLY.0
            | Self::BCAST.0
            | Self::MCAST.0
            | Self::PROMISC.0
            | Self::VLANTAG.0
            | Self::TSTMP.0
            | Self::TSTMP_HPREC.0
            | Self::TSTMP_LRO.0
            | Self::PROTOFLAGS.0,
    );
    /// Flags that describe the storage; only this crate sets them.
    pub(crate) const STORAGE: Flags =
        Flags(Self::EXT.0 | Self::EXTPG.0 | Self::VOLATILE.0 | Self::RDONLY.0);
    /// All flags of an mbuf that is free: no other one has these without storage.
    pub(crate) const FREED: Flags = Flags(Self::EXTPG.0 | Self::VOLATILE.0);
    /// Flags that a program may set and clear by itself.
    pub(crate) const FREE: Flags = Flags(0xff_ffff & !(Self::STORAGE.0 | Self::PKTHDR.0));
    /// Flags that move with the packet's header.
    pub(crate) const MOVED: Flags = Flags(Self::COPYFLAGS.0 & !Self::RDONLY.0 & !Self::EOR.0);

    /// Returns the flags as one word, in the form of C.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 & 0xff_ffff
    }

    /// Makes flags of such a word. Bits that are no flags are dropped.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Flags {
        Flags(bits & 0xff_ffff)
    }

    /// Says whether all of `other` are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Says whether any of `other` is set.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the kind, in the top byte.
    #[inline]
    #[must_use]
    pub(crate) const fn kind(self) -> Kind {
        Kind((self.0 >> 24) as u8)
    }

    #[inline]
    #[must_use]
    pub(crate) const fn with_kind(self, kind: Kind) -> Flags {
        Flags(self.0 & 0xff_ffff | (kind.0 as u32) << 24)
    }
}

/// An mbuf's kind (`m_type`). The library does not interpret it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(pub u8);

impl Kind {
    /// Data (`MT_DATA`).
    #[doc(alias = "MT_DATA")]
    pub const DATA: Kind = Kind(1);
    /// A socket's name (`MT_SONAME`).
    #[doc(alias = "MT_SONAME")]
    pub const SONAME: Kind = Kind(8);
    /// Control data (`MT_CONTROL`).
    #[doc(alias = "MT_CONTROL")]
    pub const CONTROL: Kind = Kind(14);
    /// Expedited data (`MT_OOBDATA`).
    #[doc(alias = "MT_OOBDATA")]
    pub const OOBDATA: Kind = Kind(16);
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}
impl BitAnd for Flags {
    type Output = Flags;
    #[inline]
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}
impl Sub for Flags {
    type Output = Flags;
    #[inline]
    fn sub(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}
impl SubAssign for Flags {
    #[inline]
    fn sub_assign(&mut self, other: Flags) {
        self.0 &= !other.0;
    }
}
impl Not for Flags {
    type Output = Flags;
    #[inline]
    fn not(self) -> Flags {
        Flags(!self.0 & 0xff_ffff)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, flag) in NAMES {
            if self.contains(*flag) {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        f.write_str(if first { "none" } else { "" })
    }
}
