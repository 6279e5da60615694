//! The public handle of a domain.

use super::greeting::PATIENCE as HUNG;
use super::{DomainBuilder, DomainCore, lock};
use crate::error::{self, Barrier, Error, Kind};
use crate::heap::Heap;
use crate::link::{End, Listener, PeerSocket, Receiver, Sender, SocketListener, open_async};
use crate::options::{HeapOptions, LinkOptions, PoolOptions};
use crate::pool::Pool;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tranship_proto::{DomainId, Event, PoolId, Request, Role, StatRecord};
use tranship_sys::epoll::Interest;

/// A protection domain: this process's membership with a manager. Clone it freely; threads may share it.
///
/// When the last handle is gone the domain says goodbye, and its descriptors and memory go back, as soon as nothing of it (a pool, a
/// link, a listener, a heap, a buffer) is in use any more. After `fork()` a child gets [`Kind::Forked`] from everything inherited and
/// connects a domain of its own.
#[derive(Clone)]
pub struct Domain {
    shared: Arc<Handle>,
}

struct Handle {
    core: DomainCore,
}

impl Domain {
    pub(super) fn new(core: DomainCore) -> Domain {
        Domain {
            shared: Arc::new(Handle { core }),
        }
    }

    pub(crate) fn core(&self) -> &DomainCore {
        &self.shared.core
    }

    /// Joins a manager; see [`DomainBuilder::connect`].
    pub fn connect() -> Result<Domain, Error> {
        DomainBuilder::default().connect()
    }

    /// Starts a manager inside this process and joins it; see [`DomainBuilder::embedded`].
    pub fn embedded() -> Result<Domain, Error> {
        DomainBuilder::default().embedded()
    }

    /// Joining with choices.
    pub fn builder() -> DomainBuilder {
        DomainBuilder::default()
    }

    /// The domain's id.
    pub fn id(&self) -> DomainId {
        self.core().id()
    }

    /// The socket that was named when joining, or that the embedded manager listens on.
    pub fn socket_path(&self) -> Option<PathBuf> {
        self.core().socket.clone()
    }

    /// Makes a pool that this domain writes and pays for.
    pub fn create_pool(&self, options: PoolOptions) -> Result<Pool, Error> {
        let core = self.core();
        core.check_fork()?;
        core.patiently(None, || Pool::create(core, options.clone()))
    }

    /// Makes a heap: private memory that is charged to this domain by the byte.
    pub fn create_heap(&self, options: HeapOptions) -> Result<Heap, Error> {
        let core = self.core();
        core.check_fork()?;
        core.patiently(None, || Heap::create(core, options.clone()))
    }

    /// Exports a name. Everyone who connects to it gets a link in which this side has `role`.
    pub fn listen(&self, name: &str, role: Role) -> Result<Listener, Error> {
        self.listen_with(name, role, LinkOptions::default())
    }

    /// The same with choices for its links.
    pub fn listen_with(
        &self,
        name: &str,
        role: Role,
        options: LinkOptions,
    ) -> Result<Listener, Error> {
        Listener::new(self.core(), name, role, options)
    }

    /// Connects to a name that a receiver exports; waits until somebody does.
    pub fn open_sender(&self, name: &str) -> Result<Sender, Error> {
        self.open_sender_with(name, LinkOptions::default())
    }

    /// The same with choices.
    pub fn open_sender_with(&self, name: &str, options: LinkOptions) -> Result<Sender, Error> {
        self.core()
            .open(name, Role::Source, &options)?
            .into_sender()
    }

    /// The same for awaiting, in any runtime. Many may be awaited at once: nothing waits for the manager or a peer but the task.
    ///
    /// If the future is dropped the name is not waited for any more. A time that the options say is kept to a quarter of a second.
    ///
    /// # Errors
    /// As [`open_sender_with`](Domain::open_sender_with), and [`Kind::System`] as for [`Receiver::recv_async`].
    pub fn open_sender_async(
        &self,
        name: &str,
        options: LinkOptions,
    ) -> impl Future<Output = Result<Sender, Error>> + Send + Unpin + use<> {
        open_async(self.core(), name, Role::Source, &options, End::into_sender)
    }

    /// Connects to a name that a sender exports; waits until somebody does.
    pub fn open_receiver(&self, name: &str) -> Result<Receiver, Error> {
        self.open_receiver_with(name, LinkOptions::default())
    }

    /// The same with choices.
    pub fn open_receiver_with(&self, name: &str, options: LinkOptions) -> Result<Receiver, Error> {
        self.core()
            .open(name, Role::Sink, &options)?
            .into_receiver()
    }

    /// As [`open_sender_async`](Domain::open_sender_async), for a name that a sender exports.
    ///
    /// # Errors
    /// The same.
    pub fn open_receiver_async(
        &self,
        name: &str,
        options: LinkOptions,
    ) -> impl Future<Output = Result<Receiver, Error>> + Send + Unpin + use<> {
        open_async(self.core(), name, Role::Sink, &options, End::into_receiver)
    }

