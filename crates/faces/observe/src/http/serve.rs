//! Connections: a thread each, few of them, none for long.

use super::answer::{Answer, Content};
use super::listen::Door;
use super::request::{self, HEAD_BYTES, Wrong};
use crate::look::{Looks, Source};
use limits::{CONNECTIONS, HEARD, TAKEN};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limits of a client.
pub mod limits {
    use std::time::Duration;
    /// Connections at a time. When there are as many, the client that has been there longest without a request makes
    /// room. If all are being served, a new client is not heard.
    pub const CONNECTIONS: usize = 32;
    /// Longest time from a connection's begin to the whole head of its request.
    pub const HEARD: Duration = Duration::from_secs(5);
    /// Longest time for taking the answer.
    pub const TAKEN: Duration = Duration::from_secs(10);
}

/// Pause when the process has no descriptors or threads left.
const SHORT: Duration = Duration::from_millis(50);

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

macro_rules! either {
    ($self:expr, $s:ident => $what:expr) => {
        match $self {
            Stream::Unix($s) => $what,
            Stream::Tcp($s) => $what,
        }
    };
}

impl Stream {
    fn accept(door: &Door) -> io::Result<Stream> {
        match door {
            Door::Unix(unix) => unix.accept().map(|(s, _)| Stream::Unix(s)),
            Door::Tcp(tcp) => tcp.accept().map(|(s, _)| Stream::Tcp(s)),
        }
    }

    fn another(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
        })
    }

    fn shutdown(&self, how: Shutdown) {
        // Fails if the other side has ended the connection.
        let _ = either!(self, s => s.shutdown(how));
    }

    /// Sets the time that is left until then, for the next call.
    fn until(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        either!(self, s => { s.set_read_timeout(Some(left))?; s.set_write_timeout(Some(left)) })
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, s => s.read(into))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        either!(self, s => s.write(bytes))
    }
}

/// Progress of a client.
enum Guest {
    /// The client has not asked for anything; its other handle.
    Silent(Stream),
    /// The answer is being made, or sent.
    Served,
    /// The client was sent away, and goes as soon as its thread finds that out.
    Goes,
}

/// Clients that are there, by the order in which they came.
#[derive(Default)]
struct Guests {
    next: u64,
    all: BTreeMap<u64, Guest>,
}

impl Guests {
    /// Sends away the client that has been there longest without a word.
    fn make_room(&mut self) {
        let mut guests = self.all.values_mut();
        if let Some(oldest) = guests.find(|g| matches!(g, Guest::Silent(_)))
            && let Guest::Silent(stream) = std::mem::replace(oldest, Guest::Goes)
        {
            stream.shutdown(Shutdown::Both);
        }
    }

    fn stay(&self) -> usize {
        self.all
            .values()
            .filter(|g| !matches!(g, Guest::Goes))
            .count()
    }
}

struct Shared {
    content: Content,
    guests: Mutex<Guests>,
    /// Rung when a client has left.
    left: Condvar,
}

impl Shared {
    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves doors until the process ends.
pub struct Server {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl Server {
    /// Creates a server. Figures come from `source`; `hosts` are names by which it is reached, besides addresses and
    /// `localhost`.
    #[must_use]
    pub fn new(source: Box<dyn Source>, hosts: Vec<String>) -> Server {
        let content = Content {
            looks: Looks::new(source),
            tally: Mutex::default(),
            hosts,
        };
        let shared = Shared {
            content,
            guests: Mutex::default(),
            left: Condvar::new(),
        };
        Server {
            shared: Arc::new(shared),
        }
    }

    /// Serves a door in a thread of its own. `page`: with the page, not figures only.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn serve(&self, door: Door, page: bool) -> io::Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("door".to_owned());
        thread.spawn(move || {
            loop {
                match Stream::accept(&door) {
                    Ok(stream) => take(&shared, stream, page),
                    Err(error) => {
                        tracing::debug!(%error, "connection not taken");
                        std::thread::sleep(SHORT);
                    }
                }
            }
        })?;
        Ok(())
    }
}

fn take(shared: &Arc<Shared>, stream: Stream, page: bool) {
    let mut guests = shared.guests();
    if guests.stay() >= CONNECTIONS {
        guests.make_room();
    }
    if guests.stay() >= CONNECTIONS {
        return;
    }
    // Clients that were sent away are still threads.
    let many = |g: &mut Guests| g.all.len() >= 2 * CONNECTIONS;
    let waited = shared.left.wait_timeout_while(guests, HEARD, many);
    let (mut guests, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    if waited.timed_out() {
        return;
    }
    let Ok(other) = stream.another() else {
        return;
    };
    let id = guests.next;
    guests.next += 1;
    guests.all.insert(id, Guest::Silent(other));
    drop(guests);
    let at = shared.clone();
    let thread = std::thread::Builder::new()
        .name("guest".to_owned())
        .stack_size(1 << 20);
    let spawned = thread.spawn(move || {
        let _leaves = Leaves(&at, id);
        if let Err(error) = guest(&at, id, stream, page) {
            tracing::debug!(%error, "a client of the page");
        }
    });
    if spawned.is_err() {
        shared.guests().all.remove(&id);
        std::thread::sleep(SHORT);
    }
}

/// Guard that frees the place in any case.
struct Leaves<'a>(&'a Shared, u64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.guests().all.remove(&self.1);
        self.0.left.notify_one();
    }
}

fn guest(shared: &Shared, id: u64, mut stream: Stream, page: bool) -> io::Result<()> {
    let local = matches!(stream, Stream::Unix(_));
    let asked = hear(&mut stream)?;
    // From here on it is not sent away: its answer is being made.
    if let Some(at) = shared.guests().all.get_mut(&id) {
        *at = Guest::Served;
    }
    let answer = match asked {
        Ok(asked) => shared.content.answer(&asked, page, local),
        Err(wrong) => Answer::wrong(wrong),
    };
    let bytes = answer.bytes();
    // The answer is not kept beside its copy for as long as a slow client takes.
    drop(answer);
    let deadline = Instant::now() + TAKEN;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        stream.until(deadline)?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    stream.shutdown(Shutdown::Write);
    // Bytes that it still sends are thrown away, a little of them. If they were unread, the end would go out as a
    // reset, and take the answer with it.
    let mut rest = [0; 1024];
    for _ in 0..HEAD_BYTES / rest.len() {
        stream.until(deadline)?;
        if stream.read(&mut rest)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads the whole head of a request, or returns the error in it.
fn hear(stream: &mut Stream) -> io::Result<Result<request::Asked, Wrong>> {
    let deadline = Instant::now() + HEARD;
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let late: Wrong = (408, "a request takes at most 5 s");
        if stream.until(deadline).is_err() {
            return Ok(Err(late));
        }
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Err(late)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        match request::parse(&bytes) {
            Ok(Some(asked)) => return Ok(Ok(asked)),
            Ok(None) => {}
            Err(wrong) => return Ok(Err(wrong)),
        }
    }
}
