//! The first send from a pool: it is assigned to the channel, with the receiver's consent.

use super::{Out, Sender};
use crate::cbuf::{Cbuf, Home};
use crate::domain::{Asked, millis};
use crate::error::{DomainError, SendFailure};
use crate::link::shared::{Assigned, Assignment, Gone};
use crate::options::WhenFull;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_proto::{PoolId, RefusalCode, Request};
use tranship_region::layout::{CountsRw, Way};
use tranship_sys::crash;

/// The least time that a first send from a pool gives the receiver to consent.
const CONSENT: Duration = Duration::from_secs(1);

impl Sender {
    #[cold]
    pub(super) fn find_or_assign(
        &mut self,
        buf: &Cbuf,
        home: *const (),
    ) -> Result<(), SendFailure> {
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
        let Some(side) = side.filter(|side| side.domain_is(self.link.domain)) else {
            return Err(SendFailure::OtherDomain);
        };
        let deadline = self.consent_by(side.shape().0);
        let assigned = self.assign_side(home, side, deadline);
        assigned.map_err(|error| match self.link.gone() {
            Gone::No => SendFailure::Assign(error),
            _ => SendFailure::PeerGone(self.link.channel),
        })
    }

    /// Assigns a pool, waiting as long as the receiver takes, or until the deadline. What was not answered by then goes
    /// on: the next call waits for that answer.
    // Crash: on record before the manager knows, so that `QueueJoined` finds our counters; what is not confirmed is not
    // shown to the next manager.
    pub(super) fn assign_side(
        &mut self,
        home: *const (),
        side: Assigned,
        deadline: Option<Instant>,
    ) -> Result<(), DomainError> {
        let (pool, slots) = side.shape();
        let mut asked = self.take_unanswered(pool);
        let assignment = match self.link.find(pool).filter(|_| asked.is_some()) {
            Some(assignment) => assignment,
            None => {
                let (fd, counts) = CountsRw::create(Way::Sent, slots)?;
                self.link.add(Assignment {
                    pool,
                    side,
                    counts: Arc::new(counts),
                    counts_fd: fd,
                    open: std::sync::atomic::AtomicBool::new(false),
                });
                self.link.find(pool).ok_or(DomainError::ManagerAway)?
            }
        };
        crash::point("assign.before_request");
        let started = Instant::now();
        let domain = self.link.domain;
        // The same counters again, should the manager go away meanwhile: they are zero.
        let answer = loop {
            let answer = domain.patiently(deadline, || {
                self.ask_to_assign(&assignment, &mut asked, deadline)
            });
            // Who waits as long as it takes waits for a manager, too.
            let waits = deadline.is_none() && matches!(answer, Err(DomainError::ManagerAway));
            if !waits || self.link.gone() != Gone::No {
                break answer;
            }
            self.link.look_for_death();
        };
        match answer {
            Ok(true) => {}
            Ok(false) => {
                self.unanswered.extend(asked.map(|asked| (pool, asked)));
                return Err(DomainError::TimedOut {
                    waited_ms: millis(started.elapsed()),
                });
            }
            Err(error) => {
                self.link.remove(pool);
                return Err(error);
            }
        }
        crash::point("assign.after_answer");
        self.outs.insert(
            0,
            Out {
                home,
                sent: NonNull::from(assignment.counts.counts()).cast(),
                counts: assignment.counts.clone(),
                _assignment: assignment,
            },
        );
        Ok(())
    }

    /// Asks the manager, if that was not done, and waits; false if no answer has come by the deadline.
    fn ask_to_assign(
        &self,
        assignment: &Assignment,
        asked: &mut Option<Asked>,
        deadline: Option<Instant>,
    ) -> Result<bool, DomainError> {
        let (domain, channel, pool) = (self.link.domain, self.link.channel, assignment.pool);
        let now = match *asked {
            Some(now) => now,
            None => domain.ask(
                |req| Request::Assign { req, channel, pool },
                &[assignment.counts_fd.as_fd()],
            )?,
        };
        *asked = Some(now);
        let answer = domain.answer(now, deadline);
        if matches!(answer, Ok(None)) {
            return Ok(false);
        }
        *asked = None;
        match answer {
            // A manager that came back may not know the channel, or its sink, yet.
            Err(DomainError::Refused(refusal))
                if domain.is_just_back()
                    && self.link.gone() == Gone::No
                    && matches!(refusal.code, RefusalCode::NoSuchId | RefusalCode::PeerGone) =>
            {
                self.link.look_for_death();
                return Err(DomainError::ManagerAway);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.link.open_pool(pool);
        // Confirmed by a manager that is gone: the next one was perhaps not told.
        if domain.era() != now.era {
            self.link.shut_pool(pool);
            return Err(DomainError::ManagerAway);
        }
        Ok(true)
    }

    fn take_unanswered(&mut self, pool: PoolId) -> Option<Asked> {
        let at = self.unanswered.iter().position(|(of, _)| *of == pool)?;
        Some(self.unanswered.swap_remove(at).1)
    }

    /// How long a send waits for the receiver's consent to a new pool, which comes when its process runs. Who does not
    /// want to wait waits once; while that answer is still to come, later sends only look.
    fn consent_by(&self, pool: PoolId) -> Option<Instant> {
        let again = self.unanswered.iter().any(|(of, _)| *of == pool);
        let patience = match self.when_full {
            WhenFull::Block => return None,
            WhenFull::BlockFor(time) if again => time,
            WhenFull::BlockFor(time) => time.max(CONSENT),
            WhenFull::Error | WhenFull::DropNew if again => Duration::ZERO,
            WhenFull::Error | WhenFull::DropNew => CONSENT,
        };
        Instant::now().checked_add(patience)
    }
}
