//! The first send from a pool: it is assigned to the channel, with the receiver's consent.

use super::{Out, Sender};
use crate::buffer::{Handle, Home};
use crate::domain::{Asked, ROUND};
use crate::error::{Awaited, Error, ErrorKind, PoolPending, TimedOut};
use crate::link::removal::removed;
use crate::link::shared::{Assigned, Assignment, Gone};
use crate::options::Patience;
use crate::pool::{OwnPool, Pool};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_proto::{DomainId, PoolId, Refusal, RefusalCode, Request, Role};
use tranship_region::layout::{CountsRw, Way};
use tranship_sys::crash;

/// Time that a receiver without a manager has to come back, or to be found dead, before the assignment of a pool fails.
const RECONNECT_LIMIT: Duration = Duration::from_secs(3);

impl Sender {
    /// Assigns a pool to this channel now, instead of at the first send from it. Blocks until the receiver agreed. A pool that
    /// this end [has removed](Sender::remove_pool) is assigned again at once.
    ///
    /// The receiver can read all of the pool from then on. A pool of level [`None`](crate::Trust::None) is therefore
    /// assigned by a send to the channels of one domain only: to those of others by this call.
    ///
    /// # Errors
    /// `ChannelTrust`, `Refused` when the receiver does not take it; `PoolNotAssigned` when the receiver has removed it; `Quota`, `Limit`, `Access` by the manager; `PeerGone`; `BufferInvalid` for a pool of another domain; `CutOff`; `Forked`; `System`.
    pub fn assign(&mut self, pool: &Pool) -> Result<(), Error> {
        self.assign_own(pool, None)
    }

    /// Assigns a pool, or fails with `TimedOut` after `timeout`. The request to the receiver goes on: the next call
    /// takes its answer.
    ///
    /// # Errors
    /// As [`assign`](Sender::assign); `TimedOut`, or `ManagerAway` while there is no manager that could ask it.
    pub fn assign_timeout(&mut self, pool: &Pool, timeout: Duration) -> Result<(), Error> {
        self.assign_own(pool, Instant::now().checked_add(timeout))
    }

    /// Asks for a pool to be assigned, without waiting. Returns whether it is. If not, the receiver was asked and has
    /// still to call the library, or the manager is away. Call it again.
    ///
    /// # Errors
    /// As [`assign`](Sender::assign).
    pub fn try_assign(&mut self, pool: &Pool) -> Result<bool, Error> {
        match self.assign_own(pool, Some(Instant::now())) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ManagerAway) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    #[cold]
    pub(super) fn find_or_assign(&mut self, buf: Handle) -> Result<(), Error> {
        self.give_back_assignments();
        let home = buf.home_key();
        if let Some(at) = self.outs.iter().position(|out| out.home == home) {
            self.outs.swap(0, at);
            return Ok(());
        }
        let side = match buf.home() {
            // SAFETY: pools outlive their outstanding slots, and `buf` is one.
            Home::Own(pool) => unsafe { pool.as_ref() }.arc().map(Assigned::Own),
            // SAFETY: as above.
            Home::Foreign(pool) => unsafe { pool.as_ref() }.arc().map(Assigned::Foreign),
        };
        let Some(side) = side.filter(|side| side.domain_is(&self.link.domain)) else {
            return Err(super::others_buffer());
        };
        if let Assigned::Own(own) = &side {
            self.is_not_anothers(own)?;
        }
        let new = match &side {
            Assigned::Own(own) => self.offer_to_first(own)?.then(|| own.clone()),
            Assigned::Foreign(_) => None,
        };
        let (pool, _) = side.shape();
        self.is_not_removed(pool)?;
        let writer = match &side {
            Assigned::Own(_) => None,
            Assigned::Foreign(foreign) => Some(foreign.shape.writer),
        };
        let deadline = self.consent_by();
        let assigned = self.assign_side(home, side, deadline);
        if let (Err(error), Some(own)) = (&assigned, new)
            && error.find::<TimedOut>().is_none()
        {
            own.not_taken_by(self.link.peer);
        }
        assigned.map_err(|error| match self.link.gone() {
            Gone::No => match error.find::<TimedOut>() {
                Some(&TimedOut {
                    awaited: Awaited::Consent(_),
                    waited_ms,
                }) => PoolPending { pool, waited_ms }.into(),
                _ => not_assigned(error, pool, writer),
            },
            _ => self.peer_gone(),
        })
    }

