//! A connection: bytes in, commands, replies out.
//!
//! A value that follows a command is received straight into the arena. The server does not read from a client that does
//! not take its replies.

use super::announced::Credit;
use super::incoming::Incoming;
use super::pace::Pace;
use super::shared::Shared;
use super::waiting::{self, Part};
use super::{classic, meta};
use crate::image::{Client, Next};
use crate::parse::{self, Command, Put};
use crate::reply::Replies;
use crate::stats::Counts;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tranship_sys::epoll::Interest;
use tranship_zcopy::{Sender, Socket, ValueMut};

/// Longest command line, except of a `get`: its keys are answered as they come.
const LINE: usize = 64 << 10;
/// Bytes taken from the socket at once.
const CHUNK: usize = 16 << 10;
/// Commands before others have their turn.
const TURN: usize = 256;
/// Replies that may wait before the connection is read again: bytes, bytes of text, values.
const WAITING: (usize, usize, usize) = (64 << 20, 1 << 20, 4096);

/// Result of a connection's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The connection waits for its client.
    Done,
    /// Commands are left.
    More,
    /// The connection is over.
    End,
}

/// Input that the connection expects next.
#[derive(Debug)]
enum Expect {
    Line,
    /// The bytes of a value and its line end.
    Value {
        put: Arriving,
        value: Incoming,
        /// The command, as it came.
        line: Vec<u8>,
        /// Credit, unless all of the value was there with its command.
        _credit: Option<Credit>,
    },
    /// Bytes that are no command.
    Swallow(usize),
    /// All up to the end of a line.
    SwallowLine,
    /// More keys of a `get` whose line is long.
    Keys(classic::Keys),
}

/// Consumer of a value that has arrived.
#[derive(Debug)]
pub(super) enum Arriving {
    Classic(classic::Owned),
    Meta(meta::OwnedSet),
}

