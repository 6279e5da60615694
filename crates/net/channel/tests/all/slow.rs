//! A backend that takes its time, as engines and mailboxes do: frames and bytes come late, and taken frames are
//! reported late.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_core::Error;
use tranship_testkit::Random;
use tranship_transport::{Backend, Copying, FrameBytes, Met, Source, Target, Transport};

#[derive(Debug)]
pub(crate) struct Slow {
    inner: Copying,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    random: Mutex<Random>,
    /// While it is set, the carrier reports no frame as taken.
    pub(crate) holds: AtomicBool,
}

#[derive(Debug)]
struct End {
    inner: Box<dyn Transport>,
    shared: Arc<Shared>,
    done: u64,
    /// A frame, or bytes, are kept back, and the descriptor does not tell of it.
    is_late: bool,
}

impl Slow {
    pub(crate) fn new(random: Random) -> Slow {
        let shared = Shared {
            random: Mutex::new(random),
            holds: AtomicBool::new(false),
        };
        Slow {
            inner: Copying,
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Shared {
    fn is_late(&self) -> bool {
        self.random.lock().expect("random").one_in(3)
    }
}

fn slow(inner: Box<dyn Transport>, shared: &Arc<Shared>) -> Box<dyn Transport> {
    Box::new(End {
        inner,
        shared: Arc::clone(shared),
        done: 0,
        is_late: false,
    })
}

impl Backend for Slow {
    fn listen(&self, name: &str, met: Met) -> Result<Box<dyn Any + Send + Sync>, Error> {
        let shared = self.shared();
        self.inner
            .listen(name, Arc::new(move |inner| met(slow(inner, &shared))))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(slow(self.inner.connect(name)?, &self.shared))
    }
}

impl End {
    /// Returns whether a report is kept back. One that is held is no news: nothing looks again for it.
    fn owes(&mut self) -> bool {
        !self.shared.holds.load(Ordering::Relaxed) && self.done < self.inner.done()
    }
}

impl Transport for End {
    fn send(&mut self, frame: &[u8], buffer: Option<&Arc<dyn Source>>) -> Result<(), Error> {
        self.inner.send(frame, buffer)
    }

    fn recv(&mut self) -> Result<Option<(FrameBytes, usize)>, Error> {
        self.is_late = self.shared.is_late();
        if self.is_late {
            return Ok(None);
        }
        self.inner.recv()
    }

    fn came(&self) -> usize {
        self.inner.came()
    }

    fn fill(&mut self, place: &mut dyn Target) -> Result<bool, Error> {
        self.is_late = self.shared.is_late();
        if self.is_late {
            return Ok(false);
        }
        self.inner.fill(place)
    }

    fn done(&mut self) -> u64 {
        while self.owes() && !(self.shared.is_late() || self.shared.is_late()) {
            self.done += 1;
        }
        self.done
    }

    fn peer_place(&self) -> String {
        self.inner.peer_place()
    }

    fn why(&self) -> Option<String> {
        self.inner.why()
    }

    fn watched(&self) -> (BorrowedFd<'_>, bool) {
        self.inner.watched()
    }

    fn arm(&mut self, tells: bool) -> bool {
        !self.is_late && !self.owes() && self.inner.arm(tells)
    }
}
