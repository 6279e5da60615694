//! A program in a scene.

use crate::{Exit, Launch, Peer};

/// A program that is started, struck, started again, and must not end by itself.
pub struct Party {
    name: String,
    launch: Box<dyn Fn(u64) -> Launch>,
    peer: Option<Peer>,
    starts: u64,
    stopped: bool,
    gives_up: Option<i32>,
}

impl std::fmt::Debug for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Party").field(&self.name).finish()
    }
}

impl Party {
    /// Creates a party that is not started yet; `launch` is told how many were started before it.
    pub fn new(name: impl Into<String>, launch: impl Fn(u64) -> Launch + 'static) -> Self {
        Self {
            name: name.into(),
            launch: Box::new(launch),
            peer: None,
            starts: 0,
            stopped: false,
            gives_up: None,
        }
    }

    /// Allows the party to end by itself with this code. It is started again then, as its supervisor would do in real
    /// use.
    #[must_use]
    pub fn started_again_at(mut self, code: i32) -> Self {
        self.gives_up = Some(code);
        self
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process, unless it was killed or not started.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Returns whether it runs: there, and not stopped.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.peer.is_some() && !self.stopped
    }

    /// Starts a fresh process. Nothing is waited for.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(&mut self) {
        let launch = (self.launch)(self.starts).capture_stderr();
        let peer = launch.start();
        self.starts += 1;
        self.stopped = false;
        self.peer = Some(peer.unwrap_or_else(|e| panic!("{}: {e}", self.name)));
    }

    /// Kills it by SIGKILL, also if it is stopped.
    ///
    /// # Panics
    /// When it had ended by itself.
    pub fn kill(&mut self) {
        let Some(peer) = self.peer.take() else { return };
        let exit = peer.kill();
        self.stopped = false;
        assert!(
            exit == Exit::Signal(libc::SIGKILL) || self.may_end(exit),
            "{} ended by itself with {exit:?}\n{}",
            self.name,
            peer.stderr()
        );
    }

    fn may_end(&self, exit: Exit) -> bool {
        self.gives_up.is_some_and(|code| exit == Exit::Code(code))
    }

    /// Stops it by SIGSTOP: it is there, holds its resources, and does nothing.
    pub fn stop(&mut self) {
        if let Some(peer) = &self.peer {
            peer.stop();
            self.stopped = true;
        }
    }

    /// Brings it up again, as if nothing had happened to it: a stopped one goes on, a dead one is started.
    pub fn recover(&mut self) {
        match &self.peer {
            Some(peer) => peer.resume(),
            None => self.start(),
        }
        self.stopped = false;
    }

    /// Asks it to end in order.
    ///
    /// # Panics
    /// When it ends otherwise.
    pub fn quit(&mut self, how: impl FnOnce(&Peer)) {
        let Some(peer) = self.peer.take() else { return };
        how(&peer);
        assert_eq!(
            peer.wait(),
            Exit::Code(0),
            "{}\n{}",
            self.name,
            peer.stderr()
        );
    }

    /// Checks that it has not ended by itself; starts it again if it may end.
    ///
    /// # Panics
    /// With its output, when it has ended.
    pub fn check(&mut self) {
        if let Some(peer) = self.peer.as_ref().filter(|peer| peer.has_ended()) {
            let exit = peer.wait();
            if self.may_end(exit) {
                return self.start();
            }
            panic!(
                "{} ended by itself with {exit:?}\n{}",
                self.name,
                peer.stderr()
            );
        }
    }
}
