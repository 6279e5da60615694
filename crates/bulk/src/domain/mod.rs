//! One domain's side of everything: its pools, its ends of channels, what it knows about each buffer.
//!
//! One lock per domain. What calls back into the program (completions, wakers) happens after it is let go:
//! [`Guard`] collects it.

mod aggregate;
mod agree;
mod arrive;
mod callers;
mod carry;
mod channels;
mod close;
mod counts;
mod forget;
mod poll;
mod setup;
mod state;
mod transfer;
mod turn;

use crate::Shm;
use crate::account::Account;
use crate::completion::{Due, Ends};
use crate::message::{Message, PoolInfo};
use crate::{
    Access, Agreement, ChannelState, Completion, Direction, Error, Kind, Meta, Piece, Role,
    Statistics, Trust, Wish,
    memory::{Memory, Pieces, Staging},
    spec::Assignment,
};
use callers::Callers;
use channels::Channels;
use counts::Counts;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use tranship_region::RoMapping;
use tranship_transport::{Backend, Copying, Frame, Listener, Local, Transport, Wait};

/// What a domain learns, by numbers; handles are made of it when the program takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RawEvent {
    Bound(Result<Agreement, Error>),
    PoolAssigned(PoolInfo),
    PoolRemoved(u64),
    Moved(u64, u32, Meta),
    Passed(u64, u32, Meta),
    Copied(u64, u32, Meta),
    Released(u64, u32, Meta),
    /// Buffers that came as one, moved or as copies.
    Aggregate {
        copies: bool,
        buffers: Vec<(u64, u32)>,
        pieces: Vec<Piece>,
        meta: Meta,
    },
    TeardownBegun,
    Closed,
    /// These came back.
    Gone(Vec<(u64, u32)>),
}

/// Decides about the pools that the other end assigns.
pub(crate) type Acceptor = Box<dyn FnMut(&PoolInfo) -> Result<(), Error> + Send>;

/// Who is at the other end: what it says, and the process that the kernel says. A domain of one process cannot pass for
/// one of another.
pub(crate) type Peer = (u64, u32);

/// What the domain knows about one buffer.
#[derive(Debug)]
pub(crate) struct Slot {
    pub owned: bool,
    /// To whom its creator gave it last.
    pub lent: Option<Peer>,
    /// Copies by channel: taken and not released; sent and not released.
    pub held: Counts,
    pub out: Counts,
    /// By which channel the first of `held` came.
    pub first: Option<u64>,
    /// How often it is shown in the mapping of an aggregate.
    pub mapped: u32,
    /// The channel by which its bytes are on their way in.
    pub arriving: Option<u64>,
    /// How its memory is protected now.
    pub access: Access,
    /// Its owner let the handle go; it goes back by itself as soon as it can.
    pub let_go: bool,
    /// As `let_go`, for copies.
    pub copies_let_go: Counts,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub info: PoolInfo,
    pub memory: Arc<Memory>,
    /// The memory is this domain's own, and bytes that arrive are copied into it, or shown in it.
    pub own_memory: bool,
    /// Each buffer is a memfd by itself, sealed when it is sent; so `pieces`, once the level is fixed.
    pub sealed: bool,
    pub pieces: Option<Pieces>,
    pub creator: bool,
    pub trust: Option<Trust>,
    pub fixed: bool,
    pub came_by: Option<u64>,
    pub slots: Vec<Slot>,
    /// Buffers that the program does not have, newest last.
    pub free: Vec<u32>,
}

pub(crate) struct Assigned {
    pub status: Assignment,
    pub info: PoolInfo,
    /// What is sent here is copied into this, which the other end sees; nothing else is ever in it.
    pub staging: Option<Staging>,
    /// The other end's, to take snapshots of.
    pub mirror: Option<RoMapping>,
    /// Each buffer is to be a memfd by itself.
    pub sealed: bool,
    /// Our own memory for it, until the pool is here.
    pub made: Option<Memory>,
    pub asked: Option<Completion>,
}