    /// Checks that no other domain than the receiver's was offered the pool, if it is of level `none`. Returns whether
    /// the receiver's is new.
    fn offer_to_first(&self, own: &OwnPool) -> Result<bool, Error> {
        own.offered_to(self.link.peer, false).ok_or_else(|| {
            let text = format!(
                "pool {} of level none has another reader, and each reader can read all of it: make a pool for this receiver, or call `assign` first",
                own.id()
            );
            Error::new(ErrorKind::Refused, text)
        })
    }

    fn assign_own(&mut self, pool: &Pool, deadline: Option<Instant>) -> Result<(), Error> {
        self.link.domain.check_fork()?;
        if let Some(store) = &self.store {
            store.take_in(pool.id());
            self.agree_inside(pool.own_ref())?; // nobody has to map it
            return self.link.show_inside(&pool.own_arc());
        }
        let own = pool.own_arc();
        let _ = own.offered_to(self.link.peer, true);
        let home = Arc::as_ptr(&own).cast::<()>();
        if self.outs.iter().any(|out| out.home == home) || self.take_in(own.id(), home)? {
            return Ok(());
        }
        let assigned = self.assign_side(home, Assigned::Own(own), deadline);
        assigned.map_err(|error| match self.link.gone() {
            Gone::No => error,
            _ => self.peer_gone(),
        })
    }

    /// Assigns a pool, waiting as long as the receiver takes, or until the deadline. A request without an answer by
    /// then goes on: the next call waits for that answer.
    // Crash: on record before the manager knows, so that `QueueJoined` finds this end's counters; an unconfirmed
    // assignment is not shown to the next manager.
    fn assign_side(
        &mut self,
        home: *const (),
        side: Assigned,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let (pool, slots) = side.shape();
        let mut asked = self.take_unanswered(pool);
        let assignment = match self.link.find(pool).filter(|_| asked.is_some()) {
            Some(assignment) => assignment,
            None => {
                let counts = CountsRw::create(Way::Sent, slots)?;
                self.link.add(Assignment::new(pool, side, counts));
                self.link.find(pool).ok_or(ErrorKind::ManagerAway)?
            }
        };
        crash::point("assign.before_request");
        let started = Instant::now();
        let domain = &self.link.domain;
        // If the receiver does not agree in that time, the error says that the manager has asked it.
        let waits_long =
            deadline.is_some_and(|deadline| deadline.saturating_duration_since(started) >= ROUND);
        let probe = waits_long.then(|| domain.probe().ok()).flatten();
        let mut away_since = self.away_since;
        // If the manager goes away meanwhile, the same counters are used again: they are zero.
        let answer = loop {
            let answer = domain.patiently(deadline, || {
                self.ask_to_assign(&assignment, &mut asked, &mut away_since, deadline)
            });
            // A caller that waits as long as it takes waits for a manager, too.
            let waits = deadline.is_none()
                && answer
                    .as_ref()
                    .is_err_and(|error| *error == ErrorKind::ManagerAway);
            if !waits || self.link.gone() != Gone::No {
                break answer;
            }
            self.link.look_for_death();
        };
        self.away_since = away_since.filter(|_| !matches!(answer, Ok(true)));
        let is_silent = probe.is_some_and(|probe| !domain.has_answered(probe));
        match answer {
            Ok(true) => {}
            Ok(false) => {
                match asked {
                    Some(asked) => self.unanswered.push((pool, asked)),
                    None => self.link.remove(pool),
                }
                let late = |awaited| TimedOut::since(started, awaited);
                return Err(match is_silent {
                    true => {
                        let late = late(Awaited::Manager("the assignment of a pool"));
                        Error::because(
                            ErrorKind::ManagerAway,
                            "the manager is there, but does nothing",
                            late,
                        )
                    }
                    false => late(Awaited::Consent(pool)).into(),
                });
            }
            Err(error) => {
                self.link.remove(pool);
                return Err(error);
            }
        }
        crash::point("assign.after_answer");
        // The receiver may know of the assignment, and remove the pool, before this end does.
        let is_removed = assignment.is_removed();
        let defer = match &assignment.side {
            Assigned::Own(pool) => Some(pool.new_defer_queue()),
            Assigned::Foreign(_) => None,
        };
        self.outs.insert(
            0,
            Out {
                home: match is_removed {
                    true => std::ptr::null(),
                    false => home,
                },
                sent: NonNull::from(assignment.counts.counts()).cast(),
                counts: assignment.counts.clone(),
                assignment,
                defer,
            },
        );
        match is_removed {
            true => Err(removed(pool, Role::Sink)),
            false => Ok(()),
        }
    }

