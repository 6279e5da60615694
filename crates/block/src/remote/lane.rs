//! One channel to a server: its buffers, what was asked, and what waits to be asked.
//!
//! A buffer is where its state says: in `free`, with somebody who called `data`, in `queue` with a question that waits,
//! or `away` with a question that was asked. Nothing of the pools is free in the eyes of `bulk`, except in the moment
//! in which the other end has died; then every buffer that was away is taken again, and asked with again.

use super::Client;
use crate::data::Lent;
use crate::lack::passes;
use crate::lease::Moment;
use crate::leases::random;
use crate::wire::{self, Ask, MAX_BUFFER_BYTES};
use crate::{Data, Done, Endpoint, Fault, Info, Job, LaneKind, Lease, Op, Request, Store};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tranship_bulk::{Buffer, Channel, Domain, Error, Kind, Pool};

/// Sizes of buffers, bytes, and how many of each: small ones for many requests, large ones for long ones. A buffer that
/// goes over a network goes as a whole, so that a request is cut to sizes that there are.
pub(crate) const CLASSES: [(usize, u32); 4] = [
    (4 << 10, 64),
    (16 << 10, 32),
    (64 << 10, 16),
    (256 << 10, 16),
];

/// The pieces of a request that fit buffers without waste.
pub(crate) fn piece(len: usize) -> usize {
    let fits = CLASSES.iter().rev().find(|(bytes, _)| *bytes <= len);
    fits.map_or(len, |(bytes, _)| *bytes)
}

/// The smallest class with room.
pub(super) fn class(len: usize) -> Option<usize> {
    CLASSES.iter().position(|(bytes, _)| *bytes >= len)
}

/// One channel to a server.
#[derive(Debug)]
pub struct Lane {
    pub(super) kind: LaneKind,
    pub(super) server: Endpoint,
    pub(super) domain: Domain,
    pub(super) client: Arc<Client>,
    /// The same at each connection: see [`Ask::Hello`].
    pub(super) session: u64,
    /// Its buffers are those of a front's client: it must be the master.
    pub(super) forwards: bool,
    own: Weak<Lane>,
    state: Mutex<State>,
    changed: Condvar,
    pub(super) stopped: AtomicBool,
    pub(super) connected: AtomicU64,
}

/// Somebody's question.
pub(super) struct Question {
    pub ask: Ask,
    pub buffer: Option<Buffer>,
    /// Where the buffer goes when nobody needs it any more.
    pub home: Option<Weak<Lane>>,
    /// The buffer is only there to carry the question, and is the lane's.
    pub carrier: bool,
    pub done: Done,
    /// Of all questions, in the order in which they were first asked.
    pub number: u64,
    /// Writes that a flush covers.
    pub covers: u64,
    /// When it was asked last.
    pub asked: Moment,
}

#[derive(Default)]
pub(super) struct State {
    /// The channel to the server, when it may be asked.
    pub channel: Option<Channel>,
    pub info: Option<Info>,
    /// The pools, if they are ours.
    pub pools: Vec<Pool>,
    pub free: [Vec<Buffer>; CLASSES.len()],
    pub queue: VecDeque<Question>,
    pub away: HashMap<(u64, u32), Question>,
    /// Are the pools ours?
    pub master: Option<bool>,
    /// Pools of the server.
    pub theirs: Vec<u64>,
    /// Kept for the hello, which must not wait for questions that wait for it.
    pub reserve: Option<Buffer>,
    /// Questions that cannot be asked.
    pub refused: Vec<(Question, Error)>,
    /// The server has been away for too long: nothing waits for it.
    pub given_up: bool,
    /// In words, why it is not there.
    pub why: Option<String>,
    numbers: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} away, {} waiting", self.away.len(), self.queue.len())
    }
}

