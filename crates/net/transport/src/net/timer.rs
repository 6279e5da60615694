//! Timer thread: it does the timed work for all sessions of the process. This is keepalives, the idle timeout,
//! connecting again, farewells, and output that waits for room while the program does something else. It starts with
//! the first session, blocks all signals, and sleeps when there is no session. A forked child has none: its sessions
//! are its parent's.

use super::alarm;
use super::session::{self, Session};
use crate::door::thread;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tranship_sys::{eventfd, stream};

/// Shortest and longest time between two looks.
const LOOKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];
const FOREVER: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Timer {
    sessions: Mutex<Vec<Arc<Session>>>,
    doorbell: &'static OwnedFd,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static TIMER: OnceLock<Timer> = OnceLock::new();

/// Keeps a session until it has ended and the program has released it.
pub(super) fn keep(session: Arc<Session>) -> io::Result<()> {
    static START: Mutex<()> = Mutex::new(());
    let starting = START.lock().unwrap_or_else(PoisonError::into_inner);
    if TIMER.get().is_none() {
        let doorbell = alarm::make()?;
        let timer = TIMER.get_or_init(|| Timer {
            sessions: Mutex::default(),
            doorbell,
        });
        thread("tranship-net", || run(timer))?;
    }
    drop(starting);
    if let Some(timer) = TIMER.get() {
        timer.lock().push(session);
    }
    alarm::wake();
    Ok(())
}

fn run(timer: &'static Timer) {
    let mut blocked: Vec<Arc<TcpStream>> = Vec::new();
    loop {
        let sessions = timer.lock().clone();
        let mut pause = FOREVER;
        blocked.clear();
        for session in &sessions {
            let Some(mut inner) = session.try_lock() else {
                // The session's program holds the lock, perhaps for long: the other sessions do not wait for that.
                pause = pause.min(session::IDLE);
                continue;
            };
            if !session.tick(&mut inner, Instant::now()) {
                drop(inner);
                timer.lock().retain(|other| !Arc::ptr_eq(session, other));
                continue;
            }
            pause = pause.min((session.timing.keepalive / 4).clamp(LOOKS[0], LOOKS[1]));
            inner.is_watched = inner.is_blocked();
            if Session::is_stuck(&inner, Instant::now()) {
                blocked.extend(inner.connection.up().map(|link| link.line.socket()));
            } else if inner.is_watched || inner.program.left_at().is_some() {
                pause = pause.min(session::IDLE);
            }
        }
        drop(sessions);
        // Whatever the kernel returns, everything is checked again.
        let _ = stream::wait_for_room(&blocked, timer.doorbell, pause);
        let _ = eventfd::drain(timer.doorbell);
    }
}
