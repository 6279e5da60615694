//! The public handle of a domain.

use crate::base::lock;
use crate::domain::{DomainCore, LeakReport};
use crate::error::{self, Error, ErrorKind};
use crate::link::{
    Accepts, Address, Carrier, ChannelEnd, End, Ends, Feed, Listener, Opening, Receiver, Within,
    listen_local, look_for_named, open_local, open_named, unknown,
};
use crate::options::{ChannelOptions, PoolOptions};
use crate::pool::Pool;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tranship_proto::{DomainId, Role};

/// A protection domain: this process's membership with a manager. Clone it freely; threads may share it.
///
/// The domain says goodbye, and its descriptors and memory go back, when its last handle is gone and none of its
/// objects (pools, channels, listeners, heaps, buffers) is in use. After `fork()` a child gets [`ErrorKind::Forked`]
/// from everything inherited, and connects a domain of its own.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, Receiver, Sender};
///
/// let camera = Domain::embedded()?; // with a manager of its own; `Domain::connect()` joins the machine's
/// let socket = camera.socket_path().unwrap();
/// let viewer = std::thread::spawn(move || {
///     let viewer = Domain::builder().name("viewer").socket(socket).connect()?;
///     viewer.open::<Receiver>("video")?.recv()
/// });
/// let mut sender = camera.listen::<Sender>("video")?.accept()?;
/// let mut frame = sender.alloc(7)?; // in memory that the viewer alone can read
/// frame.copy_from_slice(b"a frame");
/// sender.send(frame.freeze())?; // shared
/// assert_eq!(viewer.join().unwrap()?.to_vec(), b"a frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Domain {
    shared: Arc<Handle>,
}

/// A look for an end.
type Look = Box<dyn FnMut() -> Result<Option<End>, Error> + Send>;
/// The place where a thread puts the end.
type Receipt = Arc<Mutex<Option<Result<End, Error>>>>;

struct Handle {
    core: DomainCore,
    carriers: Mutex<Vec<Arc<dyn Carrier>>>,
}

impl Domain {
    pub(super) fn new(core: DomainCore) -> Domain {
        Domain {
            shared: Arc::new(Handle {
                core,
                carriers: Mutex::default(),
            }),
        }
    }

    pub(crate) fn core(&self) -> &DomainCore {
        &self.shared.core
    }

    /// Returns the domain's id.
    pub fn id(&self) -> DomainId {
        self.core().id()
    }

    /// Returns the socket that was named when joining, or that the embedded manager listens on.
    pub fn socket_path(&self) -> Option<PathBuf> {
        self.core().home.socket.clone()
    }

    /// Makes a pool that this domain writes and pays for.
    ///
    /// Asks the manager and waits for its answer, as long as the [`manager_timeout`](crate::DomainBuilder::manager_timeout) says; while it is away,
    /// 5 s at most for it to come back.
    ///
    /// # Errors
    /// `BadArgument` for options outside their range, with what is allowed; `Quota`, `Limit`, `Access`, `Refused` by
    /// the manager; `OutOfMemory` for the pool's first memory ([`PoolOptions::preallocate`]); `PoolMap` if the
    /// addresses are not free; `TimedOut` when the manager does not answer; `ManagerAway`, `CutOff`; `Forked`;
    /// `System`.
    pub fn create_pool(&self, options: PoolOptions) -> Result<Pool, Error> {
        let core = self.core();
        core.check_fork()?;
        core.patiently(None, || Pool::create(core, options.clone()))
    }

    /// Listens at an address. Each domain that connects gets a channel of its own, of which this side has the end `E`.
    ///
    /// | address | the other end is |
    /// |---|---|
    /// | `NAME`, `shm:NAME` | any process that has joined the same manager |
    /// | `local:NAME` | in this process; the manager is not asked |
    /// | any other `SCHEME:REST` | where a carrier says ([`carrier::add_to`](crate::carrier::add_to)) |
    ///
    /// Waits for the manager as [`create_pool`](Domain::create_pool) does.
    ///
    /// # Errors
    /// `NameTaken`; `Access`; `TimedOut` when the manager does not answer, `ManagerAway`, `CutOff`; `BadArgument` for
    /// an invalid name; `InvalidEndpoint` for an unknown scheme (the text lists the known ones), and where a carrier
    /// cannot listen.
    pub fn listen<E: ChannelEnd>(&self, address: &str) -> Result<Listener<E>, Error> {
        self.listen_with(address, ChannelOptions::default())
    }

