//! A bridge to applications that speak FastCGI: php-fpm, programs of libfcgi, unchanged.
//!
//! What an application answers is received into a pool once, and goes to the front by reference.
//!
//! Source: FastCGI Specification 1.0.

mod records;
mod reply;

use crate::component::{Ends, REST, timespec};
use crate::lane::In;
use crate::os::{Piece, write_pieces};
use crate::reply::Heads;
use crate::request::{Method, Request, body_of, copy_record};
use crate::stage::{Outs, To, nothing};
use crate::word::Word;
use anyhow::{Context, Result};
use records::{Event, Parser};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tranship::{Body, Buffer};

/// How applications are reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// An IP address and a port, or the path of a Unix socket.
    pub at: String,
    /// Folder of the applications' scripts, as they see it.
    pub root: String,
    /// Most connections to the applications.
    pub connections: usize,
    /// Time for an application's answer.
    pub answer: Duration,
    /// Most bytes of an application's answer.
    pub most: usize,
}

/// Requests that may wait for a connection.
const WAITING: usize = 256;
/// Bytes of one read.
const READ: usize = 64 << 10;
const BEHIND: u64 = u64::MAX;
const TICK: Duration = Duration::from_millis(100);

/// A connection to an application.
struct App {
    socket: OwnedFd,
    out: VecDeque<Piece>,
    skip: usize,
    parser: Parser,
    job: Option<Job>,
    /// Requests that it has answered.
    served: u64,
}

/// A request.
struct Asked {
    /// Requests and roll calls before it.
    number: u64,
    word: Word,
    body: Body,
}

/// A request that an application has.
struct Job {
    asked: Asked,
    since: Instant,
    pieces: Vec<Buffer>,
    bytes: usize,
}

/// The component.
struct Bridge {
    ends: Ends,
    options: Options,
    epoll: OwnedFd,
    apps: Vec<Option<App>>,
    waiting: VecDeque<Asked>,
    /// Requests and roll calls that have come.
    count: u64,
    /// Roll calls that wait for requests before them.
    rolls: VecDeque<(u64, Word)>,
    heads: Heads,
    record: Vec<u8>,
    outs: Outs,
}

/// Runs the component, until it is stopped.
///
/// # Errors
/// Those of [`Component::connect`](tranship::component::Component::connect); what the system refuses.
pub fn run(options: Options) -> Result<()> {
    let ends = Ends::connect(To::Fastcgi)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")?;
    let behind = EventData::new_u64(BEHIND);
    epoll::add(&epoll, ends.domain.as_fd(), behind, EventFlags::IN).context("epoll_ctl")?;
    let mut bridge = Bridge {
        apps: (0..options.connections.clamp(1, 1024))
            .map(|_| None)
            .collect(),
        ends,
        options,
        epoll,
        waiting: VecDeque::new(),
        count: 0,
        rolls: VecDeque::new(),
        heads: Heads::default(),
        record: Vec::new(),
        outs: Outs::default(),
    };
    bridge.serve()
}

