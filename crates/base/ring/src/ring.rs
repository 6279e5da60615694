//! A ring from one end's side: its own half, which it writes, and the other's, which it reads.

use crate::front::{Behind, Ending};
use crate::half::{HalfRo, HalfRw};
use crate::kernel;
use crate::line::Lines;
use crate::producer::Publish;
use crate::wait::{self, AWAKE, Asleep, Point, SPINNING, is_asleep};
use tranship_sync::atomic::{AtomicU32, Ordering, fence};
use tranship_sync::light_fence;

/// Both halves of a connection. The cursors ([`Producer`](crate::Producer), [`Consumer`](crate::Consumer)) belong to
/// the caller.
///
/// After a publish, the caller uses [`notify`](Ring::notify) or [`fence_then_notify`](Ring::fence_then_notify). An end
/// that finds nothing sleeps on its [`point`](Ring::point) ([`sleep`](crate::sleep)), or [`arm`](Ring::arm)s its
/// descriptor.
#[derive(Debug)]
pub struct Ring {
    own: HalfRw,
    theirs: HalfRo,
    /// The other end's flag when this end last ended a sleep of the other's.
    ended: AtomicU32,
}

impl Ring {
    /// Makes a ring of fresh halves.
    pub fn new(own: HalfRw, theirs: HalfRo) -> Ring {
        Ring {
            own,
            theirs,
            ended: AtomicU32::new(AWAKE),
        }
    }

    /// Returns the half that this end writes.
    pub fn own(&self) -> &HalfRw {
        &self.own
    }

    /// Returns the half that the other end writes.
    pub fn theirs(&self) -> &HalfRo {
        &self.theirs
    }

