//! What goes back to one client: in one piece each, without ever blocking whoever has it ready.

use super::stream::Stream;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of requests that may be under way, and of replies that wait, before no more requests are taken.
const MAX_BYTES: usize = 64 << 20;
/// The same for their number.
const MAX_COUNT: usize = 1024;

#[derive(Debug)]
pub(super) struct Replies {
    stream: Stream,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What waits for the socket to have room; of the first so many bytes are gone.
    waiting: VecDeque<Vec<u8>>,
    gone: usize,
    /// The writer is at the first of them.
    writing: bool,
    bytes: usize,
    count: usize,
    broken: bool,
    ended: bool,
}

impl Replies {
    pub(super) fn new(stream: Stream) -> Replies {
        Replies {
            stream,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins, with so many bytes; waits while too much is under way. False: the connection is broken.
    pub(super) fn begin(&self, bytes: usize) -> bool {
        let full = |state: &mut State| {
            !state.broken
                && state.count > 0
                && (state.count >= MAX_COUNT || state.bytes + bytes > MAX_BYTES)
        };
        let waited = self.changed.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.bytes += bytes;
        state.count += 1;
        !state.broken
    }

    /// It is over, its reply given.
    pub(super) fn end(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes -= bytes;
        state.count -= 1;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until nothing is under way.
    pub(super) fn drain(&self) {
        let busy = |state: &mut State| {
            state.count > 0 || !state.broken && (state.writing || !state.waiting.is_empty())
        };
        drop(self.changed.wait_while(self.lock(), busy));
    }

    /// Sends it now if there is room, else leaves it to the writer.
    pub(super) fn give(&self, whole: Vec<u8>) {
        let mut state = self.lock();
        if state.broken {
            return;
        }
        let mut at = 0;
        if state.waiting.is_empty() && !state.writing {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.stream, &whole, flags) {
                Ok(sent) if sent == whole.len() => return,
                Ok(sent) => at = sent,
                // The writer finds out what it is.
                Err(_) => {}
            }
            state.gone = at;
        }
        state.waiting.push_back(whole);
        drop(state);
        self.changed.notify_all();
    }

    /// The writer's thread: until the end.
    pub(super) fn write(&self) {
        loop {
            let idle =
                |state: &mut State| state.waiting.is_empty() && !state.ended && !state.broken;
            let waited = self.changed.wait_while(self.lock(), idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(first) = state.waiting.pop_front() else {
                return;
            };
            let gone = std::mem::take(&mut state.gone);
            state.writing = true;
            drop(state);
            let written = self.write_all(&first[gone..]);
            let mut state = self.lock();
            state.writing = false;
            if written.is_err() {
                state.broken = true;
                state.waiting.clear();
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.stream.try_clone()?.write_all(bytes)
    }

    /// Nothing more comes from the client, and nothing more is to go there.
    pub(super) fn finish(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// The connection is of no use any more.
    pub(super) fn cut(&self) {
        let mut state = self.lock();
        state.broken = true;
        state.waiting.clear();
        drop(state);
        self.stream.shutdown();
        self.changed.notify_all();
    }
}
