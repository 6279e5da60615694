//! Connections: bytes in, replies out. It parses nothing.
//!
//! ```text
//!  client ── bytes ──► Front ── one buffer for each read ──► http ──► ...
//!  client ◄─ writev ── Front ◄── replies, by reference, from the component that made each ──
//! ```

mod conn;
mod table;

use crate::lane::{Got, Unsent};
use crate::reply::{Heads, reason};
use crate::stage::{Outs, To, nothing};
use crate::word::Word;
use conn::Flushed;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use std::fmt::Write;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use table::Table;
use tranship::{Body, BufferMut, Pool};

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most connections. One more is answered with 503.
    pub connections: usize,
    /// Most messages under way that are not answered. One more is answered with 503.
    pub requests: usize,
    /// Most bytes of replies that clients have not taken.
    pub unsent: usize,
    /// Time for an answer, then the client gets 504.
    pub answer: Duration,
    /// Time for the rest of a request, then the client gets 408.
    pub request: Duration,
    /// Time for the next request, then the connection ends.
    pub idle: Duration,
    /// Time for the client to take more of a reply, then the connection is cut.
    pub taken: Duration,
    /// Time for an answer after a component has died, then the client gets 502.
    pub died: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections: 4096,
            requests: 512,
            unsent: 64 << 20,
            answer: Duration::from_secs(10),
            request: Duration::from_secs(20),
            idle: Duration::from_secs(60),
            taken: Duration::from_secs(30),
            died: Duration::from_secs(1),
        }
    }
}

/// What the front passes bytes to: channels, or the other stages of the same process.
pub trait Behind {
    /// Passes bytes of a connection to `http`, or without bytes that it is gone.
    ///
    /// # Errors
    /// Why they were not passed.
    fn pass(&mut self, word: Word, body: Body) -> Result<(), Unsent>;
    /// Takes a reply, without waiting.
    fn take(&mut self) -> Got;
    /// Gets ready to sleep on [`fd`](Behind::fd). `false`: there is something to take.
    fn arm(&mut self) -> bool;
    /// Takes note that the descriptor can be read.
    fn woken(&mut self);
    /// Returns the descriptor that tells of replies.
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>>;
    /// Shows the access log what was answered.
    fn log(&mut self, line: Line);
    /// Sends what was logged.
    fn flush_log(&mut self);
}

/// A line of the access log, without what the client asked for.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Connection, request and status.
    pub word: Word,
    /// Bytes of the reply.
    pub bytes: u64,
    /// Time from the last bytes of the request to the reply.
    pub took: Duration,
}

const LISTENER: u64 = u64::MAX;
const BEHIND: u64 = u64::MAX - 1;
/// Time between two looks at all connections.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of a first read, and of reads while a connection has more.
const READ: usize = 4096;
const READ_MORE: usize = 64 << 10;
/// Messages of a connection that may be unanswered before no more is read from it.
const AHEAD: u32 = 8;
/// Time for a client to read the last reply of a connection that is ended early.
const LINGER: Duration = Duration::from_secs(2);

/// The component.
#[derive(Debug)]
pub struct Front<B> {
    behind: B,
    pool: Pool,
    listeners: Vec<OwnedFd>,
    epoll: OwnedFd,
    table: Table,
    options: Options,
    heads: Heads,
    spare: Option<BufferMut>,
    now: Instant,
    looked: Instant,
    /// Messages that are not answered, of all connections.
    flying: usize,
    /// Connections with something to send.
    dirty: Vec<u16>,
    /// Connections that were not read to the end, for want of room.
    waiting: Vec<u16>,
}