impl Bridge {
    fn serve(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(64);
        let mut worked = Instant::now();
        self.ends.meet_front();
        loop {
            self.take_requests();
            self.answer_rolls();
            self.ends.flush(&mut self.outs);
            let busy = self.apps.iter().flatten().any(|app| app.job.is_some());
            if busy {
                worked = Instant::now();
            }
            let limit = match self.ends.ins.iter_mut().all(In::arm) {
                false => Some(Duration::ZERO),
                true if worked.elapsed() < REST || !self.ends.are_there() => Some(TICK),
                true => None,
            };
            let limit = limit.map(timespec);
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                limit.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(std::io::Error::from(error)).context("epoll_wait"),
            }
            for event in &events {
                match event.data.u64() {
                    BEHIND => {
                        self.ends.ins.iter_mut().for_each(In::disarm);
                        self.ends.turn();
                    }
                    at => self.event(usize::try_from(at).unwrap_or(usize::MAX)),
                }
            }
            let now = Instant::now();
            if events.is_empty() {
                self.ends.turn();
            }
            for at in 0..self.apps.len() {
                let job = self.apps[at].as_ref().and_then(|app| app.job.as_ref());
                if job.is_some_and(|job| now.duration_since(job.since) >= self.options.answer) {
                    self.lose(at, 504);
                }
            }
        }
    }

    fn take_requests(&mut self) {
        let mut got = Vec::new();
        for end in &mut self.ends.ins {
            // An end shows by the next look.
            while end.take(&mut got, WAITING).is_ok() && !got.is_empty() {
                for message in got.drain(..) {
                    let (number, word) = (self.count, Word(message.word));
                    self.count += 1;
                    match word.as_roll() {
                        Some(_) => self.rolls.push_back((number, word)),
                        None if self.waiting.len() < WAITING => self.waiting.push_back(Asked {
                            number,
                            word,
                            body: message.body,
                        }),
                        None => self.outs.answer(word, 503),
                    }
                }
            }
        }
        while !self.waiting.is_empty() {
            let free = |app: &Option<App>| app.as_ref().is_some_and(|app| app.job.is_none());
            let kept = self.apps.iter().position(free);
            let at = kept.or_else(|| self.apps.iter().position(Option::is_none));
            let Some(at) = at else { return };
            let Some(asked) = self.waiting.pop_front() else {
                return;
            };
            self.begin(at, asked);
        }
    }

    /// Answers roll calls before which no request is left.
    fn answer_rolls(&mut self) {
        while let Some((number, word)) = self.rolls.front().copied() {
            let jobs = self
                .apps
                .iter()
                .flatten()
                .filter_map(|app| app.job.as_ref());
            let mut asked = jobs.map(|job| &job.asked).chain(&self.waiting);
            if asked.any(|asked| asked.number < number) {
                return;
            }
            self.outs.send(To::Front, word, nothing());
            self.rolls.pop_front();
        }
    }

    /// Gives a request to the application of a connection, which is made if it is not there.
    fn begin(&mut self, at: usize, asked: Asked) {
        let (word, body) = (asked.word, &asked.body);
        let read = copy_record(body, &mut self.record);
        let Some(request) = Some(&self.record)
            .filter(|_| read)
            .and_then(|record| Request::read(record))
        else {
            return self.outs.answer(word, 500);
        };
        if self.apps[at].is_none() {
            let data = EventData::new_u64(at as u64);
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let socket = connect(&self.options.at);
            let socket = socket.and_then(|socket| {
                epoll::add(&self.epoll, &socket, data, flags)?;
                Ok(socket)
            });
            match socket {
                Ok(socket) => {
                    self.apps[at] = Some(App {
                        socket,
                        out: VecDeque::new(),
                        skip: 0,
                        parser: Parser::default(),
                        job: None,
                        served: 0,
                    });
                }
                // The application has as many connections as it takes.
                Err(Errno::AGAIN) => return self.outs.answer(word, 503),
                Err(_) => return self.outs.answer(word, 502),
            }
        }
        let Some(app) = &mut self.apps[at] else {
            return;
        };
        let head = records::begin(&request, &self.options.root);
        app.out.push_back(Piece::Own(head));
        for piece in body_of(body) {
            records::stdin(&mut app.out, piece);
        }
        app.out
            .push_back(Piece::Own(records::END_OF_STDIN.to_vec()));
        app.job = Some(Job {
            asked,
            since: Instant::now(),
            pieces: Vec::new(),
            bytes: 0,
        });
        self.write(at);
    }

    fn event(&mut self, at: usize) {
        self.write(at);
        self.read(at);
    }

    fn write(&mut self, at: usize) {
        let Some(app) = self.apps.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        while !app.out.is_empty() {
            match write_pieces(&app.socket, app.out.iter(), app.skip) {
                Ok(wrote) => app.skip += wrote,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOTCONN) => return,
                Err(_) => return self.lose(at, 502),
            }
            while let Some(first) = app.out.front()
                && app.skip >= first.len()
            {
                app.skip -= first.len();
                app.out.pop_front();
            }
        }
    }

    fn read(&mut self, at: usize) {
        loop {
            let Some(app) = self.apps.get_mut(at).and_then(Option::as_mut) else {
                return;
            };
            let Ok(mut buffer) = self.ends.pool.try_alloc(READ) else {
                return self.lose(at, 503);
            };
            let got = match rustix::net::recv(&app.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.lose(at, 502),
                Ok((got, _)) => got,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOTCONN) => return,
                Err(_) => return self.lose(at, 502),
            };
            buffer.truncate(got);
            let bytes = buffer.freeze();
            let mut from = 0;
            while let Some(event) = app.parser.next(&bytes, &mut from) {
                let Some(job) = &mut app.job else {
                    return self.lose(at, 502);
                };
                match event {
                    Event::Stdout(piece) => {
                        job.bytes += piece.len();
                        if job.bytes > self.options.most
                            || job.pieces.len() >= tranship::MAX_PIECES / 2
                        {
                            return self.lose(at, 502);
                        }
                        job.pieces.push(piece);
                    }
                    Event::Stderr(text) => eprint!("{}", String::from_utf8_lossy(&text.to_vec())),
                    Event::End => {
                        app.served += 1;
                        if let Some(job) = app.job.take() {
                            self.finish(job);
                        }
                        return self.next(at);
                    }
                    Event::Wrong => return self.lose(at, 502),
                }
            }
        }
    }

    /// The application of a connection is free.
    fn next(&mut self, at: usize) {
        if let Some(asked) = self.waiting.pop_front() {
            self.begin(at, asked);
        }
    }

    fn finish(&mut self, job: Job) {
        let reply = reply::reply(
            &mut self.heads,
            &self.ends.pool,
            job.asked.word,
            &job.pieces,
        );
        match reply {
            Ok((word, body)) => self.outs.send(To::Front, word, body),
            Err(status) => self.outs.answer(job.asked.word, status),
        }
    }

    /// Lets a connection go; its request gets this status, or another connection if the application had only closed it.
    fn lose(&mut self, at: usize, status: u16) {
        let Some(app) = self.apps[at].take() else {
            return;
        };
        let Some(job) = app.job else { return };
        let read = copy_record(&job.asked.body, &mut self.record);
        let method = Request::read(&self.record)
            .filter(|_| read)
            .map(|request| request.method);
        let idle = app.served > 0 && job.pieces.is_empty() && status == 502;
        match method {
            Some(Method::Get | Method::Head) if idle => self.waiting.push_front(job.asked),
            _ => self.outs.answer(job.asked.word, status),
        }
    }
}

/// Begins a connection to an application.
fn connect(at: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let new = |family| rustix::net::socket_with(family, SocketType::STREAM, flags, None);
    let (socket, connected) = match at.parse::<SocketAddr>() {
        Ok(address) => {
            let family = match address {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let socket = new(family)?;
            let connected = rustix::net::connect(&socket, &address);
            (socket, connected)
        }
        Err(_) => {
            let socket = new(AddressFamily::UNIX)?;
            let address = SocketAddrUnix::new(PathBuf::from(at).as_path())?;
            let connected = rustix::net::connect(&socket, &address);
            (socket, connected)
        }
    };
    match connected {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}
