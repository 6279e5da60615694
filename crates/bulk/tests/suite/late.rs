//! A backend whose carrier finishes late and out of order, as engines and mailboxes do: it shows that nothing above
//! the trait counts on either.

use std::sync::Arc;
use tranship_bulk::Code;
use tranship_bulk::backend::{
    Backend, Bytes, Frame, Listener, Local, RecvError, SendError, Transport, Wait,
};
use tranship_testkit::Random;

#[derive(Debug, Default)]
pub struct Late(Local);

#[derive(Debug)]
struct Name(Box<dyn Listener>);

#[derive(Debug)]
struct End {
    inner: Box<dyn Transport>,
    random: Random,
    waiting: Vec<u64>,
}

fn late(inner: Box<dyn Transport>) -> Box<dyn Transport> {
    let random = Random::seeded(7);
    Box::new(End {
        inner,
        random,
        waiting: Vec::new(),
    })
}

impl Backend for Late {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Code> {
        Ok(Box::new(Name(self.0.listen(name)?)))
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Code> {
        Ok(late(self.0.connect(name)?))
    }

    fn bytes(&self) -> Bytes {
        Bytes::Shared
    }
}

impl Listener for Name {
    fn accept(&mut self) -> Result<Option<Box<dyn Transport>>, Code> {
        Ok(self.0.accept()?.map(late))
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.0.waiter()
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), SendError> {
        self.inner.send(frame)
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        self.inner.recv()
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.inner.done(&mut self.waiting);
        while !self.waiting.is_empty() && self.random.one_in(3) {
            let at = self.random.below(self.waiting.len() as u64);
            numbers.push(self.waiting.swap_remove(usize::try_from(at).unwrap_or(0)));
        }
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.inner.waiter()
    }
}