impl<B: Behind> Front<B> {
    /// Makes the component. `listeners` are sockets that listen.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(
        behind: B,
        pool: Pool,
        listeners: Vec<OwnedFd>,
        options: Options,
    ) -> io::Result<Front<B>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, listener) in listeners.iter().enumerate() {
            rustix::io::ioctl_fionbio(listener, true)?;
            epoll::add(
                &epoll,
                listener,
                EventData::new_u64(LISTENER - 2 - at as u64),
                EventFlags::IN,
            )?;
        }
        if let Some(fd) = behind.fd() {
            epoll::add(&epoll, fd, EventData::new_u64(BEHIND), EventFlags::IN)?;
        }
        let now = Instant::now();
        Ok(Front {
            behind,
            pool,
            listeners,
            epoll,
            table: Table::new(options.connections),
            options,
            heads: Heads::default(),
            spare: None,
            now,
            looked: now,
            flying: 0,
            dirty: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Serves connections, until the process is stopped.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            if self.table.is_empty() {
                self.behind.flush_log();
            }
            let limit = if !self.behind.arm() {
                Some(Duration::ZERO)
            } else {
                Some(TICK)
            };
            let limit = limit.map(|limit| rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: limit.subsec_nanos().into(),
            });
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                limit.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.now = Instant::now();
            for event in &events {
                match event.data.u64() {
                    BEHIND => self.behind.woken(),
                    data if data > u64::from(u32::MAX) => {
                        let at = usize::try_from(LISTENER - 2 - data).unwrap_or(0);
                        self.accept(at);
                    }
                    data => self.event(data, event.flags),
                }
            }
            self.take_replies();
            self.flush();
            if self.now.duration_since(self.looked) >= TICK {
                self.looked = self.now;
                self.behind.woken();
                self.behind.flush_log();
                self.look_at_all();
                self.flush();
            }
        }
    }

    fn accept(&mut self, at: usize) {
        // The others get a turn, too.
        for _ in 0..64 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.listeners[at], flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // Without descriptors the rest waits in the kernel's queue.
                Err(_) => return,
            };
            // Replies go out whole. A Unix socket has no such option.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
            let Some((slot, conn)) = self.table.put(socket, self.now) else {
                continue;
            };
            let data = EventData::new_u64(u64::from(slot) | u64::from(conn.generation) << 16);
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            if epoll::add(&self.epoll, &conn.socket, data, flags).is_err() {
                self.table.remove(slot);
                continue;
            }
            if self.table.len() > self.options.connections {
                self.fail(slot, 503);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation)] // 16 bits each
    fn event(&mut self, data: u64, flags: EventFlags) {
        let (slot, generation) = (data as u16, (data >> 16) as u16);
        let Some(conn) = self.table.get(slot).filter(|conn| conn.born == generation) else {
            return;
        };
        if flags.contains(EventFlags::ERR) {
            return self.close(slot);
        }
        if flags.contains(EventFlags::OUT) && !conn.out.is_empty() {
            self.dirty.push(slot);
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP) {
            self.read(slot);
        }
    }

    /// Reads what a client has sent, and passes it on.
    fn read(&mut self, slot: u16) {
        let mut most = READ;
        loop {
            let Some(conn) = self.table.get(slot) else {
                return;
            };
            if conn.last {
                return self.discard(slot);
            }
            if conn.unanswered >= AHEAD {
                conn.unread = true;
                return;
            }
            if self.flying >= self.options.requests && conn.unanswered == 0 && !conn.partial {
                return self.fail(slot, 503);
            }
            let mut buffer = match self.spare.take().filter(|spare| spare.len() >= most) {
                Some(spare) => spare,
                None => match self.pool.try_alloc(most) {
                    Ok(buffer) => buffer,
                    // Memory comes back with the replies.
                    Err(_) => {
                        conn.unread = true;
                        self.waiting.push(slot);
                        return;
                    }
                },
            };
            let got = rustix::net::recv(&conn.socket, &mut buffer[..], RecvFlags::DONTWAIT);
            let got = match got {
                Ok((0, _)) => {
                    self.spare = Some(buffer);
                    conn.unread = false;
                    conn.ended = true;
                    if conn.unanswered == 0 && conn.out.is_empty() {
                        self.close(slot);
                    }
                    return;
                }
                Ok((got, _)) => got,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.spare = Some(buffer);
                    conn.unread = false;
                    return;
                }
                Err(_) => {
                    self.spare = Some(buffer);
                    return self.close(slot);
                }
            };
            let all = got < buffer.len();
            buffer.truncate(got);
            conn.unanswered += 1;
            conn.since = self.now;
            conn.partial = false;
            conn.unread = !all;
            self.flying += 1;
            let word = Word::new(slot, conn.generation, 0);
            match self.behind.pass(word, Body::Buffer(buffer.freeze())) {
                Ok(()) => {}
                Err(Unsent::Gone) => return self.fail(slot, 502),
                Err(Unsent::Full) => return self.fail(slot, 503),
            }
            if all {
                return;
            }
            most = READ_MORE;
        }
    }

    /// Reads on, and forgets it: the connection is being ended.
    fn discard(&mut self, slot: u16) {
        let mut bytes = [0; 4096];
        while let Some(conn) = self.table.get(slot) {
            match rustix::net::recv(&conn.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((1.., _)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok((0, _)) if !conn.out.is_empty() => return,
                _ => return self.close(slot),
            }
        }
    }

    fn take_replies(&mut self) {
        loop {
            match self.behind.take() {
                Got::Message(word, body) => self.deliver(word, body),
                Got::Nothing => break,
                Got::Gone => {
                    let until = self.now + self.options.died;
                    for conn in self.table.all() {
                        if conn.unanswered > 0 && conn.doomed.is_none() {
                            conn.doomed = Some(until);
                        }
                    }
                }
            }
        }
    }

    /// Takes a reply, or a note about a connection.
    fn deliver(&mut self, word: Word, body: Body) {
        let slot = word.slot();
        let Some(conn) = self
            .table
            .get(slot)
            .filter(|conn| conn.generation == word.generation())
        else {
            // The client is gone, or was told that there is no answer.
            return;
        };
        if word.status() == 0 && body_is_empty(&body) {
            self.flying -= conn.answered(word, self.now);
            return self.go_on(slot);
        }
        conn.early.push((word, body));
        // Replies go out in the order of the requests.
        while let Some(at) = conn
            .early
            .iter()
            .position(|(word, _)| word.request() == conn.next)
        {
            let (word, body) = conn.early.remove(at);
            let before = conn.out_bytes;
            if body_is_empty(&body) {
                let page = page(&mut self.heads, word);
                conn.push_own(page);
            } else {
                conn.push(body);
            }
            conn.mid = word.has(Word::MORE) && word.status() != 100;
            if word.has(Word::MORE) {
                continue;
            }
            conn.next = conn.next.wrapping_add(1);
            let line = Line {
                word,
                bytes: (conn.out_bytes - before) as u64,
                took: self.now.duration_since(conn.since),
            };
            self.behind.log(line);
            self.flying -= conn.answered(word, self.now);
            if word.has(Word::CLOSE) {
                conn.last = true;
                conn.lingers = word.status() >= 400;
                break;
            }
        }
        self.dirty.push(slot);
        self.go_on(slot);
    }

    /// Reads on where reading had stopped for too many requests.
    fn go_on(&mut self, slot: u16) {
        if let Some(conn) = self.table.get(slot)
            && conn.unread
            && !conn.last
            && conn.unanswered < AHEAD
        {
            self.read(slot);
        }
    }

    /// Sends what connections have.
    fn flush(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            let Some(conn) = self.table.get(slot) else {
                continue;
            };
            match conn.flush(self.now) {
                Flushed::Some => {}
                Flushed::All if conn.last && !conn.lingers => self.close(slot),
                Flushed::All if conn.last => {
                    let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Write);
                    conn.since = self.now;
                    self.discard(slot);
                }
                Flushed::All if conn.ended && conn.unanswered == 0 => self.close(slot),
                Flushed::All => {}
                Flushed::Broken => self.close(slot),
            }
        }
        if !self.waiting.is_empty() {
            for slot in std::mem::take(&mut self.waiting) {
                self.go_on(slot);
            }
        }
    }

    /// Looks for connections whose time is over.
    fn look_at_all(&mut self) {
        let mut unsent = 0;
        let mut most = (0, 0);
        let over: Vec<(u16, u16)> = self
            .table
            .slots()
            .filter_map(|(slot, conn)| {
                unsent += conn.out_bytes;
                most = most.max((conn.out_bytes, slot));
                let idle = self.now.duration_since(conn.since);
                let o = &self.options;
                let status = if conn.last && conn.out.is_empty() {
                    (idle >= LINGER).then_some(0)
                } else if !conn.out.is_empty() && self.now.duration_since(conn.took) >= o.taken {
                    Some(0)
                } else if conn.unanswered > 0 {
                    match conn.doomed {
                        Some(until) if self.now >= until => Some(502),
                        _ => (idle >= o.answer).then_some(504),
                    }
                } else if conn.partial {
                    (idle >= o.request).then_some(408)
                } else {
                    (conn.out.is_empty() && idle >= o.idle).then_some(0)
                };
                Some((slot, status?))
            })
            .collect();
        for (slot, status) in over {
            match status {
                0 => self.close(slot),
                status => self.fail(slot, status),
            }
        }
        // Memory that slow clients keep from all others.
        if unsent > self.options.unsent {
            self.close(most.1);
        }
    }

    /// Answers with a status, and ends the connection. Replies that are under way no longer count.
    fn fail(&mut self, slot: u16, status: u16) {
        let Some(conn) = self.table.get(slot) else {
            return;
        };
        if conn.mid || conn.last {
            return self.close(slot);
        }
        let word = Word::new(slot, conn.generation, conn.next)
            .with(Word::CLOSE)
            .with_status(status);
        let page = page(&mut self.heads, word);
        let line = Line {
            word,
            bytes: page.len() as u64,
            took: self.now.duration_since(conn.since),
        };
        conn.push_own(page);
        self.flying -= conn.unanswered as usize;
        conn.unanswered = 0;
        conn.early.clear();
        conn.last = true;
        conn.lingers = true;
        let gone = word.without(Word::CLOSE).with_status(0);
        self.table.renew(slot);
        self.behind.log(line);
        // Whatever it still has of the connection is of no use.
        let _ = self.behind.pass(gone, nothing());
        self.dirty.push(slot);
    }

    fn close(&mut self, slot: u16) {
        if let Some(conn) = self.table.remove(slot) {
            self.flying -= conn.unanswered as usize;
            if conn.partial || conn.unanswered > 0 {
                let word = Word::new(slot, conn.generation, 0);
                let _ = self.behind.pass(word, nothing());
            }
        }
    }
}

