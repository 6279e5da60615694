//! The program's end of a session.

use super::session::Session;
use crate::{Error, FrameBytes, Source, Target, Transport};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct End(pub(super) Arc<Session>);

impl Transport for End {
    fn send(&mut self, frame: &[u8], buffer: Option<&Arc<dyn Source>>) -> Result<(), Error> {
        self.0.send(frame, buffer)
    }

    fn recv(&mut self) -> Result<Option<(FrameBytes, usize)>, Error> {
        self.0.recv()
    }

    fn came(&self) -> usize {
        self.0.came()
    }

    fn fill(&mut self, place: &mut dyn Target) -> Result<bool, Error> {
        self.0.fill(place)
    }

    fn done(&mut self) -> u64 {
        self.0.lock().first
    }

    fn peer_place(&self) -> String {
        self.0.peer.clone()
    }

    fn why(&self) -> Option<String> {
        let inner = self.0.lock();
        inner.connection.over().map(|over| over.why.clone())
    }

    fn watched(&self) -> (BorrowedFd<'_>, bool) {
        (self.0.ready.as_fd(), false)
    }

    fn arm(&mut self, tells: bool) -> bool {
        self.0.arm(tells)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.leave();
    }
}
