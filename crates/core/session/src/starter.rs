//! A manager that this process started. If it ends, it is started again.

use super::discover::run_manager;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The place of a new manager's socket, the program to run, and whether it is being started.
pub(super) struct Starter {
    socket: PathBuf,
    program: Option<PathBuf>,
    busy: AtomicBool,
}

impl Starter {
    pub(super) fn new(socket: PathBuf, program: Option<PathBuf>) -> Starter {
        Starter {
            socket,
            program,
            busy: AtomicBool::new(false),
        }
    }

    /// Starts the manager in the background, unless that is under way or was tried a moment ago. Other processes that
    /// started it may do the same: its lock lets one win.
    pub(super) fn start(self: &Arc<Starter>) {
        if self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let starter = Arc::clone(self);
        let run = move || {
            let begun = Instant::now();
            if let Err(why) = run_manager(starter.program.as_deref(), &starter.socket) {
                tracing::warn!("the manager that this process had started is gone: {why}");
                std::thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
            }
            starter.busy.store(false, Ordering::Release);
        };
        if crate::base::thread("tranship-start", run).is_err() {
            self.busy.store(false, Ordering::Release); // no room for a thread now; there may be later
        }
    }
}