fn body_is_empty(body: &Body) -> bool {
    matches!(body, Body::Inline(bytes) if bytes.is_empty())
}

/// Makes the page of a status.
fn page(heads: &mut Heads, word: Word) -> Vec<u8> {
    let status = word.status();
    if status == 100 {
        return b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<!doctype html><title>{status} {0}</title><h1>{status} {0}</h1>",
        reason(status)
    );
    let headers = match status {
        503 => "content-type: text/html\r\nretry-after: 1\r\n",
        _ => "content-type: text/html\r\n",
    };
    let mut page = heads
        .head(word, status, Some(text.len() as u64), headers)
        .to_vec();
    if !word.has(Word::HEAD) {
        page.extend(text.as_bytes());
    }
    page
}

/// The stages behind a front in a process of its own: channels.
#[derive(Debug)]
pub struct Channels {
    ends: crate::component::Ends,
    logged: Vec<u8>,
    /// The channel that is looked at next.
    turn: usize,
    woken: bool,
}

impl Channels {
    /// Makes it of the component's ends.
    #[must_use]
    pub fn new(ends: crate::component::Ends) -> Channels {
        Channels {
            ends,
            logged: Vec::new(),
            turn: 0,
            woken: true,
        }
    }
}

/// Bytes of a line for the log.
pub(crate) const LINE: usize = 20;
/// Lines that are sent together.
const LINES: usize = 128;

