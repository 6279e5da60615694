//! The two halves of a link, and how its ends sleep and are woken.

use super::wire::Wire;
use super::{LINES, Wait};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::time::Duration;
use tranship_region::layout::link::{LinkHalfRo, LinkHalfRw};
use tranship_sys::{futex, socket};

/// How an end sleeps: the lowest bit of its `asleep`. The others number its sleeps, from 1, so that one that was woken and
/// did not run yet is not woken again. What wakes it through the socket.
const ON_WORD: u32 = 0;
const ON_DESCRIPTOR: u32 = 1;
pub(super) const WAKE: &[u8] = b"W";

/// Both halves, once they are known.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) own: LinkHalfRw,
    pub(super) other: LinkHalfRo,
    /// Somebody slept a whole round for nothing: time to look at the socket.
    pub(super) suspect: AtomicBool,
    /// The other end is to tell news through the socket.
    pub(super) armed: AtomicBool,
    /// Sleeps of our own so far, and the sleep of the other end that we ended last.
    pub(super) sleeps: AtomicU32,
    pub(super) ended: AtomicU32,
    pub(super) socket: Arc<Wire>,
}

impl Link {
    /// Wakes the other end, if it sleeps.
    pub(super) fn wake_other(&self) {
        // Ordering: partner: the fence in `wait`. Either it sees what was published, or we see that it sleeps.
        fence(Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// As `wake_other`, after a SeqCst swap of what there is to see.
    #[inline]
    pub(super) fn wake_if_asleep(&self) {
        // Ordering: SeqCst, after the swap in the single total order; partner: the fence in `wait`. Either it sees
        // what was published, or we see that it sleeps.
        let asleep = self.other.asleep().load(Ordering::SeqCst);
        // Ordering: relaxed; whoever ends a sleep has published before, so one end of it is enough for all.
        if asleep == 0 || self.ended.swap(asleep, Ordering::Relaxed) == asleep {
            return;
        }
        match asleep & 1 {
            ON_DESCRIPTOR => {
                // If it is full it is readable.
                let _ = socket::sendmsg(&*self.socket, WAKE, &[], true);
            }
            _ => {
                // Ordering: release, partner: the sleeper's acquire load before it looks again.
                self.own.wake().fetch_add(1, Ordering::Release);
                let _ = futex::wake(self.own.wake(), u32::MAX >> 1);
            }
        }
    }

    /// Says that we sleep, and looks once more: is there nothing to see?
    pub(super) fn fall_asleep(&self, how: u32, head: u64) -> bool {
        // Ordering: relaxed; only the numbers matter. It wraps past 0, which says that we are awake.
        let number = (self.sleeps.fetch_add(1, Ordering::Relaxed) % (u32::MAX >> 1)) + 1;
        // Ordering: relaxed; the fence orders it before the look.
        self.own
            .asleep()
            .store((number << 1) | how, Ordering::Relaxed);
        // Ordering: partner: the swap and load in `wake_if_asleep`.
        fence(Ordering::SeqCst);
        // Ordering: acquire, as in `done` and `recv`.
        !(self.has_line()
            || self.other.head().load(Ordering::Acquire) != head
            || self.other.closed().load(Ordering::Acquire) != 0)
    }

    pub(super) fn disarm(&self) {
        // Ordering: relaxed; words of our own, a late clear costs the other end a needless wake-up.
        self.own.asleep().store(0, Ordering::Relaxed);
        self.armed.store(false, Ordering::Relaxed);
        // What the socket said about it is to be taken.
        self.suspect.store(true, Ordering::Relaxed);
    }

    /// Does a line wait, as far as our shared head says?
    pub(super) fn has_line(&self) -> bool {
        // Ordering: relaxed; our own word.
        let at = self.own.head().load(Ordering::Relaxed);
        let lines = self.other.lines();
        let index = usize::try_from(at & u64::from(LINES - 1)).unwrap_or(0);
        // Ordering: acquire; partner: the producer's release store.
        let word = lines[index].words[0].load(Ordering::Acquire);
        (word & 0xffff_ffff) == ((at + 1) & 0xffff_ffff)
    }
}

#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) link: Arc<Link>,
    /// What the other end had taken when this was made.
    pub(super) head: u64,
}

impl Wait for Sleeper {
    fn wait(&self, limit: Duration) {
        let link = &self.link;
        // Ordering: acquire, partner: the waker's release increment.
        let seen = link.other.wake().load(Ordering::Acquire);
        if link.fall_asleep(ON_WORD, self.head) {
            // Whatever the kernel says, the caller looks again.
            let woken = futex::wait(link.other.wake_ptr(), seen, Some(limit));
            if !matches!(woken, Ok(futex::Woken::Woken)) {
                // Ordering: relaxed; a hint of our own.
                link.suspect.store(true, Ordering::Relaxed);
            }
        }
        // Ordering: relaxed; a late clear costs the other end a needless wake-up.
        link.own.asleep().store(0, Ordering::Relaxed);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.socket.as_fd())
    }

    fn arm(&self) -> bool {
        // Ordering: relaxed; a word of our own.
        self.link.armed.store(true, Ordering::Relaxed);
        self.link.fall_asleep(ON_DESCRIPTOR, self.head)
    }

    fn disarm(&self) {
        self.link.disarm();
    }
}
