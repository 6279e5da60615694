//! Messages to systemd: that the socket is served, that the loop turns, and which descriptors to store.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tranship_sys::service::Notifier;

/// The delay before the next try.
const AGAIN: Duration = Duration::from_millis(10);

/// A descriptor that stays open until it was sent.
pub(super) trait Lasting: AsFd + std::fmt::Debug {}
impl<T: AsFd + std::fmt::Debug> Lasting for T {}

/// The connection to the service manager.
#[derive(Debug)]
pub(super) struct Notify {
    to: Option<Notifier>,
    /// The service manager's pending work: names to remove, then descriptors to store. It therefore never has more than
    /// there was to store at one time, and at most twice that waits here.
    gone: BTreeSet<String>,
    wanted: BTreeMap<String, Rc<dyn Lasting>>,
    /// How often the service manager wants a beat, and when the next one is due.
    beat: Option<(Duration, Instant)>,
    /// There was no room for the last beat.
    late: bool,
}

impl Notify {
    /// Makes a notifier from the environment.
    pub fn new() -> Notify {
        let to = Notifier::from_environment(false).map_err(warn);
        let to = to.ok().flatten();
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        // Twice as often as required (sd_watchdog_enabled(3)).
        let usec = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && ours && to.is_some());
        let beat = usec.map(|usec| (Duration::from_micros(usec / 2), Instant::now()));
        Notify::to(to, beat)
    }

    fn to(to: Option<Notifier>, beat: Option<(Duration, Instant)>) -> Notify {
        Notify {
            to,
            gone: BTreeSet::new(),
            wanted: BTreeMap::new(),
            beat,
            late: false,
        }
    }

    /// Says whether there is a service manager.
    pub fn is_heard(&self) -> bool {
        self.to.is_some()
    }

    /// Asks for a descriptor to be stored. The service manager does not poll it, so it goes only when this process says
    /// so.
    pub fn store(&mut self, name: &str, what: Rc<dyn Lasting>) {
        self.wanted.insert(name.to_owned(), what);
    }

    /// Asks for a stored descriptor to be closed.
    pub fn unstore(&mut self, name: &str) {
        // If it was still pending, it is not stored yet.
        if self.wanted.remove(name).is_none() {
            self.gone.insert(name.to_owned());
        }
    }

    /// Sends as much as there is room for.
    pub fn flush(&mut self) {
        if self.late {
            self.turn();
        }
        let Some(to) = self.to.as_ref().filter(|_| !self.late) else {
            return;
        };
        while let Some(name) = self.gone.first() {
            if !is_told(to.remove(name)) {
                return;
            }
            self.gone.pop_first();
        }
        while let Some((name, what)) = self.wanted.first_key_value() {
            if !is_told(to.store(name, what.as_fd())) {
                return;
            }
            self.wanted.pop_first();
        }
    }

    /// Returns the time of the next try, if something is left.
    pub fn backlog(&self) -> Option<Duration> {
        let waits = !self.gone.is_empty() || !self.wanted.is_empty();
        (waits && self.to.is_some()).then_some(AGAIN)
    }

    /// Says that the socket is served.
    pub fn ready(&self) {
        let _ = self.say("READY=1").map_err(warn);
    }

    /// Records that the loop has turned.
    pub fn turn(&mut self) {
        let now = Instant::now();
        let Some((every, _)) = self.beat.filter(|(_, next)| *next <= now) else {
            return;
        };
        match self.say("WATCHDOG=1") {
            // This goes first, once there is room.
            Err(error) if is_full(&error) => {
                if !std::mem::replace(&mut self.late, true) {
                    warn(error);
                }
            }
            said => {
                let _ = said.map_err(warn);
                (self.late, self.beat) = (false, Some((every, now + every)));
            }
        }
    }

    /// Returns how long the loop may wait.
    pub fn wait(&self) -> Option<Duration> {
        let (_, next) = self.beat?;
        let left = next.saturating_duration_since(Instant::now());
        Some(if self.late { AGAIN } else { left })
    }

    fn say(&self, what: &str) -> io::Result<()> {
        self.to.as_ref().map_or(Ok(()), |to| to.say(what))
    }
}