impl Arriving {
    /// Says that the value is refused, to a client that wants to know: any other would take it for the answer to its
    /// next command.
    fn refuse(&self, answer: &str, replies: &mut Replies) {
        match self {
            Arriving::Classic(put) if put.noreply() => {}
            Arriving::Classic(_) | Arriving::Meta(_) => replies.line(answer),
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    socket: Socket,
    /// Room for received bytes; it is not cleared between two reads.
    input: Vec<u8>,
    /// Bytes of the input that were received, and bytes that were parsed.
    filled: usize,
    at: usize,
    expect: Expect,
    replies: Replies,
    interest: Interest,
    /// Time since when replies wait without a byte being taken.
    stuck: Option<Instant>,
    /// Time since when an announced value waits without a byte of it.
    awaited: Option<Instant>,
    pace: Pace,
    /// Part of the memory that all clients' replies hold.
    part: Option<Part>,
    ending: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            socket: Socket::new(&stream)?,
            stream,
            input: Vec::new(),
            filled: 0,
            at: 0,
            expect: Expect::Line,
            replies: Replies::default(),
            interest: Interest::Read,
            stuck: None,
            awaited: None,
            pace: Pace::default(),
            part: None,
            ending: false,
        })
    }

    /// Continues a command that another process began.
    pub(super) fn resume(stream: TcpStream, client: Client) -> io::Result<Connection> {
        let mut own = Connection::new(stream)?;
        own.filled = client.input.len();
        own.input = client.input;
        own.ending = client.ending;
        own.expect = match client.next {
            Next::Line => Expect::Line,
            Next::Swallow(bytes) => Expect::Swallow(usize::try_from(bytes).unwrap_or(usize::MAX)),
            Next::SwallowLine => Expect::SwallowLine,
        };
        own.replies.text(&client.replies);
        Ok(own)
    }

    /// Returns the state that another process needs to continue; none if the client has more than `most` bytes of
    /// replies to take.
    pub(super) fn write_down(&self, most: usize) -> Option<Client> {
        if self.replies.waiting().0 > most {
            return None;
        }
        let mut input = Vec::new();
        let next = match &self.expect {
            Expect::Line => Next::Line,
            // The delay counts from the value's command on.
            Expect::Value { value, line, .. } => {
                input.extend_from_slice(line);
                input.extend_from_slice(b"\r\n");
                input.extend(value.so_far().concat());
                Next::Line
            }
            Expect::Swallow(bytes) => Next::Swallow(*bytes as u64),
            Expect::SwallowLine => Next::SwallowLine,
            // Continues as if the line began with the next key.
            Expect::Keys(keys) => {
                input.extend_from_slice(&keys.beginning());
                Next::Line
            }
        };
        input.extend_from_slice(&self.input[self.at..self.filled]);
        Some(Client {
            next,
            ending: self.ending,
            input,
            replies: self.replies.to_vec(),
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the events to wait for from now on, if they have changed.
    pub(super) fn wish(&mut self, shared: &Shared) -> Option<Interest> {
        let wish = match (self.replies.is_empty(), self.is_choked(shared)) {
            (true, _) => Interest::Read,
            (false, false) => Interest::ReadWrite,
            (false, true) => Interest::Write,
        };
        (std::mem::replace(&mut self.interest, wish) != wish).then_some(wish)
    }

    /// Returns whether the connection holds memory, and has made no progress for `patience` or too little for
    /// `deadline`.
    pub(super) fn is_stuck(&self, now: Instant, patience: Duration, deadline: Duration) -> bool {
        let has_waited = |since| now.saturating_duration_since(since) >= patience;
        self.stuck.is_some_and(has_waited)
            || self.awaited.is_some_and(has_waited)
            || self.pace.is_behind(now, deadline)
    }

    /// Returns whether a part of a command, or of its value, is here.
    fn has_part(&self) -> bool {
        self.at < self.filled || matches!(self.expect, Expect::Value { .. })
    }

    fn is_choked(&self, shared: &Shared) -> bool {
        let (bytes, values) = self.replies.waiting();
        let has_much = bytes > WAITING.0 || self.replies.room() > WAITING.1 || values > WAITING.2;
        bytes > 0 && (has_much || shared.waiting.is_much(&shared.store))
    }

    /// Returns since when its replies hold memory of the server, if they do.
    fn holds_since(&self) -> Option<Instant> {
        let holds = self.replies.room() > 0 || self.replies.waiting().1 > 0;
        self.pace.owed_since().filter(|_| holds)
    }

    /// Counts the memory that it holds.
    fn count(&mut self, shared: &Shared, client: waiting::Token) {
        let input = match self.input.capacity() {
            ..=CHUNK => 0,
            more => more,
        };
        let since = self.holds_since();
        let part = self.part.get_or_insert_with(|| shared.waiting.part(client));
        part.set((self.replies.room() + input) as u64);
        part.holds(since);
    }

    /// Reads, answers and sends, as one client of a worker.
    pub(super) fn turn(
        &mut self,
        shared: &Shared,
        client: waiting::Token,
        sender: &mut Sender,
    ) -> Turn {
        let worker = client.0;
        let counts = &shared.counts[worker];
        // Otherwise a connection with notifications is ready for ever.
        if sender.settle(&self.stream, &mut self.socket).is_err() {
            return Turn::End;
        }
        let mut commands = 0;
        let mut dry = false;
        while !self.ending && commands < TURN && !self.is_choked(shared) {
            match self.step(shared, worker) {
                Some(()) => {
                    commands += 1;
                    self.count(shared, client);
                }
                None if dry => break,
                None => match self.read(counts) {
                    Ok(more) => dry = !more,
                    Err(_) => return Turn::End,
                },
            }
        }
        let was_choked = self.is_choked(shared);
        if was_choked {
            Counts::bump(&counts.conn_yields, 1);
        }
        self.awaited = match self.expect {
            Expect::Value { .. } => self.awaited.or_else(|| Some(Instant::now())),
            _ => None,
        };
        // A delay of input that waits because replies wait is not the client's.
        let part = self.has_part() && !was_choked;
        self.pace.received(commands > 0, part);
        let waited = !self.replies.is_empty();
        match self
            .replies
            .send(self.stream.as_fd(), &mut self.socket, sender)
        {
            Ok(sent) => {
                self.pace.took(sent, self.replies.waiting().0);
                self.stuck = match self.stuck {
                    _ if self.replies.is_empty() => None,
                    Some(since) if sent == 0 => Some(since),
                    _ => Some(Instant::now()),
                };
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.pace.took(0, self.replies.waiting().0);
                self.stuck = self.stuck.or_else(|| waited.then(Instant::now));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Turn::More,
            Err(_) => return Turn::End,
        }
        self.count(shared, client);
        if self.ending && self.replies.is_empty() {
            return Turn::End;
        }
        let has_more = !dry || commands == TURN || was_choked;
        if !self.ending && has_more && !self.is_choked(shared) {
            return Turn::More;
        }
        Turn::Done
    }

    /// Takes the bytes that are there: a value's bytes to their place, the others behind the input that is still to be
    /// parsed. False if that was all, an error at the end.
    fn read(&mut self, counts: &Counts) -> io::Result<bool> {
        self.input.copy_within(self.at..self.filled, 0);
        self.filled -= std::mem::take(&mut self.at);
        if self.filled == 0 {
            // Frees the room of a long line.
            self.input.truncate(CHUNK);
            self.input.shrink_to(CHUNK);
        }
        if self.input.len() < self.filled + CHUNK {
            self.input.resize(self.filled + CHUNK, 0);
        }
        let room = &mut self.input[self.filled..];
        let (result, wanted, rest) = match &mut self.expect {
            Expect::Value { value, .. } => {
                let rest = value.missing();
                let both = rest + room.len();
                (
                    self.stream.read_vectored(&mut value.parts(room)),
                    both,
                    rest,
                )
            }
            _ => (self.stream.read(room), room.len(), 0),
        };
        if let Ok(count) = result {
            let of_value = count.min(rest);
            self.filled += count - of_value;
            if let Expect::Value { value, .. } = &mut self.expect {
                value.came(of_value);
            }
            self.awaited = None;
        }
        match result {
            Ok(0) => {
                // Commands from before are still answered.
                self.ending = true;
                Ok(false)
            }
            Ok(count) => {
                Counts::bump(&counts.bytes_read, count as u64);
                // The read returned less than there was room for: the kernel reports the rest again, if there is any.
                Ok(count == wanted)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Handles one command of the received bytes; none if more bytes are needed.
    fn step(&mut self, shared: &Shared, worker: usize) -> Option<()> {
        match &mut self.expect {
            Expect::Line => self.line(shared, worker),
            Expect::Swallow(left) => {
                let now = (*left).min(self.filled - self.at);
                self.at += now;
                *left -= now;
                if *left > 0 {
                    return None;
                }
                self.expect = Expect::Line;
                Some(())
            }
            Expect::SwallowLine => {
                let rest = &self.input[self.at..self.filled];
                match rest.iter().position(|byte| *byte == b'\n') {
                    Some(end) => self.at += end + 1,
                    None => {
                        self.at = self.filled;
                        return None;
                    }
                }
                self.expect = Expect::Line;
                Some(())
            }
            Expect::Keys(keys) => {
                let (looked_at, end) = {
                    let input = &self.input[self.at..self.filled];
                    keys.answer(input, shared, worker, &mut self.replies)
                };
                self.at += looked_at;
                match end {
                    Some(classic::KeysEnd::Line) => self.expect = Expect::Line,
                    Some(classic::KeysEnd::Wrong) => self.ending = true,
                    None if looked_at == 0 => return None,
                    None => {}
                }
                Some(())
            }
            Expect::Value { value, .. } => {
                self.at += value.take(&self.input[self.at..self.filled]);
                if value.missing() > 0 {
                    return None;
                }
                let Expect::Value { put, value, .. } =
                    std::mem::replace(&mut self.expect, Expect::Line)
                else {
                    unreachable!("just looked at");
                };
                self.stored(shared, worker, put, value);
                Some(())
            }
        }
    }

    fn stored(&mut self, shared: &Shared, worker: usize, put: Arriving, value: Incoming) {
        let value = match value.finish() {
            Ok(value) => value,
            Err(ended) => {
                // The client and we do not agree where the value ends: the bytes that it takes for its next command
                // begin a line.
                if !ended {
                    self.expect = Expect::SwallowLine;
                }
                return put.refuse("CLIENT_ERROR bad data chunk", &mut self.replies);
            }
        };
        match put {
            Arriving::Classic(put) => put.store(shared, worker, value.freeze(), &mut self.replies),
            Arriving::Meta(set) => set.store(shared, worker, value.freeze(), &mut self.replies),
        }
    }

    fn line(&mut self, shared: &Shared, worker: usize) -> Option<()> {
        let rest = &self.input[self.at..self.filled];
        if parse::is_foreign(rest) {
            self.ending = true;
            return Some(());
        }
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            if rest.len() <= LINE {
                return None;
            }
            match classic::Keys::begin(rest) {
                Some((keys, at)) => {
                    self.at += at;
                    self.expect = Expect::Keys(keys);
                }
                None => {
                    self.replies.line("CLIENT_ERROR line too long");
                    self.ending = true;
                }
            }
            return Some(());
        };
        // Taken out, so that the reply can be written while the line is read.
        let input = std::mem::take(&mut self.input);
        let line = &input[self.at..self.at + end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.at += end + 1;
        self.command(line, shared, worker);
        if let Expect::Value { line: its, .. } = &mut self.expect {
            *its = line.to_vec();
        }
        self.input = input;
        Some(())
    }

    /// Handles a line, without its end.
    fn command(&mut self, line: &[u8], shared: &Shared, worker: usize) {
        match parse::parse(line) {
            Ok(Command::Quit) => self.ending = true,
            Ok(Command::Store(put)) => self.expect_classic(shared, worker, &put),
            Ok(Command::Meta(meta)) => {
                Counts::bump(&shared.counts[worker].cmd_meta, 1);
                if let parse::MetaKind::Set(len) = meta.kind {
                    match meta::OwnedSet::new(&meta) {
                        Ok(set) => self.expect_value(shared, worker, len, Arriving::Meta(set)),
                        Err(answer) => {
                            self.replies.line(answer);
                            self.expect = Expect::Swallow(len.saturating_add(2));
                        }
                    }
                } else {
                    meta::answer(&meta, shared, worker, &mut self.replies);
                }
            }
            Ok(command) => classic::answer(command, shared, worker, &mut self.replies),
            Err(wrong) => {
                if !wrong.answer.is_empty() {
                    self.replies.line(wrong.answer);
                }
                if let Some(len) = wrong.swallow {
                    self.expect = Expect::Swallow(len.saturating_add(2));
                }
            }
        }
    }

    fn expect_classic(&mut self, shared: &Shared, worker: usize, put: &Put<'_>) {
        self.expect_value(
            shared,
            worker,
            put.len,
            Arriving::Classic(classic::Owned::new(put)),
        );
    }

    /// Reserves memory for a value that follows. A value that is still to be sent evicts nothing while there are many
    /// such.
    fn reserve(&self, shared: &Shared, len: usize) -> Option<(ValueMut, Option<Credit>)> {
        let is_here = self.filled - self.at >= len;
        let credit = match is_here {
            true => None,
            false => Some(shared.announced.take(len)?),
        };
        Some((shared.store.reserve(len)?, credit))
    }

    /// Prepares for a value that follows: its memory first.
    fn expect_value(&mut self, shared: &Shared, worker: usize, len: usize, put: Arriving) {
        let counts = &shared.counts[worker];
        Counts::bump(&counts.cmd_set, 1);
        let answer = if len > shared.options.longest {
            Counts::bump(&counts.store_too_large, 1);
            "SERVER_ERROR object too large for cache"
        } else if let Some((value, credit)) = self.reserve(shared, len) {
            self.expect = Expect::Value {
                put,
                value: Incoming::new(value),
                line: Vec::new(),
                _credit: credit,
            };
            return;
        } else {
            "SERVER_ERROR out of memory storing object"
        };
        match &put {
            Arriving::Classic(put) => put.forget(shared),
            Arriving::Meta(set) => set.forget(shared),
        }
        put.refuse(answer, &mut self.replies);
        self.expect = Expect::Swallow(len.saturating_add(2));
    }
}
