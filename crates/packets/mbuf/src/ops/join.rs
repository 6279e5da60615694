//! Putting chains together.

use crate::chain::Chain;
use crate::counts::Routine;
use crate::ext;
use crate::flags::Flags;

impl Chain {
    /// Puts another chain behind this one (`m_cat`, `m_catpkt`).
    ///
    /// The other chain's header is dropped, and a packet's length becomes that of both (`m_cat` leaves that to its
    /// caller). The other chain's first mbufs are copied and freed, as long as their bytes fit into the writable space
    /// at the end.
    #[doc(alias = "m_cat")]
    #[doc(alias = "m_catpkt")]
    pub fn cat(&mut self, mut other: Chain) {
        self.routine(Routine::Cat);
        let added = other.len();
        other.demote();
        let last = self.first().last();
        let mut next = Some(other.into_first());
        while let Some(seg) = next {
            let fits = seg.readable()
                && seg.len() <= last.trailing()
                && !last.has(Flags::EOR)
                && seg.read_into(0, last, last.len(), seg.len()).is_ok();
            if !fits {
                break;
            }
            last.set_len(last.len() + seg.len());
            last.set_flags(last.flags() | seg.flags() & Flags::EOR);
            // SAFETY: it was the other chain's and is in none now.
            next = unsafe { ext::free_one(seg) };
        }
        last.set_next(next);
        self.first().grow_packet(added);
    }
}
