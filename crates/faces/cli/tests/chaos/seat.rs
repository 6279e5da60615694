//! Common parts of the scenes' own programs: joining, orders, and which errors are part of the game.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use tranship::{Domain, Error, Message, PoolOptions};
use tranship_testkit::chaos::Gauge;
use tranship_testkit::{Control, Held, Peer, Random, payload};

pub use crate::rules::{Broken, bearable, broken, recv_over, send_over};

/// Variables that say where things are.
pub const SOCKET: &str = "CHAOS_SOCKET";
pub const GAUGE: &str = "CHAOS_GAUGE";
pub const NUMBER: &str = "CHAOS_NUMBER";

/// Order of the test.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Order {
    /// Let go of everything but the domain, and answer when nothing is held any more.
    Rest,
    /// End in order.
    Quit,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Done;

/// Longest wait before orders and news are looked at again.
pub const ROUND: Duration = Duration::from_millis(2);

/// Time that a party waits for a name: longer each time in vain, because a busy machine may need it.
#[derive(Clone, Copy)]
pub struct Wait(Duration);

impl Wait {
    pub const BRIEF: Wait = Wait(Duration::from_millis(40));
    const LONGEST: Duration = Duration::from_secs(2);

    pub fn limit(self) -> Duration {
        self.0
    }

    pub fn was_in_vain(&mut self) {
        self.0 = (self.0 * 2).min(Wait::LONGEST);
    }
}

/// Longest time until released resources are gone. Not a bound on speed: beyond it something has leaked.
const PATIENCE: Duration = Duration::from_secs(60);

/// A party's place in the scene.
pub struct Seat {
    ctl: Control,
    pub domain: Domain,
    pub gauge: Gauge,
    pub number: usize,
    pub random: Random,
    bare: Held,
}

pub fn variable(key: &str) -> Result<PathBuf, Broken> {
    std::env::var_os(key)
        .map(PathBuf::from)
        .ok_or_else(|| format!("no {key}"))
}

impl Seat {
    /// Joins, however long it takes.
    pub fn take(ctl: Control, name: &str) -> Result<Seat, Broken> {
        let (socket, gauge) = (variable(SOCKET)?, variable(GAUGE)?);
        let number = variable(NUMBER)?
            .to_string_lossy()
            .parse()
            .map_err(broken)?;
        let before = Held::here().map_err(broken)?.memfd_fds;
        let builder = || Domain::builder().name(name).socket(&socket);
        let domain = patiently(|| builder().connect())?;
        // Descriptors that the library opens once and keeps are there before anything is counted.
        drop(patiently(|| domain.create_pool(PoolOptions::new(1)))?);
        while Held::here().map_err(broken)?.memfd_fds > before {
            turn(&domain)?;
        }
        Ok(Seat {
            ctl,
            domain,
            gauge: Gauge::open(&gauge),
            number,
            random: Random::printed(name),
            bare: Held::here().map_err(broken)?,
        })
    }

    /// Waits at most so long for an order or for news of the manager, and takes both.
    pub fn order(&self, wait: Duration) -> Result<Option<Order>, Broken> {
        let mut fds = [
            PollFd::new(&self.ctl, PollFlags::IN),
            PollFd::new(&self.domain, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let _ = poll(&mut fds, Some(&limit));
        turn(&self.domain)?;
        if !self.ctl.is_ready() {
            return Ok(None);
        }
        // A test that is gone counts as an order too.
        Ok(Some(
            self.ctl.recv().map_err(broken)?.unwrap_or(Order::Quit),
        ))
    }

    /// Everything but the domain was let go of: answers when it is gone, and turns until it may end.
    pub fn rest(self) -> Result<(), Broken> {
        self.rest_but("nothing")
    }

    /// Rests like [`Seat::rest`], for a program whose senders count in memory of the library that stays: differences
    /// that begin so are none.
    pub fn rest_but(self, kept: &str) -> Result<(), Broken> {
        let until = Instant::now() + PATIENCE;
        loop {
            turn(&self.domain)?;
            let differences = Held::here().map_err(broken)?.differences(&self.bare);
            let is_none = |d: &String| d.starts_with("new:") || d.starts_with(kept);
            if differences.iter().all(is_none) {
                break;
            }
            if Instant::now() > until {
                return Err(format!("not as before it began: {differences:#?}"));
            }
            std::thread::yield_now();
        }
        self.ctl.send(&Done).map_err(broken)?;
        while self.order(ROUND)?.is_none() {}
        Ok(())
    }
}

/// Checks that a frame is as it was sent.
pub fn verify(frame: &Message, when: &str) -> Result<(), Broken> {
    let id = frame.word;
    payload::verify_seed(&frame.to_vec(), id, payload::mix(id))
        .map_err(|torn| format!("{when}: frame {id:#x}: {torn}"))
}

/// Waits so many milliseconds, or until one of the processes ends.
pub fn pass<'a>(peers: impl IntoIterator<Item = &'a Peer>, milliseconds: u64) {
    let fds: Vec<_> = peers.into_iter().map(Peer::pidfd).collect();
    let fds = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: i64::try_from(milliseconds).unwrap_or(1) * 1_000_000,
    };
    let _ = poll(&mut fds.collect::<Vec<_>>(), Some(&time));
}

/// Obeys the test's order, if one comes in that time: ends, or lets go of these things and rests.
macro_rules! obey {
    ($seat:ident, $wait:expr, $held:expr) => {
        match $seat.order($wait)? {
            None => {}
            Some($crate::seat::Order::Quit) => return Ok(()),
            Some($crate::seat::Order::Rest) => {
                drop($held);
                return $seat.rest();
            }
        }
    };
}

pub(crate) use obey;

fn turn(domain: &Domain) -> Result<(), Broken> {
    domain.turn().or_else(|e| bearable(&e))
}

/// Again while the manager is away.
pub fn patiently<T>(mut what: impl FnMut() -> Result<T, Error>) -> Result<T, Broken> {
    loop {
        match what() {
            Ok(done) => return Ok(done),
            Err(e) => bearable(&e)?,
        }
        std::thread::yield_now();
    }
}
