//! The server: threads with an epoll each, over one store. It goes on in another process when one asks for it
//! (`handover`).

mod admission;
mod announced;
mod classic;
mod connection;
mod datagram;
mod give;
mod handover;
mod incoming;
mod keep;
mod meta;
mod pace;
mod pacing;
mod report;
mod running;
mod shared;
mod take;
mod waiting;
mod worker;

pub use shared::Options;

use crate::share::{self, ShareServer};
use crate::stats::{Counts, Stats};
use crate::store::{Adopted, Store, StoreOptions};
use admission::Admission;
use announced::Announced;
use connection::Connection;
use pacing::Pacing;
use running::{Crew, Running};
use shared::Shared;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};
use tranship_sys::service::Notifier;
use tranship_sys::{eventfd, socket};
use waiting::Waiting;

/// A running server.
///
/// ```
/// # mod tranship { pub use tranship_cache as cache; }
/// use std::io::{Read, Write};
/// use tranship::cache::{Options, Server};
///
/// let server = Server::start(Options { listen: "127.0.0.1:0".parse()?, ..Options::default() })?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"set greeting 0 0 5\r\nhello\r\n")?;
/// let mut answer = [0; 8];
/// client.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"STORED\r\n");
/// server.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    running: Arc<Running>,
    control: Option<Control>,
    address: SocketAddr,
    udp: Option<SocketAddr>,
    taken: Option<Taken>,
}

/// The thread that waits for a successor.
#[derive(Debug)]
struct Control {
    thread: JoinHandle<()>,
    doorbell: OwnedFd,
    path: PathBuf,
}

/// State that a server took over from the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The process that had it; none if it lay with the service manager.
    pub from: Option<u32>,
    /// Items that it stored.
    pub store: Adopted,
    /// Number of its connections.
    pub connections: usize,
}

/// State with which a server begins.
struct Begin {
    store: Store,
    control: Option<OwnedFd>,
    listener: TcpListener,
    datagrams: Option<UdpSocket>,
    connections: Vec<Connection>,
    flush_in: u64,
    taken: Option<Taken>,
    pending: Pending,
}

/// Work that has to be done before the server may write to the arena.
enum Pending {
    Nothing,
    /// The former server lets go of it.
    Former(take::Pending),
    /// No server finds it in the service manager's store again.
    Stored(keep::Once),
}

fn store_options(options: &Options) -> StoreOptions {
    StoreOptions {
        domain: options.domain.clone(),
        memory: options.memory,
        longest: options.longest,
        shards: (options.threads.max(1) * 8).next_power_of_two(),
    }
}

impl Begin {
    /// Begins empty, or with the state that the service manager has kept.
    fn new(options: &Options) -> io::Result<Begin> {
        let found = keep::find(options);
        let mut begin = Begin {
            listener: match found.listener {
                Some(listener) => listener,
                None => {
                    let at = options.listen;
                    TcpListener::bind(at).map_err(doing(format!("serving TCP at {at}")))?
                }
            },
            datagrams: match found.datagrams {
                Some(datagrams) => Some(datagrams),
                None => options.udp.map(datagrams).transpose()?,
            },
            control: options.take_over.as_deref().map(control).transpose()?,
            store: Store::new(store_options(options))
                .map_err(io::Error::other)
                .map_err(doing(format!("{} bytes of memory", options.memory)))?,
            connections: Vec::new(),
            flush_in: 0,
            taken: None,
            pending: Pending::Nothing,
        };
        let Some(keep::Values { arena, image, once }) = found.values else {
            return Ok(begin);
        };
        match Store::adopt(store_options(options), arena, &image.items, image.numbers) {
            Ok((store, adopted)) => {
                begin.store = store;
                begin.flush_in = image.flush_in;
                begin.taken = Some(Taken {
                    from: None,
                    store: adopted,
                    connections: 0,
                });
                begin.pending = Pending::Stored(once);
            }
            Err(error) => tracing::warn!(%error, "the values that were kept cannot be used"),
        }
        Ok(begin)
    }

    /// Begins with the state of another server.
    fn adopt(options: &Options, mut offered: take::Offered) -> io::Result<Begin> {
        let pending = offered.pending()?;
        let image = offered.image;
        let adopted = Store::adopt(
            store_options(options),
            offered.arena,
            &image.items,
            image.numbers,
        );
        let (store, adopted) = adopted.map_err(io::Error::other)?;
        let connections = offered.streams.into_iter();
        // A connection that cannot be served any more is dropped.
        let connections: Vec<_> = connections
            .filter_map(|(stream, client)| Connection::resume(stream, client).ok())
            .collect();
        let datagrams = match (options.udp, offered.datagrams) {
            (Some(_), Some(socket)) => Some(socket),
            (at, _) => at.map(datagrams).transpose()?,
        };
        Ok(Begin {
            store,
            control: Some(offered.control),
            listener: offered.listener,
            datagrams,
            flush_in: image.flush_in,
            taken: Some(Taken {
                from: Some(offered.from),
                store: adopted,
                connections: connections.len(),
            }),
            connections,
            pending: Pending::Former(pending),
        })
    }
}

