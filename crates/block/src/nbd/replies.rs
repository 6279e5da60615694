//! Replies to one client: each in one piece, without ever blocking the thread that has a reply ready.
//!
//! The thread that has a reply ready sends it, with the replies that others put behind it meanwhile. When the socket
//! has no room, the connection's writer goes on. While more requests are at hand, short replies to them wait for each
//! other.

use super::budget::Budget;
use super::stream::Stream;
use crate::memory::Heap;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Requests that may be under way, with those whose replies wait, before no more are taken.
const MAX_COUNT: usize = 1024;
/// Pieces of memory that go out in one system call.
const PIECES: usize = 64;
/// Replies that are held back are sent when they have this many bytes.
const HELD_BYTES: usize = 64 << 10;

/// A head, and the first bytes of memory as the disk has filled it.
#[derive(Debug)]
pub(super) struct Reply {
    head: Vec<u8>,
    parts: Vec<(Heap, usize)>,
    /// Bytes that are gone.
    sent: usize,
    /// Bytes that are free when it is sent.
    charged: usize,
    /// The reply is the last one of a request.
    ends: bool,
}

impl Reply {
    /// Makes a reply whose parts were charged this many bytes.
    pub(super) fn new(head: Vec<u8>, parts: Vec<(Heap, usize)>, charged: usize) -> Reply {
        Reply {
            head,
            parts,
            sent: 0,
            charged,
            ends: false,
        }
    }

    /// Returns the bytes that are still to be sent.
    fn left(&self) -> usize {
        let parts: usize = self.parts.iter().map(|(_, len)| *len).sum();
        self.head.len() + parts - self.sent
    }

    /// Returns the pieces of memory that are still to be sent.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.parts.iter().map(|(heap, len)| &heap.bytes()[..*len]);
        let mut gone = self.sent;
        let all = std::iter::once(&self.head[..]).chain(parts);
        all.filter_map(move |piece| {
            let left = &piece[gone.min(piece.len())..];
            gone -= piece.len() - left.len();
            (!left.is_empty()).then_some(left)
        })
    }
}

/// Sends the replies that the socket takes at once. Returns the memory that the finished requests were charged, and
/// their number.
fn send(
    waiting: &mut VecDeque<Reply>,
    to: &Stream,
    flags: SendFlags,
) -> Result<(usize, usize), Errno> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let mut count = 0;
    for (piece, place) in waiting.iter().flat_map(Reply::pieces).zip(&mut pieces) {
        *place = IoSlice::new(piece);
        count += 1;
    }
    let flags = flags | SendFlags::NOSIGNAL;
    let mut none = SendAncillaryBuffer::default();
    let mut sent = match sendmsg(to, &pieces[..count], &mut none, flags) {
        Err(Errno::INTR) => 0,
        other => other?,
    };
    let mut over = (0, 0);
    while let Some(first) = waiting.front_mut() {
        let part = sent.min(first.left());
        first.sent += part;
        sent -= part;
        if first.left() > 0 {
            break;
        }
        over = (over.0 + first.charged, over.1 + usize::from(first.ends));
        waiting.pop_front();
    }
    Ok(over)
}

#[derive(Debug)]
pub(super) struct Replies {
    stream: Stream,
    budget: Arc<Budget>,
    state: Mutex<ReplyQueue>,
    /// Rung when a request ended, or the connection broke.
    room: Condvar,
    /// Rung when there is work for the writer.
    work: Condvar,
}

#[derive(Debug, Default)]
struct ReplyQueue {
    waiting: VecDeque<Reply>,
    /// Replies are held back, this many bytes of them.
    held: Option<usize>,
    /// A thread is sending: the one that put the first of them there, or the writer.
    sending: bool,
    /// The socket has no room: it is the writer's turn.
    full: bool,
    bytes: usize,
    count: usize,
    broken: bool,
    ended: bool,
}

impl ReplyQueue {
    /// Returns to the budget bytes that were sent, or that no client takes any more.
    fn settle(&mut self, budget: &Budget, (bytes, count): (usize, usize)) {
        budget.shrink(self.bytes, self.bytes - bytes);
        self.bytes -= bytes;
        self.count -= count;
    }

