//! Asking the manager and waiting for its answer; taking its events.

use super::conn::{Conn, Parcel};
use super::{Chore, DomainCore, lock};
use crate::error::{self, Awaited, Error, Kind, TimedOut};
use crate::link::{Gone, LinkShared};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, Event, Refusal, Req, Request};
use tranship_sys::futex;

/// No wait for the manager is longer than this without looking whether it is still there.
pub(crate) const ROUND: Duration = Duration::from_millis(100);
/// How long a manager may be away before a call that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long after we came back to a manager a refusal may only mean that others have not come back yet. A patience, no proof.
const OTHERS: Duration = Duration::from_secs(3);
/// Between two looks whether it is back.
pub(crate) const NAP: Duration = Duration::from_millis(20);

/// A request whose answer is on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    req: Req,
    /// The connection that is to bring it.
    pub(crate) era: u64,
}

impl DomainCore {
    /// Sends a request that has an answer and waits for it, taking events meanwhile.
    pub(crate) fn call(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<Parcel, Error> {
        self.call_in_era(make, fds, deadline)
            .map(|(parcel, _)| parcel)
    }

    /// The same, with the [`era`](Self::era) that the answer is of.
    pub(crate) fn call_in_era(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<(Parcel, u64), Error> {
        let started = Instant::now();
        let asked = self.ask(make, fds)?;
        match self.answer(asked, deadline) {
            Ok(Some(parcel)) => Ok((parcel, asked.era)),
            Ok(None) => self.give_up(asked, started),
            // This was the answer.
            Err(error) if error.find::<Refusal>().is_some() => Err(error),
            Err(error) => {
                self.forget(asked);
                Err(error)
            }
        }
    }

    /// The same for what can be done without: waits no longer than [`PATIENCE`], and not at all for a manager that somebody
    /// else waited for so long already and that has said nothing since.
    ///
    /// # Errors
    /// `TimedOut`: an answer that comes after all is undone.
    pub(crate) fn call_if_prompt(
        &self,
        make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<Parcel, Error> {
        let patience = Instant::now() + PATIENCE;
        if lock(&self.conn).stalled {
            self.turn_quietly();
            if lock(&self.conn).stalled {
                return Err(TimedOut {
                    awaited: Awaited::Manager,
                    waited_ms: 0,
                }
                .into());
            }
        }
        let deadline = deadline.map_or(patience, |d| d.min(patience));
        let outcome = self.call(make, fds, Some(deadline));
        let late = matches!(&outcome, Err(error) if *error == Kind::TimedOut);
        if late && Instant::now() >= patience {
            lock(&self.conn).stalled = true;
        }
        outcome
    }

    /// Sends a request that has an answer.
    pub(crate) fn ask(
        &self,
        mut make: impl FnMut(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Asked, Error> {
        self.check_fork()?;
        match self.ask_once(&mut make, fds) {
            // Perhaps it is back already and nobody has looked.
            Err(error) if error == Kind::ManagerAway => {
                self.look_for_manager()?;
                self.ask_once(&mut make, fds)
            }
            asked => asked,
        }
    }

    /// The same without waiting for a manager that has still to welcome us.
    pub(crate) fn ask_now(
        &self,
        make: impl Fn(Req) -> Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Asked, Error> {
        self.check_fork()?;
        match self.ask_once(&make, fds) {
            Err(error) if error == Kind::ManagerAway => {
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
        conn.send(&make(req), fds).map(|()| Asked {
            req,
            era: conn.era(),
        })
    }

    /// Takes the manager's news. One that was found and has still to answer is given [`PATIENCE`].
    fn look_for_manager(&self) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.turn() {
                Err(error) if error == Kind::ManagerAway && lock(&self.conn).is_greeting() => {}
                done => return done,
            }
            if Instant::now() >= deadline {
                lock(&self.conn).stalled = true;
                return Err(Kind::ManagerAway.into());
            }
            let _ = futex::wait(self.wake_word(), self.wake(), Some(NAP));
        }
    }

    /// Waits for an answer, taking events meanwhile; `None` if it has not come by the deadline: it still may.
    pub(crate) fn answer(
        &self,
        asked: Asked,
        deadline: Option<Instant>,
    ) -> Result<Option<Parcel>, Error> {
        loop {
            let seen = self.wake();
            let outcome = self.turn();
            {
                let mut conn = lock(&self.conn);
                if let Some(parcel) = conn.take_reply(asked.req) {
                    return not_refused(parcel).map(Some);
                }
                // The connection that was to bring the answer is gone.
                if conn.era() != asked.era {
                    return Err(Kind::ManagerAway.into());
                }
            }
            outcome?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            self.wait_news(seen, deadline);
        }
    }

    /// The answer if it has come at the last moment; else nobody waits for it any more.
    fn give_up(&self, asked: Asked, started: Instant) -> Result<(Parcel, u64), Error> {
        let mut conn = lock(&self.conn);
        if let Some(parcel) = conn.take_reply(asked.req) {
            return not_refused(parcel).map(|parcel| (parcel, asked.era));
        }
        conn.forget(asked.req);
        Err(TimedOut {
            awaited: Awaited::Manager,
            waited_ms: millis(started.elapsed()),
        }
        .into())
    }

    /// Whether an answer has come, or will not any more.
    pub(crate) fn is_answered(&self, asked: Asked) -> bool {
        let conn = lock(&self.conn);
        conn.has_reply(asked.req) || conn.era() != asked.era
    }

    /// Whether the manager is there, as far as we know.
    pub(crate) fn is_managed(&self) -> bool {
        lock(&self.conn).hears()
    }

    /// Nobody waits for this answer any more.
    pub(crate) fn forget(&self, asked: Asked) {
        let mut conn = lock(&self.conn);
        if conn.era() != asked.era {
            return;
        }
        match conn.take_reply(asked.req) {
            Some(parcel) => drop(self.undo(&mut conn, parcel)),
            None => conn.forget(asked.req),
        }
    }

    /// Nobody waits any more for a name that the manager was asked for.
    pub(crate) fn cancel_connect(&self, asked: Asked) {
        let mut conn = lock(&self.conn);
        if conn.era() != asked.era {
            return; // the next manager knows nothing of it
        }
        match conn.take_reply(asked.req) {
            Some(parcel) => drop(self.undo(&mut conn, parcel)),
            None => {
                conn.forget(asked.req);
                let _ = conn.send(&Request::CancelConnect { req: asked.req }, &[]);
            }
        }
    }

    /// Does something that needs the manager; while it is away, again and again, until the deadline or, without one,
    /// for [`PATIENCE`].
    pub(crate) fn patiently<T>(
        &self,
        deadline: Option<Instant>,
        mut what: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + PATIENCE);
        loop {
            match what() {
                Err(error) if error == Kind::ManagerAway && Instant::now() < deadline => self.nap(),
                done => return done,
            }
        }
    }

    /// A moment for the manager to come back.
    pub(crate) fn nap(&self) {
        let _ = futex::wait(self.wake_word(), self.wake(), Some(NAP));
        self.turn_quietly();
    }

    /// Whether the others may still be on their way back to a manager that came back.
    pub(crate) fn is_just_back(&self) -> bool {
        lock(&self.conn)
            .back_since
            .is_some_and(|since| since.elapsed() < OTHERS)
    }

    /// Counts the connections that ended. What was set up with answers of an earlier one may be unknown to the manager.
    pub(crate) fn era(&self) -> u64 {
        lock(&self.conn).era()
    }

    /// A channel's link is on the register: handles what came for it before.
    pub(crate) fn take_early(&self, channel: ChannelId) -> Result<(), Error> {
        let mut conn = lock(&self.conn);
        for (event, fds) in conn.take_early(channel) {
            self.handle(&mut conn, event, fds)?;
        }
        Ok(())
    }

    /// A channel did not become a link: forgets what came for it.
    pub(crate) fn drop_early(&self, channel: ChannelId) {
        drop(lock(&self.conn).take_early(channel));
    }

    /// Sends a request that has no answer.
    pub(crate) fn tell(&self, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        self.check_fork()?;
        lock(&self.conn).send(request, fds)
    }

    /// Shows the manager a channel that it has not brought about, if it takes that now.
    pub(crate) fn register(&self, link: &LinkShared) {
        let mut conn = lock(&self.conn);
        link.with_registration(|request, halves| conn.offer(request, halves));
    }

    /// Says that this end leaves the link; false if nobody could hear it: then the next manager will.
    pub(crate) fn say_closed(&self, link: &LinkShared) -> bool {
        // One critical section, so that a resume either finds the mark or is heard after it.
        let mut conn = lock(&self.conn);
        let channel = link.channel;
        let told = conn.send(&Request::CloseChannel { channel }, &[]).is_ok();
        link.leaving.store(!told, Ordering::Relaxed);
        told
    }

    /// Sleeps until the manager has news beyond `seen`, at most one round.
    pub(crate) fn wait_news(&self, seen: u32, deadline: Option<Instant>) {
        let round = deadline.map_or(ROUND, |d| {
            d.saturating_duration_since(Instant::now()).min(ROUND)
        });
        let _ = futex::wait(self.wake_word(), seen, Some(round));
    }

    /// Takes everything that the manager has sent, then does the work that it asks for.
    /// Rejoins a manager that came back.
    pub(crate) fn turn(&self) -> Result<(), Error> {
        self.check_fork()?;
        if self.is_closed() {
            return Ok(());
        }
        let outcome = self.take_events();
        let chores = std::mem::take(&mut *lock(&self.chores));
        for chore in chores {
            match chore {
                Chore::Shrink(pool, target_bytes) => {
                    let pool = lock(&self.pools).get(&pool).cloned();
                    if let Some(pool) = pool {
                        pool.set_shrink_target(target_bytes);
                    }
                }
                Chore::Traced(pool, on) => self.set_traced(pool, on),
                Chore::Quota(pool, quota_bytes) => {
                    let pool = lock(&self.pools).get(&pool).cloned();
                    if let Some(pool) = pool {
                        pool.lift_shrink_target(quota_bytes);
                    }
                }
            }
        }
        self.look_for_deaths();
        self.tend_pools();
        self.look_at_left();
        self.tasks.tell_news();
        outcome
    }

    /// Whether something is to be looked at of which there may be no news, as a manager that is away: who waits looks now and then.
    pub(crate) fn has_left_overs(&self) -> bool {
        // Who has the lock looks itself.
        let is_away = || self.conn.try_lock().is_ok_and(|conn| !conn.is_up());
        self.unwatched.load(Ordering::Relaxed) || is_away() // a hint
    }

    /// Deaths that no manager tells us of.
    fn look_for_deaths(&self) {
        if !self.unwatched.load(Ordering::Relaxed) || !self.unwatched.swap(false, Ordering::Relaxed)
        {
            return;
        }
        let links: Vec<_> = lock(&self.links).values().cloned().collect();
        let unwatched = links.iter().filter(|l| !l.watched.load(Ordering::Relaxed));
        for link in unwatched {
            link.look_for_death();
            // A link that we left while there was no manager is closed here if its peer cannot come back to it.
            let over = link.gone() != Gone::No
                && (!link.leaving.load(Ordering::Relaxed) || self.closes(link));
            if !over {
                self.unwatched.store(true, Ordering::Relaxed);
            }
        }
        if self.give_up_foreign() {
            self.unwatched.store(true, Ordering::Relaxed);
        }
        let pools: Vec<_> = lock(&self.pools).values().cloned().collect();
        for pool in pools {
            if pool.bury_dead_readers() {
                self.unwatched.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Gives up pools of others that no link brings buffers of any more and of which nothing is held, where the present
    /// manager has not said a word of them: perhaps their writer never came back to it. True if there are others.
    // Crash: they are forgotten only at the manager's answer (`PoolGone`), which comes when the writer's roster is rid of
    // us. Should the manager die before, they are claimed from the next one: who forgets its counters cannot prove that it
    // is the one on the roster, and what was left in its queues would stay for ever.
    fn give_up_foreign(&self) -> bool {
        let mut unspoken = false;
        let mut over = Vec::new();
        for (pool, foreign) in &*lock(&self.foreign) {
            if foreign.is_spoken_of() {
                continue;
            }
            // The register's own handle is the last one: links have none, so no new buffer can come.
            if Arc::strong_count(foreign) > 1 || !foreign.nothing_held() {
                unspoken = true;
            } else if foreign.give_up() {
                over.push((*pool, foreign.mapped()));
                foreign.detach_all();
            }
        }
        for (pool, mapped) in over {
            // Also where nothing is mapped: then our claim goes by it alone.
            let mapped = if mapped.is_empty() {
                vec![(0, 0)]
            } else {
                mapped
            };
            for (index, serial) in mapped {
                let request = Request::Unmapped {
                    pool,
                    index,
                    serial,
                };
                let _ = self.tell(&request, &[]);
            }
        }
        unspoken
    }

    /// Tells the manager that a link is closed and forgets it; false while there is none to tell.
    fn closes(&self, link: &LinkShared) -> bool {
        let channel = link.channel;
        let told = self.tell(&Request::CloseChannel { channel }, &[]).is_ok();
        if told {
            lock(&self.links).remove(&channel);
        }
        told
    }

    fn take_events(&self) -> Result<(), Error> {
        let mut conn = lock(&self.conn);
        if !conn.is_up() {
            return self.come_back(&mut conn);
        }
        loop {
            conn.flush();
            // Ordering: Acquire pairs with the manager's Release of `wake` after the datagram went
            // into our socket: what was announced up to here is found by the loop below.
            let wake = self.wake();
            loop {
                match conn.receive() {
                    Ok(Some(parcel)) => {
                        let Some((event, fds)) = conn.keep_early(parcel) else {
                            continue;
                        };
                        let handled = self.handle(&mut conn, event, fds);
                        self.tasks.has_news();
                        match handled {
                            // An answer could not be sent; what else there is must be taken all the same.
                            Err(error) if error != Kind::ManagerAway => return Err(error),
                            _ => {}
                        }
                    }
                    Ok(None) => break,
                    Err(error) if error == Kind::ManagerAway => {
                        self.manager_left();
                        return self.come_back(&mut conn);
                    }
                    Err(error) => {
                        if conn.is_up() {
                            // It waits until there is room for it: who sleeps until there is news must not find it meanwhile.
                            self.seen.store(wake, Ordering::Relaxed); // under the lock
                        } else {
                            self.manager_left();
                        }
                        return Err(error);
                    }
                }
            }
            // Ordering: Release: who finds no news by it sees what the news did. Only threads that hold the lock store.
            self.seen.store(wake, Ordering::Release);
            if self.wake() == wake {
                return Ok(());
            }
        }
    }

    /// Tries to reach a manager again. Whatever the last one announced has been taken or will never come: who sleeps
    /// until there is news must not find any meanwhile.
    fn come_back(&self, conn: &mut Conn) -> Result<(), Error> {
        self.seen.store(self.wake(), Ordering::Relaxed); // under the lock, as everywhere
        if conn.take_ended() {
            for pool in lock(&self.pools).values() {
                pool.stand_alone();
            }
            self.unwatched.store(true, Ordering::Relaxed);
        }
        self.rejoin(conn)
    }

    /// Work on pools that is due: give back chunks, forget pools whose handles are all gone.
    pub(super) fn tend_pools(&self) {
        let pools: Vec<_> = lock(&self.pools).values().cloned().collect();
        for pool in pools {
            pool.tend();
        }
        crate::pool::decay();
    }
}

fn not_refused((event, fds): Parcel) -> Result<Parcel, Error> {
    match event {
        Event::Refused { refusal, .. } => Err(error::refused(refusal)),
        event => Ok((event, fds)),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
