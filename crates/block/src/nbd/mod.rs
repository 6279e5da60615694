//! Serves a store to programs that speak the NBD protocol: fixed newstyle, over Unix and TCP sockets, without TLS.
//!
//! Reads, writes, flush, FUA, trim, zeroes, block status, structured replies, extended headers, block sizes, any number of
//! connections. A client that breaks the protocol loses its connection and nothing else.

mod budget;
mod handshake;
mod incoming;
mod replies;
mod stream;
mod transmit;
mod whole;
mod wire;

pub use stream::Address;

use crate::Store;
use budget::Budget;
use replies::Replies;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use stream::{Listener, Stream};

/// Most connections at a time. A further client is sent away, unless a connection has not finished its handshake.
const MAX_CLIENTS: usize = 256;
/// The longest single wait.
const ROUND: Duration = Duration::from_millis(100);

/// An export at an address. Dropping it ends it, and its clients' connections.
///
/// ```
/// # mod tranship { pub use tranship_block as block; }
/// use std::io::Read;
/// use std::os::unix::net::UnixStream;
/// use tranship::block::nbd::{Address, Export};
/// use tranship::block::{Disk, DiskOptions};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("disk");
/// # let socket = directory.path().join("socket");
/// # let new = DiskOptions { size: Some(1 << 20), ..DiskOptions::default() };
/// let disk = Disk::open(&path, &new)?;
/// let _export = Export::start(&Address::Unix(socket.clone()), "disk", disk)?;
///
/// // `nbd-client`, `qemu-img` or any other client connects there, and is greeted.
/// let mut greeting = [0; 8];
/// UnixStream::connect(&socket)?.read_exact(&mut greeting)?;
/// assert_eq!(&greeting, b"NBDMAGIC");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Export {
    shared: Arc<ExportState>,
    address: Address,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct ExportState {
    store: Arc<dyn Store>,
    name: String,
    stop: AtomicBool,
    budget: Arc<Budget>,
    /// Clients by their number: the oldest first.
    clients: Mutex<BTreeMap<u64, Guest>>,
}

/// A client.
#[derive(Debug)]
struct Guest {
    /// Replies, by which the connection is ended.
    replies: Arc<Replies>,
    /// The client's handshake is over.
    greeted: bool,
}

impl Export {
    /// Begins to serve the store under a name; the empty name is always an export's, too. The store is asked for its
    /// properties only when the first client comes.
    ///
    /// # Errors
    /// The kernel's error: the address is taken or not allowed, or there can be no more threads.
    pub fn start(at: &Address, name: &str, store: Arc<dyn Store>) -> io::Result<Export> {
        let listener = Listener::new(at)?;
        let address = listener.address(at);
        let shared = Arc::new(ExportState {
            store,
            name: name.to_owned(),
            stop: AtomicBool::new(false),
            budget: Arc::default(),
            clients: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("nbd-door".into());
        let thread = thread.spawn(move || admit(&own, &listener))?;
        Ok(Export {
            shared,
            address,
            thread: Some(thread),
        })
    }

    /// Returns the address where it is, with the port's number.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Ordering: release, partner: the threads' acquire loads.
        self.shared.stop.store(true, Ordering::Release);
        let clients = self.shared.lock();
        clients.values().for_each(|client| client.replies.cut());
        drop(clients);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl ExportState {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Guest>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets clients in until the end.
fn admit(shared: &Arc<ExportState>, listener: &Listener) {
    let limit = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(ROUND.subsec_nanos()),
    };
    let mut number = 0;
    // Ordering: acquire, partner: the export's end.
    while !shared.stop.load(Ordering::Acquire) {
        let mut wait = [rustix::event::PollFd::new(
            listener,
            rustix::event::PollFlags::IN,
        )];
        // Whatever the call returns, the next check decides.
        let _ = rustix::event::poll(&mut wait, Some(&limit));
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => {
                tracing::warn!("a client cannot be let in: {error}");
                std::thread::sleep(ROUND);
                continue;
            }
        };
        number += 1;
        let who = stream.peer();
        if let Err(error) = begin(shared, number, stream) {
            tracing::warn!("NBD: {who} is refused: {error}");
        }
    }
}

fn begin(shared: &Arc<ExportState>, number: u64, stream: Stream) -> io::Result<()> {
    let replies = Arc::new(Replies::new(stream.try_clone()?, &shared.budget));
    let mut clients = shared.lock();
    if clients.len() >= MAX_CLIENTS {
        // A client that connects and says nothing keeps no other client out.
        let silent = clients.iter().find(|(_, guest)| !guest.greeted);
        let silent = silent.map(|(number, _)| *number);
        match silent.and_then(|number| clients.remove(&number)) {
            Some(guest) => guest.replies.cut(),
            None => return Err(io::Error::other(format!("{MAX_CLIENTS} are here already"))),
        }
    }
    let guest = Guest {
        replies: Arc::clone(&replies),
        greeted: false,
    };
    clients.insert(number, guest);
    drop(clients);
    let own = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("nbd-client".into());
    let thread = thread.spawn(move || {
        let who = stream.peer();
        let ended = serve(&own, number, &who, stream, &replies);
        let greeted = own.lock().get(&number).is_some_and(|guest| guest.greeted);
        match ended {
            Ok(()) => tracing::info!("NBD: {who} is gone"),
            Err(error) if greeted => tracing::info!("NBD: {who} is gone: {error}"),
            Err(error) => tracing::info!("NBD: {who} is refused in its handshake: {error}"),
        }
        replies.drain(0);
        replies.finish();
        replies.cut();
        own.lock().remove(&number);
    });
    if let Err(error) = thread {
        shared.lock().remove(&number);
        return Err(error);
    }
    Ok(())
}

fn serve(
    shared: &ExportState,
    number: u64,
    who: &str,
    mut stream: Stream,
    replies: &Arc<Replies>,
) -> io::Result<()> {
    let info = shared.store.info().map_err(io::Error::other)?;
    let Some(agreed) = handshake::shake(&mut stream, &shared.name, &info)? else {
        return Ok(());
    };
    if let Some(guest) = shared.lock().get_mut(&number) {
        guest.greeted = true;
        tracing::info!("NBD: {who} is let in");
    }
    let writer = Arc::clone(replies);
    let thread = std::thread::Builder::new().name("nbd-replies".into());
    thread.spawn(move || writer.write())?;
    let client = transmit::Client {
        store: Arc::clone(&shared.store),
        info,
        agreed,
        replies: Arc::clone(replies),
    };
    let served = client.serve(stream);
    shared.store.kick();
    served
}
