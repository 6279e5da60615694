//! Who has connected to a channel that waits for somebody, and has not said yet that it binds.
//!
//! Each is looked at beside the others, so that one who says nothing keeps nobody out. The next is let in as soon as all that are
//! here have been silent for a moment: whoever is honest speaks at once, and who is not let in waits with the carrier, for the next
//! channel of that name.

use crate::Error;
use crate::message::Message;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_sys::epoll::wait_any_readable;
use tranship_transport::{Frame, Listener, RecvError, Transport, Wait};

/// Callers at once, and of one user or host.
const MOST: usize = 16;
const MOST_OF_ONE: usize = 4;
/// Who is silent for longer goes.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait while somebody is here, to see that.
const LOOK: Duration = Duration::from_millis(100);

/// Who binds, and the message that says so.
type Bind = (Box<dyn Transport>, Frame);

#[derive(Debug)]
struct Caller {
    transport: Box<dyn Transport>,
    since: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Callers(Vec<Caller>);

impl Callers {
    /// The first one that says that it binds, and its message. An error is what this process lacks to hear more.
    pub(super) fn look(&mut self, listener: &mut dyn Listener) -> Result<Option<Bind>, Error> {
        let mut lacks = Ok(None);
        for at in (0..self.0.len()).rev() {
            match self.hear(at) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(lack) => lacks = Err(lack),
            }
        }
        self.0.retain(|caller| caller.since.elapsed() < PATIENCE);
        for _ in 0..MOST {
            let grace = listener.grace();
            if self.0.iter().any(|caller| caller.since.elapsed() < grace) {
                break;
            }
            let Some(transport) = listener.accept()? else {
                break;
            };
            self.0.push(Caller {
                transport,
                since: Instant::now(),
            });
            match self.hear(self.0.len() - 1) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(lack) => lacks = Err(lack),
            }
            self.make_room();
        }
        lacks
    }

    /// What one of them says. Who says anything else than that it binds, or is gone, is forgotten.
    fn hear(&mut self, at: usize) -> Result<Option<Bind>, Error> {
        let transport = &mut self.0[at].transport;
        match transport.recv() {
            Ok(None) => Ok(None),
            Err(RecvError::NotNow(lack)) => Err(lack),
            Ok(Some(frame)) => {
                let binds = matches!(Message::decode(&frame.bytes), Some(Message::Bind { .. }));
                let binds = binds && transport.brings() == 0;
                let caller = self.0.remove(at);
                Ok(binds.then_some((caller.transport, frame)))
            }
            Err(_) => {
                self.0.remove(at);
                Ok(None)
            }
        }
    }

    /// The longest silent goes, of the one that has most.
    fn make_room(&mut self) {
        let whose: Vec<_> = self.0.iter().map(|c| c.transport.peer_owner()).collect();
        let count = |one: &String| whose.iter().filter(|other| *other == one).count();
        let Some(most) = whose.iter().max_by_key(|one| count(one)) else {
            return;
        };
        if (whose.len() > MOST || count(most) > MOST_OF_ONE)
            && let Some(at) = whose.iter().position(|one| one == most)
        {
            self.0.remove(at);
        }
    }

    /// Somebody else has bound.
    pub(super) fn send_away(&mut self) {
        self.0.clear();
    }

    /// What to wait on beside the listener.
    pub(super) fn waiter(&self, listener: Arc<dyn Wait>) -> Arc<dyn Wait> {
        if self.0.is_empty() {
            return listener;
        }
        let callers = self.0.iter().map(|caller| caller.transport.waiter());
        Arc::new(Door(std::iter::once(listener).chain(callers).collect()))
    }
}

/// The listener, and those who have called.
#[derive(Debug)]
struct Door(Vec<Arc<dyn Wait>>);

impl Wait for Door {
    fn wait(&self, limit: Duration) {
        if self.arm() {
            let fds: Vec<BorrowedFd<'_>> = self.0.iter().filter_map(|w| w.descriptor()).collect();
            // Whatever the kernel says, the caller looks again.
            let _ = wait_any_readable(&fds, Some(limit.min(LOOK)));
        }
        self.disarm();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.first()?.descriptor()
    }

    fn arm(&self) -> bool {
        self.0.iter().all(|waiter| waiter.arm())
    }

    fn disarm(&self) {
        self.0.iter().for_each(|waiter| waiter.disarm());
    }
}