pub(crate) struct Channel {
    pub state: ChannelState,
    pub direction: Direction,
    pub wish: Wish,
    pub creator: bool,
    pub agreed: Option<Agreement>,
    pub meta_bytes: u32,
    pub backend: Arc<dyn Backend>,
    pub listener: Option<Box<dyn Listener>>,
    /// Who has connected to it and not bound yet.
    pub callers: Callers,
    pub transport: Option<Box<dyn Transport>>,
    pub peer: Peer,
    pub pools: BTreeMap<u64, Assigned>,
    pub peer_began: bool,
    pub finished: bool,
    pub peer_finished: bool,
    /// Parts of an aggregate that has not come whole.
    pub parts: Vec<(crate::message::Transfer, (u64, u32))>,
    /// A message that could not be taken yet, for want of something here.
    pub held_back: Option<Frame>,
    /// A buffer whose bytes are on their way in.
    pub arriving: Option<arrive::Arriving>,
    /// Answers that found no room.
    pub outbox: VecDeque<Frame>,
    pub sent: u64,
    /// For the numbers of what was taken, between two looks.
    pub taken: Vec<u64>,
    /// What has ended of what was sent, by the numbers of its frames.
    pub ends: Ends,
    pub bind: Option<Completion>,
    pub closing: Vec<Completion>,
    pub events: VecDeque<RawEvent>,
    pub wakers: Vec<Waker>,
    pub acceptor: Option<Acceptor>,
    /// No handle of it is left.
    pub unwatched: bool,
    /// Why it ended; and in words, where the carrier has some.
    pub failure: Option<Error>,
    pub why: Option<String>,
}

#[derive(Default)]
pub(crate) struct State {
    pub account: Arc<Account>,
    pub pools: BTreeMap<u64, Pool>,
    pub channels: Channels,
    pub statistics: Statistics,
    /// From which buffer size on pools are sealed; None: where it pays.
    pub seal_from: Option<u64>,
    /// A channel may be closing: see `finish_where_clean`.
    pub closing: bool,
    /// Handles were let go that could not go back yet: see `give_back`.
    pub let_go: bool,
    /// Ends without a handle may be over: see `forget_unwatched`.
    pub unwatched: bool,
    /// Or are not over yet: see `Shared::tend`.
    pub tends: bool,
    /// To be done once the lock is let go.
    pub finished: Vec<(Completion, Result<(), Error>)>,
    pub due: Vec<Due>,
    pub woken: Vec<Waker>,
    pub buried: Vec<Channel>,
}

/// A domain.
pub struct Shared {
    /// Tells the domains of a process apart.
    pub(crate) id: u64,
    pub(crate) backends: Mutex<HashMap<String, Arc<dyn Backend>>>,
    next_pool: AtomicU64,
    state: Mutex<State>,
}

/// The locked state.
pub(crate) struct Guard<'a>(Option<MutexGuard<'a, State>>);

impl Deref for Guard<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.0
            .as_ref()
            .unwrap_or_else(|| unreachable!("let go only by drop"))
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.0
            .as_mut()
            .unwrap_or_else(|| unreachable!("let go only by drop"))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.0.take() else {
            return;
        };
        if state.finished.is_empty()
            && state.due.is_empty()
            && state.woken.is_empty()
            && state.buried.is_empty()
        {
            return;
        }
        let finished = std::mem::take(&mut state.finished);
        let mut due = std::mem::take(&mut state.due);
        let woken = std::mem::take(&mut state.woken);
        let buried = std::mem::take(&mut state.buried);
        drop(state);
        drop(buried);
        for (completion, result) in finished {
            completion.finish(result, &mut due);
        }
        due.into_iter().for_each(Due::tell);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({:#x})", self.id)
    }
}

