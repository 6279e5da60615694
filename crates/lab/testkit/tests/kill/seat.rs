//! Common parts of all parties: joining, orders from the test, and which errors are part of the game.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use tranship_core::{ChannelOptions, Domain, PoolOptions, Wait, WhenFull};
use tranship_testkit::{Control, Held, Random};

pub use crate::rules::{Broken, bearable, broken, recv_over, send_over};

/// The first message to a party.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    pub socket: PathBuf,
    /// Different for each process: ids of payloads begin with it.
    pub incarnation: u64,
    pub seed: u64,
}

/// Orders. Each is answered with `Done` when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Begin (after the test has counted the resources that the domain alone holds).
    Go,
    /// Answer when so many more messages have come by each way.
    Advance(u64),
    /// Answer when the manager knows this domain.
    Managed,
    /// Allocate the whole quota once more.
    Quota,
    /// Answer when the manager knows of nobody and nothing else.
    Alone,
    /// Let go of everything but the domain, and keep turning.
    Strip,
    /// End in order.
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done;

/// Longest wait inside a party before it looks at its orders again.
pub const ROUND: Duration = Duration::from_millis(2);

/// A party's place on the stage.
pub struct Seat {
    pub ctl: Control,
    pub start: Start,
    pub domain: Domain,
    pub random: Random,
    /// Messages that came by each way that counts.
    pub ways: Vec<u64>,
    goal: Option<Vec<u64>>,
    managed_asked: bool,
    last_turn: Instant,
}

impl Seat {
    /// Joins, says so, waits for `Go`.
    pub fn take(ctl: Control, name: &str, ways: usize) -> Result<Seat, Broken> {
        let start: Start = ctl.recv().map_err(broken)?.ok_or("no start")?;
        let domain = loop {
            let joined = Domain::builder().name(name).socket(&start.socket).connect();
            match joined {
                Ok(domain) => break domain,
                Err(e) => bearable(&e)?,
            }
            std::thread::yield_now();
        };
        // Descriptors that the library opens once and keeps (it watches its cgroup) are there before anything is
        // counted.
        match domain.create_pool(PoolOptions::new(1)) {
            Ok(pool) => drop(pool),
            Err(e) => bearable(&e)?,
        }
        while Held::here().map_err(broken)?.memfd_fds > 0 {
            if let Err(e) = domain.turn() {
                bearable(&e)?;
            }
        }
        ctl.send(&Done).map_err(broken)?;
        let seat = Seat {
            random: Random::seeded(start.seed ^ start.incarnation),
            ways: vec![0; ways],
            goal: None,
            managed_asked: false,
            last_turn: Instant::now(),
            ctl,
            start,
            domain,
        };
        match seat.ctl.recv::<Order>().map_err(broken)? {
            Some(Order::Go) => seat.done()?,
            other => return Err(format!("{other:?} instead of Go")),
        }
        Ok(seat)
    }

    pub fn done(&self) -> Result<(), Broken> {
        self.ctl.send(&Done).map_err(broken)
    }

    /// Does the work of every round; returns an order that is the role's own.
    pub fn round(&mut self) -> Result<Option<Order>, Broken> {
        if self.last_turn.elapsed() >= ROUND {
            self.last_turn = Instant::now();
            if let Err(e) = self.domain.turn() {
                bearable(&e)?;
            }
        }
        if self
            .goal
            .as_ref()
            .is_some_and(|goal| goal.iter().zip(&self.ways).all(|(g, w)| w >= g))
        {
            self.goal = None;
            self.done()?;
        }
        if self.managed_asked && self.domain.is_managed() {
            self.managed_asked = false;
            self.done()?;
        }
        if !self.ctl.is_ready() {
            return Ok(None);
        }
        match self.ctl.recv::<Order>().map_err(broken)? {
            None => Ok(Some(Order::Quit)),
            Some(Order::Advance(n)) => {
                self.goal = Some(self.ways.iter().map(|w| w + n).collect());
                Ok(None)
            }
            Some(Order::Managed) => {
                self.managed_asked = true;
                Ok(None)
            }
            other => Ok(other),
        }
    }

    /// Waits for an order or news of the manager, one round at most.
    pub fn idle(&self) {
        let mut fds = [
            PollFd::new(&self.ctl, PollFlags::IN),
            PollFd::new(&self.domain, PollFlags::IN),
        ];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(ROUND.subsec_nanos()),
        };
        let _ = poll(&mut fds, Some(&limit));
    }

    /// Everything but the domain is gone: answers, and turns until it may end.
    pub fn stripped(&mut self) -> Result<(), Broken> {
        self.done()?;
        self.until_quit()
    }

    /// Turns until it may end.
    pub fn until_quit(&mut self) -> Result<(), Broken> {
        loop {
            match self.round()? {
                Some(Order::Quit) => return Ok(()),
                Some(other) => return Err(format!("{other:?} at the end")),
                None => self.idle(),
            }
        }
    }
}

/// Shallow rings and short waits: full rings and sleepers are common.
pub fn options() -> ChannelOptions {
    ChannelOptions::new()
        .lines(16)
        .wait(Wait::SpinThenSleep(20))
        .when_full(WhenFull::DropNew)
        .timeout(10 * ROUND)
}