    /// Returns the lines that this end writes.
    #[inline]
    pub fn own_lines(&self) -> Lines<'_> {
        self.own.ring()
    }

    /// Returns the lines that the other end writes.
    #[inline]
    pub fn their_lines(&self) -> Lines<'_> {
        self.theirs.ring()
    }

    /// Returns how many of this end's lines the other end says it has taken ([`Producer::room`](crate::Producer::room)
    /// judges that).
    #[inline]
    pub fn their_head(&self) -> u64 {
        self.theirs.front().taken()
    }

    /// Returns the other end's own word about its state. All lines that it sent before are there.
    #[inline]
    pub fn their_ending(&self) -> Ending {
        self.theirs.front().ending()
    }

    /// Says whether the other end sleeps until this end acts, or is about to.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        // Ordering: relaxed; it is read again.
        is_asleep(self.theirs.front().asleep.load(Ordering::Relaxed))
    }

    /// Says that this end checks for lines repeatedly, and need not be woken, until the next sleep. That sleep begins
    /// with a fence on every processor, which takes milliseconds.
    pub fn spin(&self) {
        // Leave the flag while a poll loop is to be woken by it. Ordering: relaxed; if the peer sees the change late,
        // that costs a fence.
        let asleep = &self.own.front().asleep;
        let _ = asleep.compare_exchange(AWAKE, SPINNING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Chooses how to publish a line that [`notify_of`](Ring::notify_of) follows: a peer that spins needs no fence.
    #[inline(always)]
    pub fn how_to_publish(&self) -> Publish {
        // Ordering: relaxed; it is read again.
        match self.theirs.front().asleep.load(Ordering::Relaxed) {
            SPINNING => Publish::Release,
            _ => Publish::SeqCst,
        }
    }

    /// Notifies like [`notify`](Ring::notify), after a publish of the kind that
    /// [`how_to_publish`](Ring::how_to_publish) returned.
    #[inline(always)]
    pub fn notify_of(&self, how: Publish, press: impl FnOnce() -> bool) {
        if how == Publish::SeqCst {
            return self.notify(press);
        }
        // Ordering: the publish before the load. A peer that stops spinning makes every thread pass the processor's
        // half of the fence (partner: `wait::arm`). If that fence came before this load, the peer's flag is seen here.
        // If it comes after the load, the fence shows the line to the peer.
        light_fence();
        if self.theirs.front().asleep.load(Ordering::Relaxed) != SPINNING {
            self.notify_after_all(press);
        }
    }

    #[cold]
    fn notify_after_all(&self, press: impl FnOnce() -> bool) {
        self.fence_then_notify(press);
    }

    /// Says, for observers, that this end finds no room for a line.
    #[cold]
    pub fn stall(&self) {
        self.own.front().stall();
    }

    /// Records that this end waits for room, from `now_ns` on unless it waited before.
    #[cold]
    pub fn wait(&self, now_ns: u64) {
        self.own.front().wait(now_ns);
    }

    /// Records that this end no longer waits for room.
    #[cold]
    pub fn wait_no_more(&self, now_ns: u64) {
        self.own.front().wait_no_more(now_ns);
    }

    /// Says, for observers, what the other end has still to take of a ring beside this one.
    pub fn say_behind(&self, behind: Behind) {
        self.own.front().say_behind(behind);
    }

    /// Records how this end ended, once.
    pub fn end(&self, how: Ending) {
        self.own.front().end(how);
    }

    /// Gives the lines before `head` back to the other end. A [`notify`](Ring::notify) after it has to use a
    /// [`Lazy`](crate::Waker::Lazy) waker.
    #[inline(always)]
    pub fn give_back(&self, head: u64) {
        // Ordering: release; partner: the acquire in `their_head`. By then this end has read and counted the lines.
        self.own.front().head.store(head, Ordering::Release);
    }

    /// Says whether a line waits, after the lines that this end has given back.
    #[inline]
    pub fn has_line(&self) -> bool {
        // Ordering: relaxed; this end's own word.
        let head = self.own.front().head.load(Ordering::Relaxed);
        self.their_lines().has(head)
    }

    /// Ends the other end's sleep, if it sleeps, after a publish that fenced
    /// ([`Publish::SeqCst`](crate::Publish::SeqCst)). If it sleeps on its descriptor, `press` is called, and says
    /// whether the descriptor is readable now ([`doorbell`](crate::doorbell)). After a publish without a fence, the
    /// sleeper must know that ([`Waker::Lazy`](crate::Waker::Lazy)).
    #[inline(always)]
    pub fn notify(&self, press: impl FnOnce() -> bool) {
        // Ordering: SeqCst, after the SeqCst publish in the single total order; partner: the fence in arm.
        let flag = self.theirs.front().asleep.load(Ordering::SeqCst);
        if is_asleep(flag) {
            self.end_sleep(flag, press);
        }
    }

    #[cold]
    fn end_sleep(&self, flag: u32, press: impl FnOnce() -> bool) {
        let wake = &self.own.front().wake;
        wait::end_sleep(flag, &self.ended, wake, |how| match how {
            Asleep::Descriptor => press(),
            Asleep::Futex => {
                kernel::wake_some(wake);
                true
            }
        });
    }

    /// Does the work of [`notify`](Ring::notify) after any number of release publishes, with a single fence for all of
    /// them.
    #[inline]
    pub fn fence_then_notify(&self, press: impl FnOnce() -> bool) {
        // Ordering: partner: the fence in arm.
        fence(Ordering::SeqCst);
        self.notify(press);
    }

    /// Returns the point to sleep on until the other end acts.
    #[inline]
    pub fn point(&self) -> Point<'_> {
        Point::peer(&self.theirs.front().wake, &self.own.front().asleep)
    }

    /// Says that this end sleeps on its descriptor. The caller then **looks again**, and either
    /// [`disarm`](Ring::disarm)s or waits until the descriptor is readable. Returns the other end's word. While that
    /// word is unchanged it is the same sleep, and a [`Lazy`](crate::Waker::Lazy) waker learns of it within
    /// [`SETTLE`](crate::SETTLE).
    pub fn arm(&self) -> u32 {
        let mut points = [self.point()];
        wait::arm(&mut points, Asleep::Descriptor);
        points[0].seen
    }

    /// Says that this end is awake.
    pub fn disarm(&self) {
        wait::disarm(&[self.point()]);
    }

    /// Ends this end's own sleep that no timer bounds ([`Kernel`](crate::Kernel)).
    pub fn nudge(&self) {
        // Ordering: relaxed; the nudge is repeated.
        if is_asleep(self.own.front().asleep.load(Ordering::Relaxed)) {
            kernel::wake_some(&self.theirs.front().wake);
        }
    }

    /// Makes the two ends of a ring, in memory that loom watches.
    #[cfg(loom)]
    pub fn pair(lines: usize) -> (Ring, Ring) {
        use crate::half::Side;
        let (source, sink) = (
            HalfRw::pair(Side::Source, lines),
            HalfRw::pair(Side::Sink, lines),
        );
        (Ring::new(source.0, sink.1), Ring::new(sink.0, source.1))
    }
}