    /// Asks the manager, if that was not done, and waits; false if no answer has come by the deadline.
    fn ask_to_assign(
        &self,
        assignment: &Assignment,
        asked: &mut Option<Asked>,
        away_since: &mut Option<Instant>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let (domain, channel, pool) = (&self.link.domain, self.link.channel, assignment.pool);
        let now = match *asked {
            Some(now) => now,
            None => {
                let make = |req| Request::Assign { req, channel, pool };
                let fds = [assignment.counts_fd.as_fd()];
                // A caller that does not wait for the receiver does not wait for a manager's welcome, either.
                match deadline {
                    Some(_) => domain.ask_now(make, &fds)?,
                    None => domain.ask(make, &fds)?,
                }
            }
        };
        *asked = Some(now);
        let answer = domain.answer(now, deadline);
        if matches!(answer, Ok(None)) {
            return Ok(false);
        }
        *asked = None;
        match answer {
            // A manager that came back may not know the channel, or its sink, yet.
            Err(error)
                if domain.is_just_back()
                    && self.link.gone() == Gone::No
                    && error.find().is_some_and(|refusal: &Refusal| {
                        matches!(refusal.code, RefusalCode::NoSuchId | RefusalCode::PeerGone)
                    }) =>
            {
                self.link.look_for_death();
                return Err(ErrorKind::ManagerAway.into());
            }
            // The receiver's connection has ended. This proves nothing yet: a killed process loses its descriptors
            // before it is dead.
            Err(error)
                if self.link.gone() == Gone::No
                    && error.find().is_some_and(Refusal::went_away)
                    && away_since.get_or_insert_with(Instant::now).elapsed() < RECONNECT_LIMIT =>
            {
                self.link.look_for_death();
                return match deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    true => Ok(false),
                    false => Err(ErrorKind::ManagerAway.into()),
                };
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.link.open_pool(pool);
        // Confirmed by a manager that is gone: the next one was perhaps not told.
        if domain.era() != now.era {
            self.link.shut_pool(pool);
            return Err(ErrorKind::ManagerAway.into());
        }
        Ok(true)
    }

    fn take_unanswered(&mut self, pool: PoolId) -> Option<Asked> {
        let at = self.unanswered.iter().position(|(of, _)| *of == pool)?;
        Some(self.unanswered.swap_remove(at).1)
    }

    /// Returns the time until which a send waits for the receiver's consent to a new pool, which comes when its process
    /// runs. A receiver that has still to agree is not behind: no message is dropped for that.
    pub(super) fn consent_by(&self) -> Option<Instant> {
        match self.patience {
            Patience::Channel(_) => None,
            Patience::AtMost(time) => Instant::now().checked_add(time),
        }
    }
}

/// Says why a pool was not assigned, in the words of a caller that has sent a buffer.
fn not_assigned(error: Error, pool: PoolId, writer: Option<DomainId>) -> Error {
    let is_it = |refusal: &Refusal| {
        refusal.code == RefusalCode::NoSuchId && refusal.asked == u64::from(pool.0)
    };
    match writer.filter(|_| error.find().is_some_and(is_it)) {
        None => error.context("the pool could not be assigned to the channel"),
        Some(writer) => error.context(format!(
            "domain {writer} has ended, and its pool {pool} was never shown to the receiver: send a copy of the buffer"
        )),
    }
}