impl Behind for Channels {
    fn pass(&mut self, word: Word, body: Body) -> Result<(), Unsent> {
        let http = self.ends.outs.iter_mut().find(|out| out.to == To::Http);
        http.ok_or(Unsent::Gone)?.send(&self.ends.pool, word, body)
    }

    fn take(&mut self) -> Got {
        for _ in 0..self.ends.ins.len() {
            let end = &mut self.ends.ins[self.turn];
            if self.woken || end.is_ready() {
                match end.take() {
                    Got::Nothing => {}
                    got => return got,
                }
            }
            self.turn = (self.turn + 1) % self.ends.ins.len();
        }
        self.woken = false;
        Got::Nothing
    }

    fn arm(&mut self) -> bool {
        self.ends.ins.iter_mut().all(crate::lane::In::arm)
    }

    fn woken(&mut self) {
        // A peer may have ended, or come.
        self.woken = true;
        let _ = self.ends.domain.turn();
        self.ends.ins.iter_mut().for_each(crate::lane::In::look);
    }

    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.ends.domain.as_fd())
    }

    fn log(&mut self, line: Line) {
        if !self.ends.outs.iter().any(|out| out.to == To::Log) {
            return;
        }
        let micros = u32::try_from(line.took.as_micros()).unwrap_or(u32::MAX);
        self.logged.extend(line.word.0.to_le_bytes());
        self.logged.extend(line.bytes.to_le_bytes());
        self.logged.extend(micros.to_le_bytes());
        if self.logged.len() >= LINES * LINE {
            self.flush_log();
        }
    }

    fn flush_log(&mut self) {
        if self.logged.is_empty() {
            return;
        }
        if let Ok(mut lines) = self.ends.pool.try_alloc(self.logged.len()) {
            lines.copy_from_slice(&self.logged);
            let mut outs = Outs::default();
            outs.send(To::Log, Word(0), Body::Buffer(lines.freeze()));
            self.ends.flush(&mut outs);
        }
        self.logged.clear();
    }
}
