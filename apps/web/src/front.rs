//! Connections: bytes in, replies out. It parses nothing.
//!
//! ```text
//!  client ── bytes ──► Front ── one buffer for each read ──► http ──► ...
//!  client ◄─ writev ── Front ◄── replies, by reference, from the component that made each ──
//!  tcpip ◄─ buffers ─► Front: the same, of connections that another component has
//! ```

mod channels;
mod client;
mod conn;
mod roll;
mod streams;
mod table;

pub use channels::Channels;
pub(crate) use channels::LINE;
pub use streams::Streams;

use crate::component::{REST, timespec};
use crate::lane::Got;
use crate::reply::{Heads, reason};
use crate::stage::nothing;
use crate::word::Word;
use client::{Client, Read};
use conn::Flushed;
use roll::Rolls;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use streams::News;
use table::Table;
use tranship::{Body, BufferMut, Pool};
use tranship_netpath::tcp::{Kind, Note};

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
        }
    }
}

/// What the front passes bytes to: channels, or the other stages of the same process.
pub trait Behind {
    /// Passes bytes of a connection to `http`, or without bytes that it is gone.
    fn pass(&mut self, word: Word, body: Body);
    /// Sends what was passed, together. Returns the words of what was not sent.
    fn send(&mut self) -> Vec<Word>;
    /// Takes a reply, without waiting.
    fn take(&mut self) -> Got;
    /// Gets ready to sleep on [`fd`](Behind::fd). `false`: there is something to take.
    fn arm(&mut self) -> bool;
    /// Takes note that the descriptor can be read.
    fn woken(&mut self);
    /// Looks for components that have ended or come. Says whether all are there.
    fn look(&mut self) -> bool;
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
    streams: Option<Streams>,
    epoll: OwnedFd,
    table: Table,
    options: Options,
    heads: Heads,
    spare: Option<BufferMut>,
    now: Instant,
    /// When to look at all connections; `None`: there is none.
    look: Option<Instant>,
    /// The last event.
    worked: Instant,
    rolls: Rolls,
    /// Messages that are not answered, of all connections.
    flying: usize,
    /// Connections with something to send.
    dirty: Vec<u16>,
    /// Connections that were not read to the end, for want of room.
    waiting: Vec<u16>,
}

