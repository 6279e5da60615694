//! Packet queues (`mbufq`): lists through the mbufs themselves, so that queueing allocates nothing.

use crate::chain::Chain;
use crate::seg::Seg;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A first-in-first-out queue of chains, with a limit.
///
/// ```
/// # mod tranship { pub use tranship_mbuf as mbuf; }
/// use tranship::mbuf::{Mbufs, PacketQueue};
///
/// let mbufs = Mbufs::new()?;
/// let mut queue = PacketQueue::new(1);
/// assert!(queue.enqueue(mbufs.devget(b"first", 0)?).is_ok());
/// let back = queue.enqueue(mbufs.devget(b"second", 0)?); // it is full
/// assert_eq!(back.unwrap_err().to_vec()?, b"second");
/// assert_eq!(queue.dequeue().unwrap().to_vec()?, b"first");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mbufq")]
#[repr(C)] // four words, which the C interface has in its own struct
pub struct PacketQueue {
    first: Option<Seg>,
    last: Option<Seg>,
    len: usize,
    limit: usize,
    owns: PhantomData<Chain>,
}

// SAFETY: it owns its chains, which are Send.
unsafe impl Send for PacketQueue {}

impl PacketQueue {
    /// Makes an empty queue for at most `limit` chains (`mbufq_init`).
    #[doc(alias = "mbufq_init")]
    #[must_use]
    pub fn new(limit: usize) -> PacketQueue {
        PacketQueue {
            first: None,
            last: None,
            len: 0,
            limit,
            owns: PhantomData,
        }
    }

    /// Returns the number of chains (`mbufq_len`).
    #[doc(alias = "mbufq_len")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Says whether there are no chains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Says whether there is no room (`mbufq_full`).
    #[doc(alias = "mbufq_full")]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the first chain of a list that [`into_raw`](Self::into_raw) made, and the rest of that list, for C
    /// programs.
    ///
    /// # Safety
    /// The pointer is a chain's that is in no queue.
    #[must_use]
    pub unsafe fn next_raw(chain: NonNull<()>) -> Option<NonNull<()>> {
        // SAFETY: as the caller promises.
        let next = unsafe { Seg::new(chain.cast()) }.nextpkt();
        next.and_then(|seg| NonNull::new(seg.raw().cast()))
    }

    /// Takes all chains out, as a list of plain pointers for C programs: the first one, from which
    /// [`next_raw`](Self::next_raw) leads to the next.
    pub fn into_raw(&mut self) -> Option<NonNull<()>> {
        let first = self.first.take();
        (self.last, self.len) = (None, 0);
        first.and_then(|seg| NonNull::new(seg.raw().cast()))
    }

    /// Puts a chain at the end; gives it back if the queue is full (`mbufq_enqueue`, `ENOBUFS`).
    ///
    /// # Errors
    /// The chain, if the queue is full.
    #[doc(alias = "mbufq_enqueue")]
    pub fn enqueue(&mut self, chain: Chain) -> Result<(), Chain> {
        if self.is_full() {
            return Err(chain);
        }
        self.push(chain);
        Ok(())
    }

    fn push(&mut self, chain: Chain) {
        let seg = chain.into_first();
        seg.set_nextpkt(None);
        match self.last {
            Some(last) => last.set_nextpkt(Some(seg)),
            None => self.first = Some(seg),
        }
        self.last = Some(seg);
        self.len += 1;
    }

    /// Takes the first chain out (`mbufq_dequeue`).
    #[doc(alias = "mbufq_dequeue")]
    pub fn dequeue(&mut self) -> Option<Chain> {
        let seg = self.first?;
        self.first = seg.nextpkt();
        if self.first.is_none() {
            self.last = None;
        }
        seg.set_nextpkt(None);
        self.len -= 1;
        Some(Chain::new(seg))
    }

    /// Puts a chain in front, even if the queue is full (`mbufq_prepend`): a chain that was taken out can always go
    /// back.
    #[doc(alias = "mbufq_prepend")]
    pub fn prepend(&mut self, chain: Chain) {
        let seg = chain.into_first();
        seg.set_nextpkt(self.first);
        self.first = Some(seg);
        if self.last.is_none() {
            self.last = Some(seg);
        }
        self.len += 1;
    }

    /// Moves all chains of another queue behind this queue's own, regardless of the limit (`mbufq_concat`).
    #[doc(alias = "mbufq_concat")]
    pub fn concat(&mut self, other: &mut PacketQueue) {
        let Some(first) = other.first.take() else {
            return;
        };
        match self.last {
            Some(last) => last.set_nextpkt(Some(first)),
            None => self.first = Some(first),
        }
        self.last = other.last.take();
        self.len += std::mem::take(&mut other.len);
    }

    /// Takes all chains out, as another queue (`mbufq_flush`).
    #[doc(alias = "mbufq_flush")]
    #[must_use]
    pub fn flush(&mut self) -> PacketQueue {
        let limit = self.limit;
        std::mem::replace(self, PacketQueue::new(limit))
    }

    /// Frees all chains (`mbufq_drain`).
    #[doc(alias = "mbufq_drain")]
    pub fn drain(&mut self) {
        while self.dequeue().is_some() {}
    }

    /// Returns the first chain, in its place (`mbufq_first`).
    #[doc(alias = "mbufq_first")]
    #[must_use]
    pub fn first(&self) -> Option<&Chain> {
        self.iter().next()
    }

    /// Returns the last chain, in its place (`mbufq_last`).
    #[doc(alias = "mbufq_last")]
    #[must_use]
    pub fn last(&self) -> Option<&Chain> {
        self.last.as_ref().map(as_chain)
    }

    /// Returns all chains, in their places.
    pub fn iter(&self) -> impl Iterator<Item = &Chain> {
        let mut at = self.first.as_ref();
        std::iter::from_fn(move || {
            let seg = at?;
            at = seg.nextpkt_ref();
            Some(as_chain(seg))
        })
    }

    /// Returns the bytes of all chains.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(Chain::len).sum()
    }
}

/// Views a link as a chain: a chain is only the pointer to its first mbuf.
fn as_chain(seg: &Seg) -> &Chain {
    // SAFETY: `Chain` is a transparent wrapper of `Seg`, and the queue owns the mbufs.
    unsafe { &*std::ptr::from_ref(seg).cast::<Chain>() }
}

impl Drop for PacketQueue {
    fn drop(&mut self) {
        self.drain();
    }
}

impl Extend<Chain> for PacketQueue {
    /// Puts all chains at the end, regardless of the limit.
    fn extend<I: IntoIterator<Item = Chain>>(&mut self, chains: I) {
        chains.into_iter().for_each(|chain| self.push(chain));
    }
}

impl fmt::Debug for PacketQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketQueue")
            .field("len", &self.len)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
