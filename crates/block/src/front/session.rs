//! One client's channel: takes questions, answers each with the buffer that it came with.

use super::{ROUND, Served};
use crate::data::Lent;
use crate::lack::{Patience, passes};
use crate::leases::Tenant;
use crate::remote::give;
use crate::wire::{self, Ask, Say, VERSION};
use crate::{Data, Fault, Job, LaneKind, Op, Store, sum};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tranship_bulk::{Buffer, Channel, Error, Event, Kind};

/// Whether a channel may still begin anything. Held while it begins something.
type Fence = Arc<Mutex<bool>>;

/// The newest channel of each client's session. When a client comes back, nothing that waits in its former channel is
/// begun any more: it asks again, and a late first write must not come after what was written since.
#[derive(Debug, Default)]
pub(super) struct Fences(Mutex<HashMap<u64, Fence>>);

impl Fences {
    /// This channel is the session's now; the former one begins nothing any more.
    fn replace(&self, session: u64, fence: &Fence) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let former = all.insert(session, Arc::clone(fence));
        if let Some(former) = former.filter(|former| !Arc::ptr_eq(former, fence)) {
            *former.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }
    }

    fn forget(&self, session: u64, fence: &Fence) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&session).is_some_and(|now| Arc::ptr_eq(now, fence)) {
            all.remove(&session);
        }
    }
}

/// What answers are given through, also by the store's threads.
struct Answers {
    kind: LaneKind,
    channel: Channel,
    /// For which there was no room, or something was missing here.
    late: Mutex<VecDeque<(Buffer, Say)>>,
}

impl Answers {
    fn give(&self, buffer: Buffer, say: Say) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if !late.is_empty() {
            return late.push_back((buffer, say));
        }
        match give(self.kind, &self.channel, buffer, &say) {
            Err(refused) if passes(refused.kind()) => late.push_back((refused.unsent, say)),
            // Nobody is there for it any more; the buffer goes with the channel.
            _ => {}
        }
    }

    /// Says what they still wait for.
    fn give_late(&self) -> Option<Error> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((buffer, say)) = late.pop_front() {
            match give(self.kind, &self.channel, buffer, &say) {
                Err(refused) if passes(refused.kind()) => {
                    late.push_front((refused.unsent, say));
                    return Some(refused.error);
                }
                _ => {}
            }
        }
        None
    }
}

/// One client's channel.
pub(super) struct Session {
    kind: LaneKind,
    served: Served,
    answers: Arc<Answers>,
    fences: Arc<Fences>,
    fence: Fence,
    session: Option<u64>,
    tenant: Option<Arc<Tenant>>,
    /// Of a hello that waits until the store knows itself.
    hello: Option<Buffer>,
}

impl Session {
    pub(super) fn new(
        kind: LaneKind,
        channel: Channel,
        served: Served,
        fences: Arc<Fences>,
    ) -> Session {
        let answers = Answers {
            kind,
            channel,
            late: Mutex::default(),
        };
        Session {
            kind,
            served,
            answers: Arc::new(answers),
            fences,
            fence: Arc::new(Mutex::new(true)),
            session: None,
            tenant: None,
            hello: None,
        }
    }

    /// Serves until the channel is over.
    pub(super) fn run(mut self, stop: &AtomicBool) -> Result<(), Error> {
        let ended = self.provide(stop).and_then(|()| self.attend(stop));
        self.answers.channel.abandon();
        if let Some(session) = self.session {
            self.fences.forget(session, &self.fence);
        }
        ended
    }

    /// As the master: the pools, and then their buffers.
    fn provide(&self, stop: &AtomicBool) -> Result<(), Error> {
        let Some(lane) = &self.served.lane else {
            return Ok(());
        };
        let channel = &self.answers.channel;
        for pool in lane.0.pools()? {
            let asked = channel.assign(pool.info().id)?;
            while asked.result().is_none() {
                let ended = matches!(
                    channel.wait_event(ROUND)?,
                    Some(Event::Gone(_) | Event::Closed)
                );
                if ended || stop.load(Ordering::Acquire) {
                    return Err(Kind::PeerGone.into());
                }
            }
            asked.result().unwrap_or(Err(Kind::PeerGone.into()))?;
        }
        for buffer in lane.0.lend() {
            self.answers.give(buffer, Say::Credit);
        }
        Ok(())
    }

