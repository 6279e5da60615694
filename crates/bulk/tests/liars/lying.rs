//! `shm:`, with frames that are changed on their way from this end, or looked at on their way to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tranship_bulk::Error;
use tranship_bulk::Shm;
pub use tranship_transport::Frame;
use tranship_transport::{Backend, Bytes, Listener, RecvError, Transport, Wait};

type Lie = Arc<Mutex<dyn FnMut(&mut Frame) + Send>>;

#[derive(Clone)]
pub struct Lying {
    pub says: Lie,
    pub hears: Lie,
    /// Says the last frame again with each look, and takes nothing.
    pub asks: Arc<AtomicBool>,
}

impl Default for Lying {
    fn default() -> Lying {
        let honest = || Arc::new(Mutex::new(|_: &mut Frame| {}));
        Lying {
            says: honest(),
            hears: honest(),
            asks: Arc::default(),
        }
    }
}

struct Name(Box<dyn Listener>, Lying);

struct End {
    inner: Box<dyn Transport>,
    lying: Lying,
    last: Frame,
}

impl std::fmt::Debug for Lying {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lying")
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name")
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "End")
    }
}

impl Lying {
    fn end(&self, inner: Box<dyn Transport>) -> Box<dyn Transport> {
        Box::new(End {
            inner,
            lying: self.clone(),
            last: Frame::default(),
        })
    }
}

impl Backend for Lying {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        let listener = Shm::default().listen(name)?;
        Ok(Box::new(Name(listener, self.clone())))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(self.end(Shm::default().connect(name)?))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Shared
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        Ok(self.0.accept()?.map(|inner| self.1.end(inner)))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.0.waiter()
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        self.last = frame.clone();
        (self.lying.says.lock().expect("lie"))(&mut self.last);
        self.inner.send(&self.last)
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        if self.lying.asks.load(Ordering::Relaxed) {
            let _ = self.inner.send(&self.last);
            return Ok(None);
        }
        let mut frame = self.inner.recv()?;
        if let Some(frame) = &mut frame {
            (self.lying.hears.lock().expect("lie"))(frame);
        }
        Ok(frame)
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.inner.done(numbers);
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.inner.waiter()
    }
}