/// Returns `false` if there is no room. Any other failure counts as told, because a second try would fail too.
fn is_told(told: io::Result<()>) -> bool {
    match told {
        Err(e) if is_full(&e) => false,
        Err(error) => {
            warn(error);
            true
        }
        Ok(()) => true,
    }
}

/// Says whether the service manager has no room: it has not read its messages, or too many descriptors are in transit
/// to it.
fn is_full(error: &io::Error) -> bool {
    let full = [libc::EAGAIN, libc::ENOBUFS, libc::ETOOMANYREFS];
    error.raw_os_error().is_some_and(|e| full.contains(&e))
}

fn warn(error: io::Error) -> io::Error {
    tracing::warn!(%error, "cannot notify the service manager");
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// A service manager that reads nothing for a while still gets the beat. At last it gets the present state: no more
    /// notices than names.
    #[test]
    fn a_service_manager_that_is_slow_hears_the_beat_and_all_that_it_is_to_store() {
        let (to, from) = UnixDatagram::pair().expect("a pair");
        to.set_nonblocking(true).expect("not blocking");
        from.set_nonblocking(true).expect("not blocking");
        let mut notify = Notify::to(Some(to.into()), Some((Duration::ZERO, Instant::now())));
        let what: Rc<dyn Lasting> = Rc::new(tempfile::tempfile().expect("a file"));
        let hear = || {
            let mut raw = [0; 256];
            let taken = std::iter::from_fn(|| from.recv(&mut raw).ok().map(|n| raw[..n].to_vec()));
            let texts = taken.map(|raw| String::from_utf8(raw).expect("text"));
            texts.collect::<Vec<_>>()
        };
        notify.store("stays", what.clone());
        notify.store("goes", what.clone());
        notify.turn();
        notify.flush();
        assert_eq!(hear().len(), 3, "two stored, and a beat");
        // Far more than necessary.
        for n in 0..(1 << 14) {
            notify.store(&format!("brief {n}"), what.clone());
            notify.unstore(&format!("brief {n}"));
            notify.unstore(&format!("old {n}"));
        }
        notify.unstore("stays");
        notify.store("stays", what.clone());
        notify.unstore("goes");
        notify.store("new", what);
        let (mut beats, mut heard) = (0, Vec::new());
        for _ in 0..(1 << 14) {
            notify.turn();
            notify.flush();
            let some = hear();
            beats += some.iter().filter(|t| *t == "WATCHDOG=1").count();
            heard.extend(some.into_iter().filter(|t| *t != "WATCHDOG=1"));
            if notify.backlog().is_none() {
                break;
            }
        }
        assert!(beats > 1 && notify.is_heard(), "{beats} beats");
        let about = |name: &str| -> Vec<bool> {
            let its = heard
                .iter()
                .filter(|t| t.contains(&format!("FDNAME={name}")));
            its.map(|t| t.starts_with("FDSTORE=1")).collect()
        };
        assert_eq!(about("old 16383"), [false]);
        assert_eq!(about("stays"), [false, true]);
        assert_eq!((about("goes"), about("new")), (vec![false], vec![true]));
        assert!(about("brief 7").is_empty(), "nobody heard of it");
    }

    #[test]
    fn a_beat_that_did_not_go_out_is_due() {
        let (to, from) = UnixDatagram::pair().expect("a pair");
        to.set_nonblocking(true).expect("not blocking");
        from.set_nonblocking(true).expect("not blocking");
        while to.send(b"full").is_ok() {}
        let every = Duration::from_secs(3600);
        let mut notify = Notify::to(Some(to.into()), Some((every, Instant::now())));
        notify.turn();
        while from.recv(&mut [0; 16]).is_ok() {}
        notify.turn();
        let mut raw = [0; 16];
        let n = from.recv(&mut raw).expect("a beat");
        assert_eq!(&raw[..n], b"WATCHDOG=1");
        assert!(notify.wait() > Some(every / 2));
    }
}