    fn attend(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let channel = self.answers.channel.clone();
        let mut patience = Patience::default();
        let who = format!("{:?}: a client's channel", self.kind);
        // Ordering: acquire, partner: the front's end.
        while !stop.load(Ordering::Acquire) {
            let mut next = patience.event(&who, &channel, ROUND)?;
            while let Some(event) = next {
                match event {
                    Event::Moved(buffer, meta) | Event::Passed(buffer, meta) => {
                        self.asked(buffer, &meta)?;
                    }
                    Event::Gone(_) | Event::Closed => return Ok(()),
                    Event::Copied(..) | Event::MovedAll(..) | Event::CopiedAll(..) => {
                        return Err(Kind::PeerViolation.into());
                    }
                    _ => {}
                }
                next = patience.event(&who, &channel, Duration::ZERO)?;
            }
            self.served.store.kick();
            self.welcome();
            if let Some(lack) = self.answers.give_late() {
                patience.say(&who, &lack);
            }
        }
        Ok(())
    }

    fn asked(&mut self, buffer: Buffer, meta: &[u8]) -> Result<(), Error> {
        match wire::decode::<Ask>(meta) {
            Some(Ask::Hello {
                version,
                session,
                client,
                caches,
            }) => {
                if version != VERSION {
                    self.answers.give(buffer, Say::Version(VERSION));
                    return Ok(());
                }
                self.fences.replace(session, &self.fence);
                self.session = Some(session);
                let leases = self.served.leases.as_ref();
                self.tenant = leases.map(|leases| Arc::new(leases.enter(client, caches)));
                self.hello = Some(buffer);
                Ok(())
            }
            Some(Ask::Do(request)) => {
                let fits = matches!(
                    (self.kind, request.op),
                    (LaneKind::Read, Op::Read)
                        | (
                            LaneKind::Write,
                            Op::Write | Op::Flush | Op::Trim | Op::Zero { .. }
                        )
                );
                // Whoever writes without checksums would have them checked by nobody.
                let summed =
                    request.op != Op::Write || request.len == 0 || !request.sums.is_empty();
                if !fits || !summed || self.session.is_none() {
                    self.answers
                        .give(buffer, Say::Done(Err(Fault::Invalid), None));
                    return Ok(());
                }
                self.begin(request, buffer);
                Ok(())
            }
            None => Err(Kind::PeerViolation.into()),
        }
    }

    /// Answers a hello as soon as the store knows itself.
    fn welcome(&mut self) {
        if self
            .served
            .lane
            .as_ref()
            .is_some_and(|lane| !lane.0.is_known())
        {
            return;
        }
        let Some(buffer) = self.hello.take() else {
            return;
        };
        let say = match self.served.store.info() {
            Ok(info) => Say::Welcome(info, self.served.leases.as_ref().map(|l| l.opening)),
            Err(fault) => Say::Done(Err(fault), None),
        };
        self.answers.give(buffer, say);
    }

    fn begin(&self, request: crate::Request, buffer: Buffer) {
        let open = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return;
        }
        let answers = Arc::clone(&self.answers);
        // Where nobody has made checksums before: here the bytes begin their way.
        let unsummed = request.op == Op::Read && !self.served.store.is_checked();
        let (offset, len) = (request.offset, request.len as usize);
        let tenant = self.tenant.clone();
        // Before it is done: what others write meanwhile it may miss.
        let lease = tenant.as_ref().and_then(|tenant| tenant.asked());
        let tenant = tenant.filter(|_| request.op.writes());
        self.served.store.submit(Job {
            request,
            data: Data::Bulk(Lent::new(buffer, None)),
            done: Box::new(move |data, mut result| {
                if unsummed {
                    result = result.and_then(|_| sum::sums_of(offset, &data, len));
                }
                let answer = move || {
                    if let Data::Bulk(lent) = data
                        && let (Some(buffer), _) = lent.take()
                    {
                        answers.give(buffer, Say::Done(result, lease));
                    }
                };
                match tenant {
                    Some(tenant) => tenant.wrote(answer),
                    None => answer(),
                }
            }),
        });
        drop(open);
    }
}