impl Shared {
    pub(crate) fn new(account: Arc<Account>) -> Shared {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        // Ordering: relaxed; only the numbers matter.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let random = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
        let seed = std::hash::Hasher::finish(&random);
        let built_in: Vec<(&str, Arc<dyn Backend>)> = vec![
            ("local", Arc::new(Local)),
            ("shm", Arc::new(Shm(Arc::clone(&account)))),
            ("copy", Arc::new(Copying)),
            #[cfg(feature = "net")]
            ("tcp", Arc::new(tranship_transport::net::BuiltIn::tls())),
            #[cfg(feature = "net")]
            (
                "tcp+plain",
                Arc::new(tranship_transport::net::BuiltIn::plain()),
            ),
        ];
        Shared {
            id: (seed << 16) ^ (u64::from(std::process::id()) << 24) ^ count,
            backends: Mutex::new(
                built_in
                    .into_iter()
                    .map(|(scheme, backend)| (scheme.to_owned(), backend))
                    .collect(),
            ),
            next_pool: AtomicU64::new(1),
            state: Mutex::new(State {
                account,
                ..State::default()
            }),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_> {
        Guard(Some(
            self.state.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    pub(crate) fn new_pool_id(&self) -> u64 {
        // Ordering: relaxed; only the numbers matter.
        let count = self.next_pool.fetch_add(1, Ordering::Relaxed);
        self.id.rotate_left(20) ^ count
    }

    pub(crate) fn why(&self, channel: u64) -> Option<String> {
        self.lock().channels.get(&channel)?.why.clone()
    }

    pub(crate) fn waiter(&self, channel: u64) -> Option<Arc<dyn Wait>> {
        let state = self.lock();
        let channel = state.channels.get(&channel)?;
        match (&channel.transport, &channel.listener) {
            (Some(transport), _) => Some(transport.waiter()),
            (None, Some(listener)) => Some(channel.callers.waiter(listener.waiter())),
            (None, None) => None,
        }
    }
}

impl Channel {
    pub(crate) fn role(&self) -> Role {
        match self.agreed {
            None => self.wish.role,
            Some(agreed) if self.creator => agreed.creator_role,
            Some(agreed) => agreed.creator_role.other(),
        }
    }

    pub(crate) fn trust(&self) -> Trust {
        self.agreed.map_or(self.wish.trust, |agreed| agreed.trust)
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(
            self.state,
            ChannelState::Closed | ChannelState::Uninitialized
        )
    }

    pub(crate) fn is_assigned(&self, pool: u64) -> bool {
        let status = self.pools.get(&pool).map(|assigned| assigned.status);
        status == Some(Assignment::Assigned)
    }

    /// Sends what found no room before; says whether all of it is gone.
    pub(crate) fn flush(&mut self) -> bool {
        let Some(transport) = self.transport.as_mut() else {
            return true;
        };
        while let Some(frame) = self.outbox.front() {
            match transport.send(frame) {
                Ok(()) => {
                    self.outbox.pop_front();
                    self.sent += 1;
                }
                Err(error) if error == Kind::Full => return false,
                // Learned by the next turn.
                Err(_) => self.outbox.clear(),
            }
        }
        true
    }

    /// Sends at once or not at all, after everything before it; gives its number.
    pub(crate) fn send(&mut self, frame: &Frame) -> Result<u64, Error> {
        if !self.flush() {
            return Err(Kind::Full.into());
        }
        let transport = self.transport.as_mut().ok_or(Kind::ChannelState)?;
        transport.send(frame)?;
        self.sent += 1;
        Ok(self.sent - 1)
    }

    /// Sends an answer; it waits for room if there is none.
    pub(crate) fn answer(&mut self, message: &Message) {
        self.answer_with(message, Vec::new());
    }

    pub(crate) fn answer_with(&mut self, message: &Message, fds: Vec<Arc<std::os::fd::OwnedFd>>) {
        if let Ok(frame) = message.frame(fds) {
            self.outbox.push_back(frame);
            self.flush();
        }
    }

    pub(crate) fn tell(&mut self, event: RawEvent) {
        self.events.push_back(event);
    }
}