impl Lane {
    pub(super) fn start(
        kind: LaneKind,
        server: &Endpoint,
        domain: Domain,
        client: Arc<Client>,
        forwards: bool,
    ) -> Arc<Lane> {
        let lane = Arc::new_cyclic(|own| Lane {
            own: own.clone(),
            kind,
            server: server.clone(),
            domain,
            client,
            session: random(),
            forwards,
            state: Mutex::default(),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            connected: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new().name("block-lane".into());
        let own = Arc::clone(&lane);
        if let Err(error) = thread.spawn(move || own.run()) {
            tracing::error!("no thread for a channel: {error}");
            lane.stop();
        }
        lane
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it: what was asked and what waits fails.
    pub fn stop(&self) {
        // Ordering: release and acquire: whoever sees it sees what was done before.
        self.stopped.store(true, Ordering::Release);
        self.tell();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Wakes those who wait for buffers, or for the server.
    pub(super) fn tell(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Waits for a change, at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        let state = self.lock();
        if !self.is_stopped() {
            drop(self.changed.wait_timeout(state, limit));
        }
    }

    /// How often the server was reached.
    pub(crate) fn connections(&self) -> u64 {
        // Ordering: relaxed; a count.
        self.connected.load(Ordering::Relaxed)
    }

    /// Nobody needs this buffer any more.
    pub(crate) fn put_back(&self, buffer: Buffer) {
        let mut state = self.lock();
        // One of a server that is gone belongs nowhere.
        let known = state.master.is_some_and(|master| match master {
            true => state
                .pools
                .iter()
                .any(|pool| pool.info().id == buffer.pool()),
            false => state.theirs.contains(&buffer.pool()),
        });
        if known {
            put(&mut state, buffer);
            self.ask(&mut state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// In words, why the server is not there; none: it is, or was not tried yet.
    pub(crate) fn why(&self) -> Option<String> {
        self.lock().why.clone()
    }

    /// Has the server said what there is?
    pub(crate) fn is_known(&self) -> bool {
        self.lock().info.is_some()
    }

    /// The pools, once they are there: buffers of them go to the server as they are.
    pub(crate) fn pools(&self) -> Result<Vec<Pool>, Error> {
        let mut state = self.lock();
        self.make_pools(&mut state)?;
        Ok(state.pools.clone())
    }

    /// All free buffers, for somebody who submits with them.
    pub(crate) fn lend(&self) -> Vec<Buffer> {
        let mut state = self.lock();
        state.free.iter_mut().flat_map(std::mem::take).collect()
    }

    pub(super) fn make_pools(&self, state: &mut State) -> Result<(), Error> {
        if !state.pools.is_empty() {
            return Ok(());
        }
        let mut made = Vec::new();
        for (bytes, count) in CLASSES {
            made.push(self.domain.pool(count, bytes as u64, false)?);
        }
        for (free, pool) in state.free.iter_mut().zip(&made) {
            while let Ok(buffer) = pool.alloc() {
                free.push(buffer);
            }
        }
        state.pools = made;
        state.reserve = state.free[0].pop();
        Ok(())
    }

    pub(super) fn wait(&self, limit: Duration) -> Result<Info, Fault> {
        let waits = |state: &mut State| state.channel.is_none() && !self.is_stopped();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, waits);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.channel {
            Some(_) => state.info.ok_or(Fault::Gone),
            None => Err(Fault::Gone),
        }
    }

    /// Asks what waits, as far as there is room. The channel's thread does it, and whoever submits. Says what this process
    /// lacks for the rest.
    pub(super) fn ask(&self, state: &mut State) -> Option<Error> {
        let channel = state.channel.clone()?;
        while let Some(mut question) = state.queue.pop_front() {
            if question.buffer.is_none() {
                let mut free = state.free.iter_mut();
                question.buffer = free.find_map(Vec::pop);
            }
            match self.ask_one(state, &channel, question) {
                None => {}
                Some((back, None)) => {
                    state.queue.push_front(back);
                    return None;
                }
                Some((back, Some(error))) => match error.kind() {
                    Kind::PeerGone | Kind::ChannelState => {
                        state.queue.push_front(back);
                        return None;
                    }
                    kind if passes(kind) => {
                        state.queue.push_front(back);
                        return Some(error);
                    }
                    _ => state.refused.push((back, error)),
                },
            }
        }
        None
    }

    /// Gives the question back if it cannot be asked now, and says why; None: there is no buffer for it.
    pub(super) fn ask_one(
        &self,
        state: &mut State,
        channel: &Channel,
        mut question: Question,
    ) -> Option<(Question, Option<Error>)> {
        let Some(buffer) = question.buffer.take() else {
            return Some((question, None));
        };
        let place = (buffer.pool(), buffer.index());
        let meta = wire::encode(&question.ask);
        if self.client.caches {
            question.asked = Moment::now();
        }
        let sent = match self.kind {
            LaneKind::Read => channel.pass(buffer, &meta),
            LaneKind::Write => channel.move_(buffer, &meta),
        };
        match sent {
            Ok(_) => {
                state.away.insert(place, question);
                None
            }
            Err(refused) => {
                question.buffer = Some(refused.unsent);
                Some((question, Some(refused.error)))
            }
        }
    }

    pub(super) fn question(&self, state: &mut State, ask: Ask, done: Done) -> Question {
        state.numbers += 1;
        Question {
            ask,
            buffer: None,
            home: None,
            carrier: true,
            done,
            number: state.numbers,
            covers: self.client.safety.flushing(),
            asked: Moment::default(),
        }
    }
}

impl Store for Lane {
    fn info(&self) -> Result<Info, Fault> {
        let waits =
            |state: &mut State| state.info.is_none() && !state.given_up && !self.is_stopped();
        let waited = self.changed.wait_while(self.lock(), waits);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        state.info.ok_or(Fault::Gone)
    }

    fn is_checked(&self) -> bool {
        true
    }

    fn lease(&self) -> Lease {
        self.client.lease.clone()
    }

    fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
        let class = class(len).ok_or(Fault::Invalid)?;
        let waits = |state: &mut State| {
            state.free[class].is_empty() && !state.given_up && !self.is_stopped()
        };
        let waited = self.changed.wait_while(self.lock(), waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let buffer = state.free[class].pop().ok_or(Fault::Gone)?;
        Ok(Data::Bulk(Lent::new(buffer, Some(self.own.clone()))))
    }

    fn piece(&self, len: usize) -> usize {
        piece(len)
    }

    fn submit(&self, job: Job) {
        let Job {
            request,
            data,
            done,
        } = job;
        let len = u64::from(request.len);
        let with_data = matches!(request.op, Op::Read | Op::Write);
        let fits = len <= MAX_BUFFER_BYTES && request.len as usize <= data.len();
        if self.is_stopped() {
            return done(data, Err(Fault::Gone));
        }
        let mut state = self.lock();
        if state.given_up {
            drop(state);
            return done(data, Err(Fault::Gone));
        }
        let mut question = match data {
            Data::Bulk(lent) if fits || !with_data => {
                let mut question = self.question(&mut state, Ask::Do(request), done);
                (question.buffer, question.home) = lent.take();
                question.carrier = false;
                question
            }
            Data::None if !with_data => self.question(&mut state, Ask::Do(request), done),
            // Only buffers of its pools can go to a server.
            data => {
                drop(state);
                return done(data, Err(Fault::Invalid));
            }
        };
        question.covers = self.client.safety.flushing();
        state.queue.push_back(question);
        self.ask(&mut state);
    }

    fn kick(&self) {}
}

impl Question {
    /// It is answered.
    pub(super) fn end(self, result: Result<Vec<u32>, Fault>) {
        let data = match self.buffer {
            Some(buffer) if !self.carrier => Data::Bulk(Lent::new(buffer, self.home)),
            _ => Data::None,
        };
        (self.done)(data, result);
    }
}

/// Gives a buffer that nobody needs any more to its class.
pub(super) fn put(state: &mut State, buffer: Buffer) {
    if let Some(class) = CLASSES.iter().position(|(bytes, _)| *bytes == buffer.len()) {
        state.free[class].push(buffer);
    }
}

/// The request of a question, if it is one.
pub(super) fn request(question: &Question) -> Option<&Request> {
    match &question.ask {
        Ask::Do(request) => Some(request),
        Ask::Hello { .. } => None,
    }
}
