//! A backend that takes its time, as engines and mailboxes do: frames and bytes come late, and taken frames are
//! reported late and out of order.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tranship_core::Error;
use tranship_testkit::Random;
use tranship_transport::{Backend, Copying, Frame, Listener, Place, RecvError, Transport, Wait};

#[derive(Debug)]
pub(crate) struct Slow {
    inner: Copying,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    random: Mutex<Random>,
    /// Keeps the next number back for itself, as long as it is set.
    pub(crate) holds: AtomicBool,
    /// Counts of disorder: frames said to be taken after a later one, data that was there and not given, and bytes out
    /// of order.
    pub(crate) disorder: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) late_bytes: AtomicU64,
}

#[derive(Debug)]
struct Name(Box<dyn Listener>, Arc<Shared>);

#[derive(Debug)]
struct End {
    inner: Box<dyn Transport>,
    shared: Arc<Shared>,
    waiting: Vec<u64>,
    held: Option<u64>,
    highest: u64,
    /// Something is kept back, and no news tells of it.
    more: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Waits(Arc<dyn Wait>, Arc<AtomicBool>);

impl Slow {
    pub(crate) fn new(random: Random) -> Slow {
        let shared = Shared {
            random: Mutex::new(random),
            holds: AtomicBool::new(false),
            disorder: AtomicU64::new(0),
            late: AtomicU64::new(0),
            late_bytes: AtomicU64::new(0),
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
    fn one_in(&self, n: u64) -> bool {
        self.random.lock().expect("random").one_in(n)
    }

    fn below(&self, n: usize) -> usize {
        let number = self.random.lock().expect("random").below(n as u64);
        usize::try_from(number).unwrap_or(0)
    }
}

fn slow(inner: Box<dyn Transport>, shared: &Arc<Shared>) -> Box<dyn Transport> {
    Box::new(End {
        inner,
        shared: Arc::clone(shared),
        waiting: Vec::new(),
        held: None,
        highest: 0,
        more: Arc::default(),
    })
}

impl Backend for Slow {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(Name(self.inner.listen(name)?, self.shared())))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(slow(self.inner.connect(name)?, &self.shared))
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        Ok(self.0.accept()?.map(|inner| slow(inner, &self.1)))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.0.waiter()
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        self.inner.send(frame)
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        if self.shared.one_in(3) {
            self.shared.late.fetch_add(1, Ordering::Relaxed);
            self.more.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        self.more.store(!self.waiting.is_empty(), Ordering::Relaxed);
        self.inner.recv()
    }

    fn brings(&self) -> usize {
        self.inner.brings()
    }

    fn came(&self) -> usize {
        self.inner.came()
    }

    fn fill(&mut self, place: &Place) -> Result<bool, RecvError> {
        if self.shared.one_in(3) {
            self.shared.late_bytes.fetch_add(1, Ordering::Relaxed);
            self.more.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        self.inner.fill(place)
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.inner.done(&mut self.waiting);
        match self.shared.holds.load(Ordering::Relaxed) {
            true if self.held.is_none() && !self.waiting.is_empty() => {
                self.held = Some(self.waiting.remove(0));
            }
            true => {}
            false => self.waiting.extend(self.held.take()),
        }
        while !self.waiting.is_empty() && self.shared.one_in(3) {
            let number = self
                .waiting
                .swap_remove(self.shared.below(self.waiting.len()));
            if number < self.highest {
                self.shared.disorder.fetch_add(1, Ordering::Relaxed);
            }
            self.highest = self.highest.max(number);
            numbers.push(number);
        }
        if !self.waiting.is_empty() {
            self.more.store(true, Ordering::Relaxed);
        }
    }

    fn peer_place(&self) -> Option<String> {
        self.inner.peer_place()
    }

    fn why(&self) -> Option<String> {
        self.inner.why()
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Waits(self.inner.waiter(), Arc::clone(&self.more)))
    }
}

impl Wait for Waits {
    fn wait(&self, limit: Duration) {
        self.0.wait(limit);
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn arm(&self) -> bool {
        !self.1.load(Ordering::Relaxed) && self.0.arm()
    }
}