    /// Listens at an address, with options for the channels that are accepted there.
    ///
    /// # Errors
    /// As [`listen`](Domain::listen), and `BadArgument` for a pool among the options that is not this domain's.
    pub fn listen_with<E: ChannelEnd>(
        &self,
        address: &str,
        options: ChannelOptions,
    ) -> Result<Listener<E>, Error> {
        self.listen_as(address, E::ROLE, E::asks(options))
            .map(Listener::new)
    }

    fn listen_as(
        &self,
        address: &str,
        role: Role,
        options: ChannelOptions,
    ) -> Result<Accepts, Error> {
        crate::link::check(&options)?;
        let core = self.core();
        let fed = |feed, maker| Accepts::fed(core, address, options.clone(), feed, maker);
        match Address::parse(address) {
            Address::Named(name) => Accepts::new(core, name, role, options),
            Address::Local(name) => {
                Receiver::check(core, role, &options)?;
                let feed = Feed::new()?;
                let guard = listen_local(core, (name, Within::Process), role, &options, &feed)?;
                Ok(fed(feed, Box::new((guard, self.clone()))))
            }
            Address::Carried { scheme, rest } => {
                core.check_fork()?;
                typeless(scheme, &options)?;
                Receiver::check(core, role, &options)?;
                let (carrier, feed) = (self.carrier(scheme)?, Feed::new()?);
                let ends = self.ends(address, role, &options, Some(&feed));
                let guard = carrier.listen(scheme, rest, ends)?;
                Ok(fed(feed, Box::new((guard, self.clone()))))
            }
        }
    }

    /// Connects to an [address](Domain::listen), and returns the end `E` of the channel. Waits until a domain listens
    /// there for the other end.
    ///
    /// # Errors
    /// `TimedOut` when the manager does not answer, `ManagerAway`, `CutOff`; `BadArgument` for an invalid name, or one
    /// that this domain offers itself; `InvalidEndpoint` for an unknown scheme; `SameRole` if the listener has the same
    /// end. A listener that goes without accepting is no error: the call waits for the next one.
    pub fn open<E: ChannelEnd>(&self, address: &str) -> Result<E, Error> {
        self.open_with(address, ChannelOptions::default())
    }

    /// Connects to an [address](Domain::listen), with options. Waits until a domain listens there, at most
    /// [`ChannelOptions::timeout`].
    ///
    /// # Errors
    /// As [`open`](Domain::open), `BadArgument` for a pool among the options that is not this domain's, and `TimedOut` after the options' time: its
    /// text says whether a listener is there.
    pub fn open_with<E: ChannelEnd>(
        &self,
        address: &str,
        options: ChannelOptions,
    ) -> Result<E, Error> {
        E::of(self.open_for(address, E::ROLE, &E::asks(options), None)?)
    }

    /// Connects to an [address](Domain::listen) without waiting: the channel's end is awaited, in any runtime, or
    /// looked for now and then ([`Opening::try_open`]). Many channels may be opened at once. Only the task waits for
    /// the manager and the peer; at a carrier's address, a thread of its own.
    ///
    /// A dropped `Opening` ends the wait for the name. The options' time is exact to a quarter of a second.
    ///
    /// # Errors
    /// As [`open_with`](Domain::open_with), and `System` where the thread that wakes tasks, or its descriptors, cannot be had.
    pub fn open_async<E: ChannelEnd>(&self, address: &str, options: ChannelOptions) -> Opening<E> {
        let look = self.opening(address, E::ROLE, E::asks(options));
        Opening::new(self.core(), look, E::of)
    }

    /// Looks whether a channel is open, again and again.
    fn opening(&self, address: &str, role: Role, options: ChannelOptions) -> Look {
        let core = self.core();
        match Address::parse(address) {
            Address::Named(name) => look_for_named(core, name, role, &options),
            Address::Local(name) => {
                let (core, name, begun) = (core.clone(), name.to_owned(), Instant::now());
                let at_once = options.clone().timeout(Duration::ZERO);
                Box::new(move || match open_local(&core, &name, role, &at_once) {
                    Ok(end) => Ok(Some(end)),
                    Err(error) if error == ErrorKind::TimedOut => {
                        match options
                            .timeout
                            .is_some_and(|timeout| begun.elapsed() >= timeout)
                        {
                            true => Err(error),
                            false => Ok(None),
                        }
                    }
                    Err(error) => Err(error),
                })
            }
            Address::Carried { .. } => {
                let (domain, address) = (self.clone(), address.to_owned());
                let mut opened: Option<Receipt> = None;
                // Dropped with the future.
                let asker = Arc::new(());
                Box::new(move || {
                    if let Some(opened) = &opened {
                        return lock(opened).take().transpose();
                    }
                    let receipt = Receipt::default();
                    opened = Some(Arc::clone(&receipt));
                    let (domain, address, options) =
                        (domain.clone(), address.clone(), options.clone());
                    let asked = Arc::downgrade(&asker);
                    let open = move || {
                        let end = domain.open_for(&address, role, &options, Some(asked));
                        *lock(&receipt) = Some(end);
                        domain.core().tasks.has_news();
                        domain.core().tasks.tell_news();
                    };
                    let started = crate::base::thread("tranship-open", open);
                    started.map_err(error::system("starting a thread that connects"))?;
                    Ok(None)
                })
            }
        }
    }

