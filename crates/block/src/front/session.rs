//! One client's channels: takes questions, and has them answered.

use super::answers::Answers;
use super::behind::Served;
use crate::data::Own;
use crate::leases::{Leases, Tenant};
use crate::limits::{MAX_DATA_BYTES, MOST_ASKED};
use crate::transient::{PAUSE, Patience, is_transient};
use crate::wire::{self, Ask, Hello, Say};
use crate::{Data, Fault, Job, Op, Request, Store, sum};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tranship_core::{Buffer, Error, ErrorKind, Message, Pool, Receiver, Sender, error};

/// The longest single wait.
pub(super) const ROUND: Duration = Duration::from_millis(100);

/// Whether a channel may still begin anything. Held while it begins something.
type Fence = Mutex<bool>;

/// The newest channel of each client's session. When a client comes back, no waiting request of its former channel is
/// begun any more. The client asks again, and a late first write must not come after a newer one.
#[derive(Debug, Default)]
pub(super) struct Fences(Mutex<HashMap<u64, Weak<Fence>>>);

impl Fences {
    /// Makes a new channel the session's; the former one begins nothing any more.
    pub(super) fn replace(&self, session: u64) -> Arc<Fence> {
        let fence = Arc::new(Fence::new(true));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, fence| fence.strong_count() > 0);
        let former = all.insert(session, Arc::downgrade(&fence));
        drop(all);
        if let Some(former) = former.and_then(|former| former.upgrade()) {
            *former.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }
        fence
    }
}

/// One client.
pub(super) struct Session {
    asks: Receiver,
    answers: Arc<Answers>,
    /// Pool of the data that is read; the client can read all of it.
    pool: Pool,
    served: Served,
    tenant: Option<Arc<Tenant>>,
    fence: Arc<Fence>,
    welcomed: bool,
}

impl Session {
    pub(super) fn new(
        hello: &Hello,
        (asks, answers): (Receiver, Sender),
        pool: &Pool,
        served: Served,
        fence: Arc<Fence>,
    ) -> Session {
        let tenant = |leases: &Arc<Leases>| leases.enter(hello.client, hello.caches);
        Session {
            asks,
            answers: Arc::new(Answers::new(answers, pool)),
            pool: pool.clone(),
            tenant: served.leases.as_ref().map(tenant).map(Arc::new),
            served,
            fence,
            welcomed: false,
        }
    }

    /// Serves until the client is gone.
    pub(super) fn run(mut self, is_over: &dyn Fn() -> bool) -> Result<(), Error> {
        let ended = self.attend(is_over);
        self.answers.end();
        ended
    }

    fn attend(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), Error> {
        let mut patience = Patience::default();
        let who = "a client's channel";
        let mut limit = PAUSE;
        while !is_over() {
            let mut next = patience.next(&who, &mut self.asks, limit)?;
            // A limit, so that the waiting questions do not wait until all completed ones are handled.
            let mut left = MOST_ASKED;
            while let Some(message) = next {
                self.take(message, is_over)?;
                left -= 1;
                next = match left {
                    0 => None,
                    _ => patience.next(&who, &mut self.asks, Duration::ZERO)?,
                };
            }
            self.served.store.kick();
            self.welcome()?;
            let late = self.answers.give_late();
            if let Some(lack) = &late {
                patience.say(&who, lack);
            }
            limit = match self.welcomed && late.is_none() {
                true => ROUND,
                false => PAUSE,
            };
        }
        Ok(())
    }

    /// Sends the properties of the store, as soon as the store knows them, and the client has the pool.
    fn welcome(&mut self) -> Result<(), Error> {
        let remote = self.served.remote.as_ref();
        let is_known = remote.is_none_or(|remote| remote.is_known());
        let assign = |to: &mut Sender| {
            let assigned = to.try_assign(&self.pool);
            if matches!(&assigned, Err(error) if error.kind() == ErrorKind::ChannelTrust) {
                // The client would only see that this end is gone.
                let words = wire::encode(&Say::Trust(self.pool.trust()));
                let _ = to.try_send(&words[..]);
            }
            assigned
        };
        if self.welcomed || !is_known || !self.answers.with(assign)? {
            return Ok(());
        }
        let info = self.served.store.info();
        let info = info.map_err(error::of_kind(ErrorKind::PeerGone))?;
        let opening = self.served.leases.as_ref().map(|leases| leases.opening);
        self.welcomed = true;
        let words = wire::encode(&Say::Welcome(info, opening));
        self.answers
            .with(|to| Ok(to.try_send(&words[..]).map(drop)?))
    }

    fn take(&mut self, message: Message, is_over: &dyn Fn() -> bool) -> Result<(), Error> {
        let Some((Ask::Do(request), number, data)) = wire::open::<Ask>(message) else {
            return Err(wire::violation(
                "it",
                "a message that is none of the protocol's",
            ));
        };
        if !self.welcomed {
            return Err(wire::violation("it", "a question before it was welcomed"));
        }
        self.answers.expect()?;
        let len = request.len as usize;
        let brings = data.as_ref().map_or(0, Buffer::len);
        let fits = match request.op {
            Op::Read => len <= MAX_DATA_BYTES && brings == 0,
            // The data of a client that writes without checksums would be checked by nobody.
            Op::Write => brings == len && (len == 0 || !request.sums.is_empty()),
            Op::Flush | Op::Trim | Op::Zero { .. } => brings == 0,
        };
        if !fits {
            self.answers.give(number, Err(Fault::Invalid), None, None);
            return Ok(());
        }
        let data = match request.op {
            Op::Read if len > 0 && self.served.passes_on => Data::Room(len),
            Op::Read if len > 0 => self.memory(len, is_over)?,
            _ => data.map_or(Data::None, Data::Shared),
        };
        self.begin(request, number, data);
        Ok(())
    }

    /// Returns memory for read data. The client may hold all of it. Then this waits until it gives some back; that
    /// client waits too, but no other.
    fn memory(&self, len: usize, is_over: &dyn Fn() -> bool) -> Result<Data, Error> {
        let mut limit = Duration::ZERO;
        loop {
            match Own::new(&self.pool, len, limit) {
                Ok(own) => return Ok(Data::Own(own)),
                Err(lack) if !is_transient(lack.kind()) => return Err(lack),
                Err(_) => limit = PAUSE,
            }
            if is_over() || self.answers.with(|to| Ok(to.status().peer_gone))? {
                return Err(ErrorKind::PeerGone.into());
            }
            self.served.store.kick();
            self.answers.give_late();
        }
    }

    fn begin(&self, request: Request, number: u64, data: Data) {
        let open = self.fence.lock().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return;
        }
        let answers = Arc::clone(&self.answers);
        let reads = request.op == Op::Read;
        // If no store has made checksums before: here the bytes begin their way.
        let unsummed = reads && !self.served.store.is_checked();
        let (offset, len) = (request.offset, request.len as usize);
        let tenant = self.tenant.clone();
        // Before it is done: it may miss writes of others meanwhile.
        let lease = tenant.as_ref().and_then(|tenant| tenant.asked());
        let tenant = tenant.filter(|_| request.op.writes());
        self.served.store.submit(Job {
            request,
            data,
            done: Box::new(move |data, mut result| {
                if unsummed {
                    result = result.and_then(|_| sum::sums_of(offset, &data, len));
                }
                // The data of a write is the client's again.
                let read = reads.then_some((data, len));
                let answer = move || answers.give(number, result, lease, read);
                match tenant {
                    Some(tenant) => tenant.wrote(answer),
                    None => answer(),
                }
            }),
        });
        drop(open);
    }
}
