//! A program whose input and output a test has. Other programs are [`Peer`](crate::Peer)s.

use std::io::Read as _;
use std::process::{Child, Command, Output};

use crate::said::Said;

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

    /// Waits for its end, and returns what it wrote and the test has not read.
    ///
    /// # Panics
    /// If that cannot be read.
    pub fn said(mut self) -> Said {
        drop(self.0.stdin.take());
        let [mut stdout, mut stderr] = [Vec::new(), Vec::new()];
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        std::thread::scope(|s| {
            s.spawn(|| out.map(|mut out| out.read_to_end(&mut stdout).expect("its output")));
            if let Some(mut err) = err {
                err.read_to_end(&mut stderr).expect("its errors");
            }
        });
        let output = Output {
            status: self.0.wait().expect("its end"),
            stdout,
            stderr,
        };
        output.into()
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