/// Adds to an error the action that failed.
fn doing(what: String) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn datagrams(at: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(at).map_err(doing(format!("serving UDP at {at}")))
}

/// Listens for a successor, where no process listens any more.
fn control(at: &Path) -> io::Result<OwnedFd> {
    let listened = match socket::listen(at, 0o600) {
        // No process answered there: the socket is a leftover of a killed server. Anything else than a socket stays.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match is_socket(at) {
            Ok(true) => std::fs::remove_file(at).and_then(|()| socket::listen(at, 0o600)),
            Ok(false) => Err(io::Error::other("it is no socket: name another path")),
            Err(error) => Err(error),
        },
        other => other,
    };
    listened.map_err(successors(at))
}

/// Adds to an error that it concerns the socket for successors.
fn successors(at: &Path) -> impl FnOnce(io::Error) -> io::Error {
    doing(format!("taking over at {}", at.display()))
}

fn is_socket(at: &Path) -> io::Result<bool> {
    Ok(std::fs::symlink_metadata(at)?.file_type().is_socket())
}

/// Creates the server for readers by reference. A successor gets the name later, from the server before it.
fn share_server(options: &Options, later: bool) -> io::Result<Option<ShareServer>> {
    let Some(share) = &options.share else {
        return Ok(None);
    };
    let server = ShareServer::new(share, options.patience).and_then(|mut server| {
        if !later {
            server.listen()?;
        }
        Ok(server)
    });
    let server = server.map_err(io::Error::other);
    server
        .map(Some)
        .map_err(doing(format!("showing values at `{}`", share.name)))
}

impl Server {
    /// Starts to serve. With [`Options::take_over`], continues with the state of the server there, if there is one.
    ///
    /// # Errors
    /// If an address cannot be had, or the kernel refuses memory or descriptors. Also if the server there does not hand
    /// over its state: then it goes on serving.
    pub fn start(options: Options) -> io::Result<Server> {
        let offered = match &options.take_over {
            Some(at) => socket::check_path(at)
                .and_then(|()| take::ask(at))
                .map_err(successors(at))?,
            None => None,
        };
        let begin = match offered {
            Some(offered) => Begin::adopt(&options, offered)?,
            None => Begin::new(&options)?,
        };
        Server::serve(options, begin)
    }

