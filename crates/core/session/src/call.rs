//! Questions to the manager, and the wait for its answer.

use super::state::{DomainCore, PATIENCE, POLL_INTERVAL, ROUND};
use super::wire::EventWithFds;
use crate::base::lock;
use crate::error::{self, Awaited, Barrier, Error, ErrorKind, TimedOut};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, Event, PoolId, Refusal, Req, Request, StatRecord};
use tranship_sys::futex;

/// How long after a return to a manager a refusal may only mean that other domains are not back yet. It is a waiting
/// time, not a proof.
const OTHERS: Duration = Duration::from_secs(3);

/// A request whose answer is on its way.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    req: Req,
    /// The connection that the answer comes by.
    pub era: u64,
    /// The purpose of the request, for an error.
    purpose: &'static str,
}

impl DomainCore {
    /// Sends a request that a healthy manager answers at once, and waits for the answer, taking events meanwhile. The
    /// domain's options bound the wait for a manager that hangs.
    ///
    /// # Errors
    /// `TimedOut`: a late answer is undone.
    pub fn call(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<EventWithFds, Error> {
        self.call_in_era(make, fds).map(|(came, _)| came)
    }

    /// Sends a request, and returns the answer with the [`era`](Self::era) that it belongs to.
    pub fn call_in_era(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(EventWithFds, u64), Error> {
        let started = Instant::now();
        self.call_until(make, fds, started.checked_add(self.manager_timeout))
    }

    /// Sends a request, and waits until `deadline` for the answer.
    pub fn call_until(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<(EventWithFds, u64), Error> {
        let started = Instant::now();
        let asked = self.ask(make, fds)?;
        let answer = self.answer(asked, deadline);
        self.settled(asked, answer, started)
    }

    /// Converts the result of a wait for an answer.
    fn settled(
        &self,
        asked: Asked,
        answer: Result<Option<EventWithFds>, Error>,
        started: Instant,
    ) -> Result<(EventWithFds, u64), Error> {
        match answer {
            Ok(Some(came)) => Ok((came, asked.era)),
            Ok(None) => self.give_up(asked, started),
            // This was the answer.
            Err(error) if error.find::<Refusal>().is_some() => Err(error),
            Err(error) => {
                self.forget(asked);
                Err(error)
            }
        }
    }

    /// Sends a request that can be left out, as [`call`](Self::call) does, and waits at most [`PATIENCE`]. It does not
    /// wait at all if another thread has already waited that long, and the manager has said nothing since.
    ///
    /// # Errors
    /// `TimedOut`: a late answer is undone.
    pub fn call_if_prompt(
        &self,
        mut make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<EventWithFds, Error> {
        let full = Instant::now() + PATIENCE;
        let patience = full.min(Instant::now() + self.manager_timeout);
        if lock(&self.conn).is_stalled() {
            self.turn_quietly();
            if lock(&self.conn).is_stalled() {
                let awaited = Awaited::Manager(make(Req(0)).purpose());
                return Err(TimedOut::since(Instant::now(), awaited).into());
            }
        }
        let deadline = deadline.map_or(patience, |d| d.min(patience));
        let started = Instant::now();
        let asked = self.ask_until(make, fds, deadline)?;
        let answer = self.answer(asked, Some(deadline));
        let outcome = self.settled(asked, answer, started).map(|(came, _)| came);
        let late = matches!(&outcome, Err(error) if *error == ErrorKind::TimedOut);
        if late && Instant::now() >= full {
            lock(&self.conn).set_stalled();
        }
        outcome
    }

    /// Sends a request that has an answer.
    pub fn ask(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Asked, Error> {
        self.ask_until(make, fds, Instant::now() + PATIENCE)
    }

    /// Sends a request, and waits until `deadline` for a manager that has still to welcome this domain.
    fn ask_until(
        &self,
        mut make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<Asked, Error> {
        self.check_fork()?;
        match self.ask_once(&mut make, fds) {
            // The manager may be back already without any thread having looked.
            Err(error) if error == ErrorKind::ManagerAway => {
                self.look_for_manager(deadline)?;
                self.ask_once(&mut make, fds)
            }
            asked => asked,
        }
    }

    /// Sends a request without waiting for a manager that has still to welcome this domain.
    pub fn ask_now(
        &self,
        make: impl Fn(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Asked, Error> {
        self.check_fork()?;
        match self.ask_once(&make, fds) {
            Err(error) if error == ErrorKind::ManagerAway => {
                self.turn()?;
                self.ask_once(&make, fds)
            }
            asked => asked,
        }
    }

    fn ask_once(
        &self,
        make: impl FnOnce(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Asked, Error> {
        let mut conn = lock(&self.conn);
        let req = conn.next_req();
        let request = make(req);
        conn.send(&request, fds).map(|()| Asked {
            req,
            era: conn.era(),
            purpose: request.purpose(),
        })
    }

    /// Takes the manager's news. A manager that was found has until `deadline` to answer; a thread that has waited
    /// [`PATIENCE`] for it tells all others.
    fn look_for_manager(&self, deadline: Instant) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            match self.turn() {
                Err(error) if error == ErrorKind::ManagerAway && lock(&self.conn).is_greeting() => {
                }
                done => return done,
            }
            if Instant::now() >= deadline {
                if started.elapsed() >= PATIENCE {
                    lock(&self.conn).set_stalled();
                }
                return Err(ErrorKind::ManagerAway.into());
            }
            let _ = futex::wait(self.wake_word(), self.wake(), Some(POLL_INTERVAL));
        }
    }

    /// Waits for an answer, taking events meanwhile. Returns `None` if it has not come by the deadline: it may still
    /// come.
    pub fn answer(
        &self,
        asked: Asked,
        deadline: Option<Instant>,
    ) -> Result<Option<EventWithFds>, Error> {
        loop {
            let seen = self.wake();
            let outcome = self.turn();
            {
                let mut conn = lock(&self.conn);
                if let Some(came) = conn.take_reply(asked.req) {
                    return not_refused(came).map(Some);
                }
                // The connection that was to bring the answer is gone.
                if conn.era() != asked.era {
                    return Err(ErrorKind::ManagerAway.into());
                }
            }
            outcome?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            self.wait_news(seen, deadline);
        }
    }

    /// Returns the answer if it has come at the last moment; otherwise no thread waits for it any more.
    fn give_up(&self, asked: Asked, started: Instant) -> Result<(EventWithFds, u64), Error> {
        let mut conn = lock(&self.conn);
        if let Some(came) = conn.take_reply(asked.req) {
            return not_refused(came).map(|came| (came, asked.era));
        }
        conn.forget(asked.req);
        conn.silent = true;
        Err(TimedOut::since(started, Awaited::Manager(asked.purpose)).into())
    }

    /// Says whether an answer has come, or will not come any more.
    pub fn is_answered(&self, asked: Asked) -> bool {
        let conn = lock(&self.conn);
        conn.has_reply(asked.req) || conn.era() != asked.era
    }

    /// Says whether a message can be sent to the manager, as far as known.
    pub fn is_managed(&self) -> bool {
        lock(&self.conn).hears()
    }

    /// Says whether the manager has also answered the last request, as far as a thread had to wait for it.
    pub fn is_answering(&self) -> bool {
        let conn = lock(&self.conn);
        conn.hears() && !conn.silent
    }

    /// Returns the random number of the present or the last manager.
    pub fn manager_instance(&self) -> u64 {
        lock(&self.conn).instance
    }

    /// Sends a request that any manager answers at once. An answer by the end of a wait shows that the manager did not
    /// cause that wait.
    pub fn probe(&self) -> Result<Asked, Error> {
        let after = PoolId(u32::MAX); // there is no pool with this id
        self.ask_now(|req| Request::Figures { req, after }, &[])
    }

    /// Says whether a manager has answered a probe. The answer is given once.
    pub fn has_answered(&self, probe: Asked) -> bool {
        let has = self.is_answered(probe);
        self.forget(probe);
        if !has {
            lock(&self.conn).silent = true;
        }
        has
    }

    /// Drops an answer when it comes: no thread waits for it any more.
    pub fn forget(&self, asked: Asked) {
        let mut conn = lock(&self.conn);
        if conn.era() != asked.era {
            return;
        }
        match conn.take_reply(asked.req) {
            Some(came) => drop(self.undo(&mut conn, came)),
            None => conn.forget(asked.req),
        }
    }

    /// Tells the manager that a name is no longer waited for. The caller waits for the answer, which says whether a
    /// domain listens there.
    pub fn end_connect(&self, asked: Asked) -> Result<(), Error> {
        let mut conn = lock(&self.conn);
        match conn.era() == asked.era {
            true => conn.send(&Request::CancelConnect { req: asked.req }, &[]),
            false => Ok(()),
        }
    }

    /// Drops the wait for a name that the manager was asked for.
    pub fn cancel_connect(&self, asked: Asked) {
        let mut conn = lock(&self.conn);
        if conn.era() != asked.era {
            return; // the next manager knows nothing of it
        }
        match conn.take_reply(asked.req) {
            Some(came) => drop(self.undo(&mut conn, came)),
            None => {
                conn.forget(asked.req);
                let _ = conn.send(&Request::CancelConnect { req: asked.req }, &[]);
            }
        }
    }

    /// Runs work that needs the manager. While it is away, the work is repeated until the deadline or, without one, for
    /// [`PATIENCE`].
    pub fn patiently<T>(
        &self,
        deadline: Option<Instant>,
        mut what: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
        loop {
            match what() {
                Err(error) if error == ErrorKind::ManagerAway && Instant::now() < deadline => {
                    self.idle()
                }
                done => return done,
            }
        }
    }

    /// Waits a moment for the manager to come back.
    pub fn idle(&self) {
        let _ = futex::wait(self.wake_word(), self.wake(), Some(POLL_INTERVAL));
        self.turn_quietly();
    }

    /// Says whether other domains may still be on their way to a manager that came back.
    pub fn is_just_back(&self) -> bool {
        lock(&self.conn)
            .back_since
            .is_some_and(|since| since.elapsed() < OTHERS)
    }

    /// Returns the number of ended connections. The manager may not know objects that were set up with answers of an
    /// earlier connection.
    pub fn era(&self) -> u64 {
        lock(&self.conn).era()
    }

    /// Handles events that came for a channel before its link was on the register.
    pub fn take_early(&self, channel: ChannelId) -> Result<(), Error> {
        let mut conn = lock(&self.conn);
        for (event, fds) in conn.take_early(channel) {
            self.handle(&mut conn, event, fds)?;
        }
        Ok(())
    }

    /// Forgets events that came for a channel which did not become a link.
    pub fn drop_early(&self, channel: ChannelId) {
        drop(lock(&self.conn).take_early(channel));
    }

    /// Returns the obstacle between this process and any manager.
    pub fn cut_off(&self) -> Option<Barrier> {
        lock(&self.conn).attempts.cut_off()
    }

    /// Returns the manager's state, record after record. If no record comes for the manager timeout, the manager hangs.
    /// Another thread's call ends first.
    pub fn stat(&self) -> Result<Vec<StatRecord>, Error> {
        let _alone = lock(&self.surveys);
        let asked = self.ask(|req| Request::Stat { req }, &[])?;
        let mut records = Vec::new();
        let ended = loop {
            let started = Instant::now();
            let answer = self.answer(asked, started.checked_add(self.manager_timeout));
            let before = records.len();
            records.extend(lock(&self.conn).take_records(asked.req));
            if !matches!(answer, Ok(None)) || records.len() == before {
                break self.settled(asked, answer, started);
            }
        };
        records.extend(lock(&self.conn).take_records(asked.req));
        ended.map(|_| records)
    }

    /// Sleeps until the manager has news beyond `seen`, at most one round.
    pub fn wait_news(&self, seen: u32, deadline: Option<Instant>) {
        let round = deadline.map_or(ROUND, |d| {
            d.saturating_duration_since(Instant::now()).min(ROUND)
        });
        let _ = futex::wait(self.wake_word(), seen, Some(round));
    }
}

fn not_refused((event, fds): EventWithFds) -> Result<EventWithFds, Error> {
    match event {
        Event::Refused { refusal, .. } => Err(error::refused(refusal)),
        event => Ok((event, fds)),
    }
}