    /// Exports a name at which others connect sockets, for a protocol of one's own.
    pub fn listen_socket(&self, name: &str) -> Result<SocketListener, Error> {
        SocketListener::new(self.core(), name)
    }

    /// Hands one end of a new socket to who exports the name; the other is the result. Asks the manager, and does not
    /// wait for the exporter.
    ///
    /// # Errors
    /// `NoSuchName`, `Access`, `SameRole` (it is a name of links), or `Limit` (too many have
    /// come that the exporter has not taken).
    pub fn connect_socket(&self, name: &str) -> Result<PeerSocket, Error> {
        let core = self.core();
        core.check_fork()?;
        core.patiently(None, || crate::link::connect(core, name))
    }

    /// Takes what the manager has sent and does the work that is due: maps and unmaps chunks, gives memory back,
    /// rejoins a restarted manager. Slow paths call it; so does the helper thread. Call it when
    /// [`as_fd`](Domain::as_fd) is readable, or now and then. Never blocks for long.
    ///
    /// That the manager is away is no error, nor that it cannot be reached again: existing channels go on
    /// ([`is_managed`](Domain::is_managed) and [`cut_off`](Domain::cut_off) tell).
    ///
    /// # Errors
    /// `Forked`; `System` when this process has no room for what the manager sends; `PeerViolation`.
    pub fn turn(&self) -> Result<(), Error> {
        match self.core().turn() {
            Err(error) if matches!(error.kind(), Kind::ManagerAway | Kind::CutOff) => Ok(()),
            turned => turned,
        }
    }

    /// Sets what a pool or heap of any domain may have, until it ends or the manager is restarted; says what it may have now, which is no more than
    /// the manager's total. If it has more it is asked to give the rest back, and gets nothing new before.
    ///
    /// # Errors
    /// `Access` for whoever is neither root nor the manager's own user; `Refused` for what is not there;
    /// `BadArgument` if it is more than the pool's or heap's maximum. `TimedOut` when it has not answered within 10 s.
    pub fn set_quota(&self, pool: PoolId, quota_bytes: u64) -> Result<u64, Error> {
        let make = |req| Request::SetQuota {
            req,
            pool,
            quota_bytes,
        };
        let deadline = Some(Instant::now() + HUNG);
        match self.core().call(make, &[], deadline)?.0 {
            Event::QuotaSet { quota_bytes, .. } => Ok(quota_bytes),
            other => Err(error::protocol(format!("{other:?} where a quota was set"))),
        }
    }

    /// What the manager knows: itself, domains, pools, channels, who holds what.
    ///
    /// # Errors
    /// `TimedOut` when it has not said all of it within 10 s.
    pub fn stat(&self) -> Result<Vec<StatRecord>, Error> {
        self.core().stat()
    }

    /// What keeps this process from reaching a manager again, if it was locked down after it had joined and the manager was
    /// restarted. Channels go on with the memory that they have; everything new is `CutOff`.
    pub fn cut_off(&self) -> Option<Barrier> {
        self.core().cut_off()
    }

    /// Whether the manager is there.
    pub fn is_managed(&self) -> bool {
        !self.core().fork.is_child() && self.core().is_managed()
    }
}

impl AsFd for Domain {
    /// One descriptor for any epoll loop: readable when [`Domain::turn`] is due or a pollable link has
    /// something. It stays valid while the manager is away.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core().poller.as_fd()
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.core().fmt(f)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.core.fork.is_child() {
            self.core.leave();
        }
    }
}

impl DomainCore {
    fn stat(&self) -> Result<Vec<StatRecord>, Error> {
        let mut asked = None;
        let ended = self.call(
            |req| {
                asked = Some(req);
                Request::Stat { req }
            },
            &[],
            Some(Instant::now() + HUNG),
        );
        let records = asked.map(|req| lock(&self.conn).take_records(req));
        ended.map(|_| records.unwrap_or_default())
    }

    pub(super) fn poll_socket(&self) -> Result<(), Error> {
        let conn = lock(&self.conn);
        match conn.fd() {
            Some(fd) => self
                .poller
                .add(fd, 0, Interest::Read)
                .map_err(Error::system("epoll_ctl")),
            None => Ok(()),
        }
    }

    pub(super) fn poll_manager(&self, fd: BorrowedFd<'_>) {
        // The old socket left the set when it was closed.
        let _ = self.poller.add(fd, 0, Interest::Read);
    }

    pub(crate) fn poll_also(&self, fd: &OwnedFd) -> Result<(), Error> {
        self.poller
            .add(fd, 1, Interest::Read)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Readable when the manager has news.
    pub(crate) fn pollable(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    pub(crate) fn poll_no_more(&self, fd: &OwnedFd) {
        let _ = self.poller.remove(fd);
    }
}