    /// Opens a channel for a thread. `asker` is dropped when no caller wants the end any more.
    fn open_for(
        &self,
        address: &str,
        role: Role,
        options: &ChannelOptions,
        asker: Option<Weak<()>>,
    ) -> Result<End, Error> {
        crate::link::check(options)?;
        let core = self.core();
        match Address::parse(address) {
            Address::Named(name) => open_named(core, name, role, options),
            Address::Local(name) => open_local(core, name, role, options),
            Address::Carried { scheme, rest } => {
                core.check_fork()?;
                typeless(scheme, options)?;
                let mut ends = self.ends(address, role, options, None);
                ends.asker = asker;
                let handed = self.carrier(scheme)?.open(scheme, rest, &ends)?;
                Ok(handed.0)
            }
        }
    }

    fn ends(
        &self,
        address: &str,
        role: Role,
        options: &ChannelOptions,
        feed: Option<&Arc<Feed>>,
    ) -> Ends {
        Ends {
            domain: self.core().clone(),
            address: address.to_owned(),
            role,
            options: options.clone(),
            feed: feed.cloned(),
            asker: None,
        }
    }

    fn carrier(&self, scheme: &str) -> Result<Arc<dyn Carrier>, Error> {
        let carriers = lock(&self.shared.carriers);
        let found = carriers
            .iter()
            .rev()
            .find(|carrier| carrier.schemes().contains(&scheme));
        let known =
            || -> Vec<&str> { carriers.iter().flat_map(|c| c.schemes()).copied().collect() };
        found.cloned().ok_or_else(|| unknown(scheme, &known()))
    }

    /// Takes what the manager has sent and does the work that is due: maps and unmaps chunks, gives memory back,
    /// rejoins a restarted manager. Slow paths call it; so does the helper thread. Call it when
    /// [`as_fd`](Domain::as_fd) is readable, or now and then. Never blocks for long.
    ///
    /// A manager that is away, or cannot be reached again, is no error: existing channels go on
    /// ([`Admin::is_managed`](crate::admin::Admin::is_managed) and [`Admin::cut_off`](crate::admin::Admin::cut_off)
    /// tell).
    ///
    /// # Errors
    /// `Forked`; `System` when this process has no room for the manager's descriptors; `PeerViolation`.
    pub fn turn(&self) -> Result<(), Error> {
        match self.core().turn() {
            Err(error) if matches!(error.kind(), ErrorKind::ManagerAway | ErrorKind::CutOff) => {
                Ok(())
            }
            turned => turned,
        }
    }

    /// Drops this handle, and reports the buffers that the domain still has. If it was the last handle, nothing is
    /// printed.
    pub fn close(self) -> LeakReport {
        let report = self.core().leak_report();
        self.core().hush_leaks();
        report
    }
}

/// Checks that a carried channel has no message type: no carrier shows it to the other end.
fn typeless(scheme: &str, options: &ChannelOptions) -> Result<(), Error> {
    if options.message_type.is_none() {
        return Ok(());
    }
    let text = format!(
        "a channel by `{scheme}:` has no message type: open it without, or at a `shm:` or `local:` address"
    );
    Err(Error::new(ErrorKind::ChannelBind, text))
}

/// Adds a carrier to a domain, for all its handles: the carrier has the channels at addresses of its schemes. If two
/// carriers know a scheme, the later one has it.
pub fn add_to(domain: &Domain, carrier: Arc<dyn Carrier>) {
    lock(&domain.shared.carriers).push(carrier);
}

impl AsFd for Domain {
    /// Returns one descriptor for any epoll loop: readable when [`Domain::turn`] is due or a pollable channel has news.
    /// It stays valid while the manager is away.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.core().pollable()
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
            self.core.say_leaks();
            self.core.leave();
        }
    }
}