    /// Drops all replies: nothing is sent any more.
    fn break_off(&mut self, budget: &Budget) {
        self.broken = true;
        for reply in std::mem::take(&mut self.waiting) {
            self.settle(budget, (reply.charged, usize::from(reply.ends)));
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let bytes = state.unwrap_or_else(PoisonError::into_inner).bytes;
        self.budget.shrink(bytes, 0);
    }
}

impl Replies {
    pub(super) fn new(stream: Stream, budget: &Arc<Budget>) -> Replies {
        Replies {
            stream,
            budget: Arc::clone(budget),
            state: Mutex::default(),
            room: Condvar::new(),
            work: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReplyQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request; waits while too many are under way, and calls `before` it does. False: the connection is
    /// broken, and the request did not begin.
    pub(super) fn begin(&self, before: impl FnOnce()) -> bool {
        let has_room = |state: &mut ReplyQueue| state.broken || state.count < MAX_COUNT;
        let mut state = self.wait_for(has_room, before);
        state.count += usize::from(!state.broken);
        !state.broken
    }

    /// Charges memory for a piece of a request, of at most [`OWN`](super::budget::OWN) bytes. Waits while the
    /// connection has too much under way, and calls `before` it does. False: the connection is broken.
    pub(super) fn charge(&self, bytes: usize, before: impl FnOnce()) -> bool {
        self.charge_or(bytes, before, |_| false) == Some(true)
    }

    /// Charges that many bytes at once, unless there are not so many even when nothing else is under way. None: the
    /// connection is broken.
    pub(super) fn charge_whole(&self, bytes: usize, before: impl FnOnce()) -> Option<bool> {
        self.charge_or(bytes, before, |state| state.bytes == 0)
    }

    fn charge_or(
        &self,
        bytes: usize,
        before: impl FnOnce(),
        gives_up: impl Fn(&ReplyQueue) -> bool,
    ) -> Option<bool> {
        let mut charged = false;
        let mut ends = |state: &mut ReplyQueue| {
            let (from, to) = (state.bytes, state.bytes + bytes);
            charged = !state.broken && self.budget.grow(from, to);
            state.bytes = if charged { to } else { from };
            charged || state.broken || gives_up(state)
        };
        let state = self.wait_for(&mut ends, before);
        (!state.broken).then_some(charged)
    }

    /// Returns a piece's memory to the budget, without a reply.
    pub(super) fn give_back(&self, bytes: usize) {
        self.lock().settle(&self.budget, (bytes, 0));
        self.room.notify_all();
    }

    fn wait_for(
        &self,
        mut ends: impl FnMut(&mut ReplyQueue) -> bool,
        before: impl FnOnce(),
    ) -> MutexGuard<'_, ReplyQueue> {
        let mut state = self.lock();
        if ends(&mut state) {
            return state;
        }
        drop(state);
        before();
        let waited = self.room.wait_while(self.lock(), |state| !ends(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes replies wait for `release`, unless they are many bytes.
    pub(super) fn hold(&self) {
        self.lock().held.get_or_insert(0);
    }

    /// Sends the replies that were held back.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        if state.held.take().is_some_and(|bytes| bytes > 0) && !state.sending {
            state.sending = true;
            self.send(state, SendFlags::DONTWAIT);
        }
    }

    /// Waits until at most `left` requests are under way, and no reply waits that can be sent.
    pub(super) fn drain(&self, left: usize) {
        self.release();
        let busy = |state: &mut ReplyQueue| {
            state.count > left || !state.broken && (state.sending || !state.waiting.is_empty())
        };
        drop(self.room.wait_while(self.lock(), busy));
    }

    /// Adds the last reply of a request, which is over when it is sent.
    pub(super) fn end(&self, mut reply: Reply) {
        reply.ends = true;
        self.give(reply);
    }

    /// Sends a reply now if there is room, else leaves it to the writer.
    pub(super) fn give(&self, reply: Reply) {
        let mut state = self.lock();
        if state.broken {
            state.settle(&self.budget, (reply.charged, usize::from(reply.ends)));
            drop(state);
            return self.room.notify_all();
        }
        let bytes = reply.left();
        state.waiting.push_back(reply);
        if let Some(held) = &mut state.held {
            *held += bytes;
            if *held < HELD_BYTES {
                return;
            }
            *held = 0;
        }
        if state.sending {
            return;
        }
        state.sending = true;
        self.send(state, SendFlags::DONTWAIT);
    }

    /// Sends the waiting replies until there are none, or no room. The sender is the thread that has set `sending`.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, ReplyQueue>, flags: SendFlags) {
        while !state.waiting.is_empty() {
            let mut taken = std::mem::take(&mut state.waiting);
            drop(state);
            // Without the lock: memory that becomes free now is usable by the next thread, too.
            let result = send(&mut taken, &self.stream, flags);
            state = self.lock();
            state.settle(&self.budget, result.unwrap_or_default());
            taken.append(&mut state.waiting);
            state.waiting = taken;
            match result {
                Err(Errno::AGAIN) if !state.broken => {
                    state.full = true;
                    drop(state);
                    return self.work.notify_one();
                }
                Ok(_) if !state.broken => {}
                _ => {
                    state.break_off(&self.budget);
                    self.work.notify_one();
                }
            }
            self.room.notify_all();
        }
        (state.sending, state.full) = (false, false);
        drop(state);
        self.room.notify_all();
    }

    /// Runs the writer's thread until the end.
    pub(super) fn write(&self) {
        loop {
            let idle = |state: &mut ReplyQueue| !(state.full || state.ended || state.broken);
            let waited = self.work.wait_while(self.lock(), idle);
            let state = waited.unwrap_or_else(PoisonError::into_inner);
            if state.broken || !state.full {
                return;
            }
            self.send(state, SendFlags::empty());
        }
    }

    /// Ends the connection: nothing more comes from the client, and nothing more may be sent to it.
    pub(super) fn finish(&self) {
        self.lock().ended = true;
        self.work.notify_one();
    }

    /// Cuts the connection, which is of no use any more.
    pub(super) fn cut(&self) {
        self.lock().break_off(&self.budget);
        self.stream.shutdown();
        self.work.notify_one();
        self.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::{MOST, OWN};
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    const REPLY: usize = 1 << 20;

    fn reply(number: u8) -> Reply {
        let mut heap = Heap::used(REPLY);
        heap.bytes_mut().fill(number);
        Reply::new(vec![number; 16], vec![(heap, REPLY)], REPLY)
    }

    fn pair(budget: &Arc<Budget>) -> (Replies, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (Replies::new(Stream::Unix(ours), budget), theirs)
    }

    /// A client that asks and takes no answer is not served any more, before it costs more memory than its limit.
    #[test]
    fn replies_that_nobody_takes_hold_up_further_requests() {
        let _dog = tranship_testkit::Watchdog::new();
        let budget = Arc::default();
        let (replies, mut theirs) = pair(&budget);
        let over = AtomicBool::new(false);
        let most = u8::try_from(2 * MOST / REPLY).expect("few");
        std::thread::scope(|scope| {
            scope.spawn(|| replies.write());
            scope.spawn(|| {
                for number in 0..most {
                    assert!(replies.begin(|| ()) && replies.charge(REPLY, || ()));
                    replies.end(reply(number));
                }
                over.store(true, Ordering::Release);
            });
            let held_up = loop {
                if over.load(Ordering::Acquire) {
                    break false;
                }
                if replies.lock().bytes + REPLY > MOST {
                    break true;
                }
                std::thread::yield_now();
            };
            let mut bytes = vec![0; 16 + REPLY];
            for number in 0..most {
                theirs.read_exact(&mut bytes).expect("a reply");
                assert!(bytes.iter().all(|byte| *byte == number), "{number}");
            }
            replies.drain(0);
            replies.finish();
            assert!(held_up, "all of {most} were taken");
        });
        let state = replies.lock();
        assert_eq!((state.bytes, state.count), (0, 0));
        assert!(budget.is_whole());
    }

    /// A client that takes its replies goes on, in pieces, even if other clients have all shared memory.
    #[test]
    fn a_connection_has_its_own_when_others_have_all_that_is_shared() {
        let budget = Arc::default();
        let hogs: Vec<_> = (0..8).map(|_| pair(&budget)).collect();
        let mut taken = 0;
        for (hog, _) in &hogs {
            while hog.charge_or(REPLY, || (), |_| true) == Some(true) {
                taken += REPLY;
            }
        }
        let (replies, _theirs) = pair(&budget);
        for _ in 0..3 {
            assert_eq!(replies.charge_whole(OWN + 1, || ()), Some(false));
            assert!(replies.charge(OWN, || ()));
            replies.give_back(OWN);
        }
        // When the others are gone there is enough memory.
        for (hog, _) in hogs {
            taken -= hog.lock().bytes;
        }
        assert_eq!(taken, 0);
        assert_eq!(replies.charge_whole(MOST, || ()), Some(true));
        replies.give_back(MOST);
        assert!(budget.is_whole());
    }
}