    fn serve(options: Options, begin: Begin) -> io::Result<Server> {
        let listener = Arc::new(begin.listener);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let udp = begin.datagrams.as_ref();
        let udp = udp.map(UdpSocket::local_addr).transpose()?;
        let threads = options.threads.max(1);
        let path = options.take_over.clone();
        let flush_at = match begin.flush_in {
            0 => 0,
            left => i64::from(begin.store.now()).saturating_add_unsigned(left),
        };
        let shared = Arc::new(Shared {
            store: begin.store,
            counts: (0..threads).map(|_| Counts::default()).collect(),
            shown: share::Counts::default(),
            announced: Announced::new(options.memory),
            waiting: Waiting::new(options.memory),
            admission: Admission::default(),
            pacing: Pacing::take_off(&listener),
            options,
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            flush_at: AtomicI64::new(flush_at),
            started: Instant::now(),
            birth: SystemTime::now(),
        });
        let mut shares: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, connection) in begin.connections.into_iter().enumerate() {
            shares[number % threads].push(connection);
        }
        let mut datagrams = begin.datagrams.as_ref().map(UdpSocket::try_clone);
        let (mut doorbells, mut workers) = (Vec::new(), Vec::new());
        for (number, share) in shares.into_iter().enumerate() {
            let doorbell = eventfd::create()?;
            let mut worker = worker::Worker::new(
                Arc::clone(&shared),
                number,
                Arc::clone(&listener),
                datagrams.take().transpose()?,
                doorbell.try_clone()?,
            )?;
            worker.resume(share)?;
            workers.push(worker);
            doorbells.push(doorbell);
        }
        let rung: io::Result<_> = doorbells.iter().map(OwnedFd::try_clone).collect();
        shared.waiting.ring_at(rung?);
        let former = matches!(begin.pending, Pending::Former(_));
        let share_server = share_server(&shared.options, former)?;
        match begin.pending {
            Pending::Nothing => {}
            Pending::Former(pending) => {
                pending.ready()?;
                shared.store.begin()?;
            }
            Pending::Stored(once) => {
                once.use_up()?;
                shared.store.begin()?;
            }
        }
        let running = Running::new(shared, listener, begin.datagrams, doorbells)?;
        let running = Arc::new(running);
        running.serve(Crew {
            workers,
            share_server,
        })?;
        let mut server = Server {
            running: Arc::clone(&running),
            control: None,
            address,
            udp,
            taken: begin.taken,
        };
        if let (Some(listener), Some(path)) = (begin.control, path) {
            let doorbell = eventfd::create()?;
            let rung = doorbell.try_clone()?;
            let thread = std::thread::Builder::new().name("cache-control".to_owned());
            let wait = move || {
                let wait = || give::wait(&running, &listener, &rung);
                // The thread may end: then no successor takes over.
                running.watch_panics("cache-control", wait);
            };
            let thread = thread.spawn(wait)?;
            server.control = Some(Control {
                thread,
                doorbell,
                path,
            });
        }
        Ok(server)
    }

    /// Returns the state that it took over from the server before it, if there was one.
    #[must_use]
    #[doc(hidden)]
    pub fn taken(&self) -> Option<Taken> {
        self.taken
    }

    /// Calls a function when another server has taken over, or one of its threads has failed ([`Server::failure`]):
    /// then this one is to be stopped.
    #[doc(hidden)]
    pub fn when_gone(&self, tell: impl FnOnce() + Send + 'static) {
        self.running.when_gone(Box::new(tell));
    }

    /// Returns why it cannot go on, if it cannot: one of its threads panicked, or ended by itself. The requests of that
    /// thread's clients are lost, and its half-done work is not known. So nothing of it is to be kept.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.running.failure()
    }

    /// Returns the process of the server that has taken over, if one has.
    #[must_use]
    #[doc(hidden)]
    pub fn gone_to(&self) -> Option<u32> {
        self.running.gone_to()
    }

    /// Ends it, and makes the service manager keep the state that the next one needs. Returns how many values that are.
    /// Nothing if another server has taken over.
    ///
    /// # Errors
    /// If the kernel refuses memory, or the service manager is not there. Then nothing is kept.
    #[doc(hidden)]
    pub fn keep(mut self, to: &Notifier) -> io::Result<usize> {
        self.end();
        if self.running.gone_to().is_some() {
            return Ok(0);
        }
        let Running {
            shared,
            listener,
            datagrams,
            ..
        } = &*self.running;
        keep::keep(shared, listener, datagrams.as_ref(), to)
    }

    /// Makes the service manager drop the state of an earlier server: this one has it, or it cannot be used.
    #[doc(hidden)]
    pub fn forget_kept(to: &Notifier) {
        keep::forget(to);
    }

    /// Returns the address where it serves TCP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address where it serves UDP.
    #[must_use]
    pub fn udp(&self) -> Option<SocketAddr> {
        self.udp
    }

    /// Returns the counts of its work so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.running.shared.stats()
    }

    /// Returns its store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.running.shared.store
    }

    /// Ends it: connections are closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.running.end();
        if let Some(control) = self.control.take() {
            let _ = eventfd::signal(&control.doorbell);
            let _ = control.thread.join();
            if self.running.gone_to().is_none() {
                let _ = std::fs::remove_file(control.path);
            }
        }
        self.running.pause();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpStream;
    use std::sync::mpsc::channel;

    /// A worker that has no place for its counts panics at its first look at them.
    #[test]
    fn a_worker_that_panics_is_told_of_and_its_clients_do_not_wait() {
        let _dog = tranship_testkit::Watchdog::new();
        let options = Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: 1,
            ..Options::default()
        };
        let server = Server::start(options).expect("a server");
        assert_eq!(server.failure(), None);
        let (tell, told) = channel();
        server.when_gone(move || tell.send(()).expect("heard"));
        let running = &server.running;
        // The listener has a client of its own.
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let at = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(at).expect("connect");
        let (stream, _) = listener.accept().expect("accept");
        listener.set_nonblocking(true).expect("nonblocking");
        let mut worker = worker::Worker::new(
            Arc::clone(&running.shared),
            99,
            Arc::new(listener),
            None,
            eventfd::create().expect("a doorbell"),
        )
        .expect("a worker");
        let connection = Connection::new(stream).expect("a connection");
        worker.resume(vec![connection]).expect("one");
        let crew = Crew {
            workers: vec![worker],
            share_server: None,
        };
        running.serve(crew).expect("a thread");
        told.recv().expect("told");
        let why = server.failure().expect("a reason");
        assert!(why.contains("`cache-99` panicked: index out of"), "{why}");
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
        // A caller that asks later is told at once.
        let (tell, told) = channel();
        server.when_gone(move || tell.send(()).expect("heard"));
        told.recv().expect("told");
        server.stop();
    }
}