impl<B: Behind> Front<B> {
    /// Makes the component. `listeners` are sockets that listen; `streams`: connections of `tcpip`.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn new(
        behind: B,
        pool: Pool,
        listeners: Vec<OwnedFd>,
        streams: Option<Streams>,
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
            streams,
            epoll,
            table: Table::new(options.connections),
            options,
            heads: Heads::default(),
            spare: None,
            now,
            look: Some(now),
            worked: now,
            rolls: Rolls::default(),
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
            let are_armed = self.streams.as_mut().is_none_or(Streams::arm);
            let limit = match self.behind.arm() && are_armed {
                true => self
                    .look
                    .map(|look| look.saturating_duration_since(Instant::now())),
                false => Some(Duration::ZERO),
            };
            let limit = limit.map(timespec);
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
                    BEHIND => {
                        self.behind.woken();
                        self.streams.iter_mut().for_each(Streams::woken);
                    }
                    data if data > u64::from(u32::MAX) => {
                        let at = usize::try_from(LISTENER - 2 - data).unwrap_or(0);
                        self.accept(at);
                    }
                    data => self.event(data, event.flags),
                }
            }
            if !events.is_empty() {
                self.worked = self.now;
                self.look_soon();
            }
            self.take_streams();
            self.send();
            self.take_replies();
            self.flush();
            if self.look.is_some_and(|look| self.now >= look) {
                self.behind.flush_log();
                self.look_at_all();
                let are_there = self.streams.as_mut().is_none_or(Streams::look);
                if !self.behind.look() || !are_there {
                    self.look_soon();
                }
                self.flush();
            }
            self.send();
            self.flush();
            if !self.streams.as_mut().is_none_or(Streams::send) {
                self.look_soon();
            }
        }
    }

    /// Looks at all connections within a tick: something has changed, or may change.
    fn look_soon(&mut self) {
        let soon = self.now + TICK;
        self.look = Some(self.look.map_or(soon, |look| look.min(soon)));
    }

    /// Sends what was passed.
    fn send(&mut self) {
        for word in self.behind.send() {
            let is_there = |conn: &mut conn::Conn| conn.generation == word.generation();
            if self.table.get(word.slot()).is_some_and(is_there) {
                self.fail(word.slot(), 503);
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
            let Some((slot, conn)) = self.table.put(Client::Socket(socket), self.now) else {
                continue;
            };
            let data = EventData::new_u64(u64::from(slot) | u64::from(conn.generation) << 16);
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let Client::Socket(socket) = &conn.client else {
                continue;
            };
            if epoll::add(&self.epoll, socket, data, flags).is_err() {
                self.table.remove(slot);
                continue;
            }
            self.welcome(slot);
        }
    }

    /// Tells a new connection if there are too many.
    fn welcome(&mut self, slot: u16) {
        if self.table.len() > self.options.connections {
            self.fail(slot, 503);
        }
    }

    /// Takes the news of `tcpip`'s connections.
    fn take_streams(&mut self) {
        while let Some(news) = self.streams.as_mut().and_then(Streams::take) {
            match news {
                News::Note(note, body) => self.note(note, body),
                News::Gone => {
                    let slots = self.table.slots();
                    let lost = slots.filter(|(_, conn)| matches!(conn.client, Client::Stream(_)));
                    let lost: Vec<u16> = lost.map(|(slot, _)| slot).collect();
                    for slot in lost {
                        self.stream(slot, |stream| stream.gone = true);
                        self.close(slot);
                    }
                }
            }
        }
    }

    fn note(&mut self, note: Note, body: Body) {
        let Some(streams) = &mut self.streams else {
            return;
        };
        if note.kind == Kind::Opened {
            // Without a slot it is closed again.
            let client = Client::Stream(streams.open(note));
            if let Some((slot, _)) = self.table.put(client, self.now) {
                streams.put(note.id, slot);
                self.welcome(slot);
            }
            return;
        }
        let Some(slot) = streams.slot(note.id) else {
            return;
        };
        let is_this = |conn: &mut conn::Conn| match &conn.client {
            Client::Stream(stream) => stream.id == note.id,
            Client::Socket(_) => false,
        };
        if !self.table.get(slot).is_some_and(is_this) {
            return;
        }
        match note.kind {
            Kind::Data => {
                let mut fits = true;
                self.stream(slot, |stream| fits = stream.come(body));
                match fits {
                    true => self.read(slot),
                    false => self.close(slot),
                }
            }
            Kind::Ended => {
                self.stream(slot, |stream| stream.ended = true);
                self.read(slot);
            }
            Kind::Taken => {
                self.stream(slot, |stream| stream.room += note.bytes);
                self.dirty.push(slot);
            }
            Kind::Closed => {
                self.stream(slot, |stream| stream.gone = true);
                self.close(slot);
            }
            Kind::Hello | Kind::Opened => {}
        }
    }

    fn stream(&mut self, slot: u16, change: impl FnOnce(&mut streams::Stream)) {
        if let Some(conn) = self.table.get(slot)
            && let Client::Stream(stream) = &mut conn.client
        {
            change(stream);
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
            let (bytes, all) = match conn.client.read(&self.pool, &mut self.spare, most) {
                Read::Bytes(bytes, all) => (bytes, all),
                Read::Nothing => {
                    conn.unread = false;
                    return;
                }
                Read::End => {
                    conn.unread = false;
                    conn.ended = true;
                    if conn.unanswered == 0 && conn.out.is_empty() {
                        self.close(slot);
                    }
                    return;
                }
                Read::Broken => return self.close(slot),
                // Memory comes back with the replies.
                Read::NoMemory => {
                    conn.unread = true;
                    self.waiting.push(slot);
                    return;
                }
            };
            let word = conn.pass(slot, self.now);
            conn.unread = !all;
            self.flying += 1;
            self.behind.pass(word, Body::Buffer(bytes));
            if all {
                return;
            }
            most = READ_MORE;
        }
    }

    /// Reads on, and forgets it: the connection is being ended.
    fn discard(&mut self, slot: u16) {
        let Some(conn) = self.table.get(slot) else {
            return;
        };
        match conn.client.discard() {
            Read::Nothing => {}
            Read::End if !conn.out.is_empty() => {}
            _ => self.close(slot),
        }
    }

    fn take_replies(&mut self) {
        loop {
            match self.behind.take() {
                Got::Message(word, body) => self.deliver(word, body),
                Got::Nothing => break,
                Got::Gone => self.call_roll(),
            }
        }
        if self.rolls.take_done() {
            let slots = self.table.slots();
            let lost = slots.filter(|(_, conn)| conn.called > 0);
            let lost: Vec<u16> = lost.map(|(slot, _)| slot).collect();
            lost.into_iter().for_each(|slot| self.fail(slot, 502));
        }
    }

    /// Asks all components what became of the requests that are under way.
    fn call_roll(&mut self) {
        let mut any = false;
        for conn in self.table.all() {
            conn.called = conn.unanswered;
            any |= conn.called > 0;
        }
        match any {
            true => self.behind.pass(self.rolls.begin(self.now), nothing()),
            false => self.rolls.end(),
        }
    }

    /// Takes a reply, or a note about a connection.
    fn deliver(&mut self, word: Word, body: Body) {
        if let Some((number, share)) = word.as_roll() {
            return self.rolls.answer(number, share);
        }
        let slot = word.slot();
        let Some(conn) = self
            .table
            .get(slot)
            .filter(|conn| conn.generation == word.generation())
        else {
            // The client is gone, or was told that there is no answer.
            return;
        };
        let is_note = |word: Word, body: &Body| word.status() == 0 && body_is_empty(body);
        if is_note(word, &body) && word.has(Word::UNKNOWN) {
            // The process that had the bytes before these has died.
            return self.fail(slot, 502);
        }
        if conn.is_past(word) {
            // Only a note may be late.
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
            if is_note(word, &body) {
                self.flying -= conn.answered(word, self.now);
                continue;
            }
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
            let line = Line {
                word,
                bytes: (conn.out_bytes - before) as u64,
                took: self.now.duration_since(conn.since),
            };
            self.behind.log(line);
            self.flying -= conn.answered(word, self.now);
            conn.next = conn.next.wrapping_add(1);
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
                    conn.client.finish();
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
        let (mut unsent, mut most) = (0, (0, 0));
        let (mut over, mut next) = (Vec::new(), None::<Instant>);
        for (slot, conn) in self.table.slots() {
            unsent += conn.out_bytes;
            most = most.max((conn.out_bytes, slot));
            let (deadline, status) = conn.deadline(&self.options);
            match self.now >= deadline {
                true => over.push((slot, status)),
                false => next = Some(next.map_or(deadline, |next| next.min(deadline))),
            }
        }
        self.look = next;
        for (slot, status) in over {
            // A connection that ends has a time limit, too.
            self.look_soon();
            match status {
                0 => self.close(slot),
                status => self.fail(slot, status),
            }
        }
        // Memory that slow clients keep from all others.
        if unsent > self.options.unsent {
            self.look_soon();
            self.close(most.1);
        }
        if self.rolls.is_late(self.now) {
            self.call_roll();
        }
        if self.rolls.is_under_way() || self.now.duration_since(self.worked) < REST {
            self.look_soon();
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
        conn.called = 0;
        conn.early.clear();
        conn.last = true;
        conn.lingers = true;
        let gone = word.without(Word::CLOSE).with_status(0);
        self.table.renew(slot);
        self.behind.log(line);
        // Whatever it still has of the connection is of no use.
        self.behind.pass(gone, nothing());
        self.dirty.push(slot);
    }

    fn close(&mut self, slot: u16) {
        if let Some(conn) = self.table.remove(slot) {
            self.flying -= conn.unanswered as usize;
            if conn.partial || conn.unanswered > 0 {
                let word = Word::new(slot, conn.generation, 0);
                self.behind.pass(word, nothing());
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
