//! Locks a process down to the needs of a domain: it keeps its descriptors, and cannot open new ones by any name.
//!
//! * [`Sandbox`]: further rights, and [`lock_down`](Sandbox::lock_down).
//! * [`Confined`]: the rights of a program that knows of no sandbox, set before it is started.
//! * `seccomp.rs`: the system calls that a domain makes. `landlock.rs`: no file, no port, no signal to outside.
//!
//! NOT here: cgroups, and the manager's own confinement, which is narrower.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod confined;
mod landlock;
mod namespace;
mod seccomp;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tranship_error::Error;

pub use confined::Confined;
pub use landlock::Landlock;

/// The rights of a process that is locked down.
///
/// A locked-down process can read and write its open files, receive descriptors from the manager and so get memory,
/// send and receive on its channels, open further ones, wait, start threads, and end. It cannot open or create a file, make
/// a socket that reaches another process, connect, start a program, map executable memory, or look into other processes. It therefore first joins, and opens
/// its channels and all else that it needs:
///
/// ```no_run
/// # mod tranship { pub mod sandbox { pub use tranship_sandbox::*; } }
/// # use tranship_core::{Domain, Error, Receiver};
/// # fn main() -> Result<(), Error> {
/// let domain = Domain::builder().name("worker").connect()?;
/// let mut jobs = domain.open::<Receiver>("jobs")?;
/// tranship::sandbox::Sandbox::new().lock_down()?;
/// while let Ok(job) = jobs.recv() {
///     // Work.
/// #   drop(job);
/// }
/// # Ok(())
/// # }
/// ```
///
/// When the manager is started again, a locked-down domain cannot reach the new one. Its channels continue, and calls
/// that need the manager fail with `ErrorKind::CutOff`, unless it [reconnects](Sandbox::reconnects).
///
/// Sources: seccomp(2), landlock(7), prctl(2) of Linux.
#[derive(Clone, Default, Debug)]
pub struct Sandbox {
    traceable: bool,
    reconnects: bool,
    also: Vec<i64>,
}

impl Sandbox {
    /// Makes a sandbox without rights beyond a domain's needs.
    #[must_use]
    pub fn new() -> Sandbox {
        Sandbox::default()
    }

    /// Lets other processes of the same user examine this one (ptrace(2), `/proc`): debuggers and profilers. By default
    /// they may not, so that none of them can take its descriptors.
    #[must_use]
    pub fn traceable(mut self) -> Sandbox {
        self.traceable = true;
        self
    }

    /// Lets the process connect to a new manager when the old one is gone, and so to any Unix socket that its user may
    /// connect to by a path. (It gets no other sockets, and no abstract ones if Landlock is complete.)
    #[must_use]
    pub fn reconnects(mut self) -> Sandbox {
        self.reconnects = true;
        self
    }

    /// Allows further system calls, by their numbers (`libc::SYS_...`), with any arguments.
    #[must_use]
    pub fn also(mut self, calls: &[i64]) -> Sandbox {
        self.also.extend(calls);
        self
    }

    /// Locks this process down, for good. Returns the protection by the kernel's Landlock.
    ///
    /// The system calls are taken away from all threads. Landlock holds for this thread, and for those that it starts
    /// later: call it before there are others. It does not block.
    ///
    /// # Errors
    /// `ErrorKind::System` when the kernel refuses: seccomp is missing, or a thread has a filter of its own. The process may
    /// be locked down in part then, and should end.
    pub fn lock_down(&self) -> Result<Landlock, Error> {
        let system = |what: &'static str| {
            move |errno: rustix::io::Errno| tranship_error::system(what)(errno.into())
        };
        // Steps that can fail without a trace come first.
        let filters = seccomp::filters(self.reconnects, &self.also)?;
        if !self.traceable {
            set_dumpable_behavior(DumpableBehavior::NotDumpable)
                .map_err(system("prctl(PR_SET_DUMPABLE)"))?;
        }
        rustix::thread::set_no_new_privs(true).map_err(system("prctl(PR_SET_NO_NEW_PRIVS)"))?;
        let landlock = landlock::restrict()?;
        for filter in &filters {
            seccomp::install(filter)?;
        }
        Ok(landlock)
    }
}
