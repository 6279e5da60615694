//! A process that lacks something for a moment goes on when that is over, and its channels stay.

use crate::kit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_block::{Access, Blocking, Endpoint};
use tranship_bulk::{Domain, Error, Kind, Trust};
use tranship_transport::{Backend, Bytes, Frame, Listener, Local, RecvError, Transport, Wait};

const SIZE: u64 = 1 << 20;

/// Threads of one process, one of which has no memory so often for what comes.
#[derive(Debug, Default)]
struct Poor {
    lacks: Arc<AtomicU32>,
}

#[derive(Debug)]
struct Name(Box<dyn Listener>, Arc<AtomicU32>);

#[derive(Debug)]
struct End {
    inner: Box<dyn Transport>,
    lacks: Arc<AtomicU32>,
    waits: Option<Frame>,
}

impl Poor {
    fn end(inner: Box<dyn Transport>, lacks: &Arc<AtomicU32>) -> Box<dyn Transport> {
        Box::new(End {
            inner,
            lacks: Arc::clone(lacks),
            waits: None,
        })
    }
}

impl Backend for Poor {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        let lacks = Arc::clone(&self.lacks);
        Ok(Box::new(Name(Local.listen(name)?, lacks)))
    }
    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(Poor::end(Local.connect(name)?, &self.lacks))
    }
    fn bytes(&self) -> Bytes {
        Bytes::Shared
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Error> {
        Ok(self.0.accept()?.map(|inner| Poor::end(inner, &self.1)))
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
        let frame = match self.waits.take() {
            None => self.inner.recv()?,
            waits => waits,
        };
        let one_less = |left: u32| left.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        if frame.is_some() && self.lacks.fetch_update(relaxed, relaxed, one_less).is_ok() {
            self.waits = frame;
            return Err(RecvError::NotNow(Kind::OutOfMemory.into()));
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

#[test]
fn a_lack_that_passes_costs_no_channel_and_no_request() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let disk = kit::disk(&file, SIZE, Access::Auto, false);
    let lacks: [Arc<AtomicU32>; 2] = Default::default();
    let name = format!("poor:block-{}", std::process::id());
    let [server, client] = lacks.each_ref().map(|lacks| {
        let lacks = Arc::clone(lacks);
        Endpoint::new(&name, Trust::Full).with_domains(move || {
            let domain = Domain::new();
            let lacks = Arc::clone(&lacks);
            domain.add_backend("poor", Arc::new(Poor { lacks }));
            domain
        })
    });
    let _front = kit::front(&server, disk);
    let remote = Arc::new(kit::connect(&client));
    let store = Blocking(Arc::clone(&remote));
    for (side, lacks) in lacks.iter().enumerate() {
        for round in 1..4u8 {
            lacks.store(3, Ordering::Relaxed);
            store.write_at(0, &[round; 20_000], false).expect("writing");
            store.flush().expect("flushing");
            let mut read = vec![0; 20_000];
            store.read_at(0, &mut read).expect("reading");
            assert!(read.iter().all(|byte| *byte == round));
            assert_eq!(lacks.load(Ordering::Relaxed), 0, "side {side}");
        }
        assert_eq!(remote.connections(), 2, "side {side} connected again");
    }
}
