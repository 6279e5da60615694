//! A network for tests that expect what was sent to be there at once: an end that looks waits for what it knows to be
//! under way. Names become addresses of one port on this machine.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tranship_bulk::Error;
use tranship_transport::net::{Credentials, Timing, certificate};
use tranship_transport::{Backend, Bytes, Frame, Listener, Net, Place, RecvError, Transport, Wait};

const ROUND: Duration = Duration::from_millis(20);

/// What both ends of one connection know.
#[derive(Debug, Default)]
struct Known {
    sent: [AtomicU64; 2],
    taken: [AtomicU64; 2],
    gone: [AtomicBool; 2],
}

type Pairs = Arc<Mutex<HashMap<String, VecDeque<Arc<Known>>>>>;

#[derive(Debug)]
pub struct Prompt {
    net: Net,
    at: SocketAddr,
    pairs: Pairs,
}

#[derive(Debug)]
struct Name {
    inner: Box<dyn Listener>,
    name: String,
    pairs: Pairs,
}

#[derive(Debug)]
struct End {
    inner: Box<dyn Transport>,
    known: Arc<Known>,
    side: usize,
}

impl Prompt {
    pub fn plain() -> Prompt {
        Prompt::over(Net::plain(Timing::default()).expect("net"))
    }

    pub fn tls() -> Prompt {
        let day = Duration::from_secs(86400);
        let ca = certificate::authority("tests", day).expect("authority");
        let own = certificate::issue(&ca, "tests", &["127.0.0.1".to_owned()], day).expect("issue");
        let credentials =
            Credentials::new(ca.cert.as_bytes(), own.cert.as_bytes(), own.key.as_bytes());
        Prompt::over(Net::tls(credentials.expect("credentials"), Timing::default()).expect("net"))
    }

    fn over(net: Net) -> Prompt {
        let at = net
            .open("127.0.0.1:0".parse().expect("address"))
            .expect("open");
        let pairs = Pairs::default();
        Prompt { net, at, pairs }
    }
}

impl Backend for Prompt {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(Name {
            inner: self.net.listen(&format!("{}/{name}", self.at))?,
            name: name.to_owned(),
            pairs: Arc::clone(&self.pairs),
        }))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        let known = Arc::new(Known::default());
        // Known before it is there, so that who accepts waits for it.
        let mut pairs = self.pairs.lock().expect("pairs");
        let waiting = pairs.entry(name.to_owned()).or_default();
        let inner = self.net.connect(&format!("{}/{name}", self.at))?;
        waiting.push_back(Arc::clone(&known));
        let side = 1;
        Ok(Box::new(End { inner, known, side }))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Carried
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        let mut pairs = self.pairs.lock().expect("pairs");
        let known = pairs.get_mut(&self.name).and_then(VecDeque::pop_front);
        let Some(known) = known else {
            return Ok(None);
        };
        loop {
            if let Some(inner) = self.inner.accept()? {
                let side = 0;
                return Ok(Some(Box::new(End { inner, known, side })));
            }
            self.inner.waiter().wait(ROUND);
        }
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.inner.waiter()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // Those who were not accepted are told by the carrier.
        let mut pairs = self.pairs.lock().expect("pairs");
        for known in pairs.remove(&self.name).into_iter().flatten() {
            // Ordering: release, partner: the acquire in `is_under_way`.
            known.gone[0].store(true, Ordering::Release);
        }
    }
}

impl End {
    /// Does the other end know of something that has not come here?
    fn is_under_way(&self) -> bool {
        let there = 1 - self.side;
        // Ordering: acquire, partner: the other end's release.
        let gone = self.known.gone[there].load(Ordering::Acquire);
        let sent = self.known.sent[there].load(Ordering::Acquire);
        gone || sent > self.known.taken[self.side].load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.known.taken[self.side].fetch_add(1, Ordering::Relaxed);
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        self.inner.send(frame)?;
        // Ordering: release, partner: the acquire in `is_under_way`.
        self.known.sent[self.side].fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        loop {
            if let Some(frame) = self.inner.recv()? {
                if self.inner.brings() == 0 {
                    self.count();
                }
                return Ok(Some(frame));
            }
            if !self.is_under_way() {
                return Ok(None);
            }
            self.inner.waiter().wait(ROUND);
        }
    }

    fn brings(&self) -> usize {
        self.inner.brings()
    }

    fn fill(&mut self, place: &Place) -> Result<bool, RecvError> {
        while !self.inner.fill(place)? {
            self.inner.waiter().wait(ROUND);
        }
        self.count();
        Ok(true)
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.inner.done(numbers);
    }

    fn peer_process(&self) -> u32 {
        self.inner.peer_process()
    }

    fn why(&self) -> Option<String> {
        self.inner.why()
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.inner.waiter()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Ordering: release, partner: the acquire in `is_under_way`.
        self.known.gone[self.side].store(true, Ordering::Release);
    }
}
