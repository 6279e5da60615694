//! The parts of the shell.

use super::conn::Conn;
use super::flight::Flights;
use super::keep::{CloseQueue, Kept};
use super::listener::Listener;
use super::notify::Notify;
use super::page::Pages;
use super::party::Party;
use super::pressure::Gauge;
use super::store::StoredNames;
use super::watchdog::Beat;
use super::worker::Workers;
use crate::state::{ClientId, FdToken, Input, State};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_proto::DomainId;
use tranship_region::layout::ControlPageRw;
use tranship_sys::epoll::Epoll;

/// Epoll's token for a ready descriptor: the kind is in the upper byte.
pub(super) const LISTENER: u64 = 0;
pub(super) const STOP: u64 = 1;
pub(super) const CLIENT: u64 = 1 << 56;
pub(super) const WATCH: u64 = 2 << 56;
pub(super) const WORKER: u64 = 3 << 56;
pub(super) const PARTY: u64 = 4 << 56;
pub(super) const PAGE: u64 = 5 << 56;
pub(super) const KIND: u64 = 0xff << 56;

pub(super) struct Shell {
    pub state: State,
    pub epoll: Epoll,
    /// Dropped before the listener, whose lock decides who owns the file.
    pub pages: Pages,
    pub listener: Listener,
    /// Set if there was no room for a connection: none is accepted until then.
    pub listener_rests: Option<Instant>,
    pub started: Instant,
    pub instance: u64,
    pub control_page_entries: u32,
    /// Quotas change without a request, and control pages say so.
    pub scheduled: bool,
    pub max_files: usize,
    pub fds: HashMap<FdToken, Rc<Kept>>,
    pub close_queue: Rc<CloseQueue>,
    pub next_token: u64,
    pub conns: HashMap<ClientId, Conn>,
    pub next_client: u64,
    pub control_pages: HashMap<FdToken, ControlPageRw>,
    pub watches: HashMap<FdToken, DomainId>,
    pub connected: HashMap<DomainId, ClientId>,
    pub parties: HashMap<u32, Party>,
    /// Parties with tasks, in the order of their turns.
    pub runnable: VecDeque<u32>,
    /// Parties that have no turn until then.
    pub resting: Vec<(Instant, u32)>,
    pub workers: Workers,
    /// Parties that wait for a worker.
    pub waits_for_worker: BTreeSet<u32>,
    /// Descriptors in transit to clients; users whose ended connections have some; the time of the next check of those.
    pub flights: Flights,
    pub lingering: BTreeSet<u32>,
    pub look: Duration,
    /// Answers to the state's read actions.
    pub answers: VecDeque<Input>,
    /// Connections to which the kernel lets no more descriptors go for the moment.
    pub throttled: BTreeSet<ClientId>,
    /// The buffer for reading messages.
    pub buf: Box<[u8]>,
    pub ids: Option<PathBuf>,
    pub notify: Notify,
    pub store: StoredNames,
    pub beat: Arc<Beat>,
    /// Processor time that this thread had used when it last began to wait.
    pub used: Duration,
    pub exit: bool,
    pub gauge: Gauge,
    /// The heap belongs to the manager alone, which is not so in a thread of another program.
    pub trims: bool,
    /// The time at which memory is given back.
    pub trim: Option<Instant>,
}
