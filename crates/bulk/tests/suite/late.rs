//! A backend whose carrier finishes late and out of order, as engines and mailboxes do: it shows that nothing above
//! the trait counts on either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_bulk::Error;
use tranship_testkit::Random;
use tranship_transport::{Backend, Bytes, Frame, Listener, Local, RecvError, Transport, Wait};

#[derive(Debug, Default)]
pub struct Late {
    inner: Local,
    seen: Arc<Seen>,
}

/// How often it finished a frame after a later one, and gave nothing though something had been taken.
#[derive(Debug, Default)]
pub struct Seen {
    disorder: AtomicU64,
    late: AtomicU64,
}

#[derive(Debug)]
struct Name(Box<dyn Listener>, Arc<Seen>);

#[derive(Debug)]
struct End {
    inner: Box<dyn Transport>,
    random: Random,
    waiting: Vec<u64>,
    highest: u64,
    seen: Arc<Seen>,
}

impl Late {
    /// Both have happened.
    #[allow(dead_code, reason = "not every test that uses this asks")]
    pub fn is_proven(&self) -> bool {
        let counts = [&self.seen.disorder, &self.seen.late];
        counts.iter().all(|count| count.load(Ordering::Relaxed) > 0)
    }
}

fn late(inner: Box<dyn Transport>, seen: &Arc<Seen>) -> Box<dyn Transport> {
    let random = Random::seeded(7);
    Box::new(End {
        inner,
        random,
        waiting: Vec::new(),
        highest: 0,
        seen: Arc::clone(seen),
    })
}

impl Backend for Late {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(Name(
            self.inner.listen(name)?,
            Arc::clone(&self.seen),
        )))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(late(self.inner.connect(name)?, &self.seen))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Shared
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        Ok(self.0.accept()?.map(|inner| late(inner, &self.1)))
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
        self.inner.recv()
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.inner.done(&mut self.waiting);
        while !self.waiting.is_empty() && self.random.one_in(3) {
            let at = self.random.below(self.waiting.len() as u64);
            let number = self.waiting.swap_remove(usize::try_from(at).unwrap_or(0));
            if number < self.highest {
                self.seen.disorder.fetch_add(1, Ordering::Relaxed);
            }
            self.highest = self.highest.max(number);
            numbers.push(number);
        }
        if !self.waiting.is_empty() {
            self.seen.late.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.inner.waiter()
    }
}
