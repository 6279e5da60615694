//! A program whose input and output a test has. Other programs are [`Peer`](crate::Peer)s.

use std::process::{Child, Command};

/// A process that ends with the test: dropping kills and reaps it.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        Running(command.spawn().expect("a process"))
    }

    /// Kills it by SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If it was waited for already.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child of ours, which was not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id().cast_signed(), signal) }, 0);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end well.
    #[track_caller]
    pub fn ends_well(mut self) {
        let status = self.0.wait().expect("its end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
