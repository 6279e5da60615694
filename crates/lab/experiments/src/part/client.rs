//! The client: connections to the web server. Each has one request under way at a time.

use super::super::lines::{Progress, now_ns, say};
use super::super::plan::ANSWER;
use super::told::Told;
use anyhow::{Context, Result, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const REPORT: Duration = Duration::from_millis(50);
const PAUSE: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// The longest head of an answer.
const HEAD: usize = 4096;

struct Connection {
    socket: TcpStream,
    /// The answer's head, so far; empty once it was read.
    head: Vec<u8>,
    /// Bytes of the body that are still to come; `None` before the head was read.
    left: Option<usize>,
    refused: bool,
    ended: bool,
}

pub(super) fn run(told: &Told, port: u16) -> Result<()> {
    let request = format!("GET /dynamic?n={ANSWER} HTTP/1.1\r\nHost: x\r\n\r\n");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut all: Vec<Connection> = Vec::new();
    let (mut progress, mut part) = (Progress::default(), vec![0; 256 << 10]);
    let mut said: Option<Instant> = None;
    let mut events = Vec::with_capacity(256);
    loop {
        while (all.len() as u64) < told.callers() {
            let mut connection = Connection::open(port, &epoll, all.len() as u64)?;
            connection.ask(&request)?;
            all.push(connection);
        }
        if said.is_none_or(|said| said.elapsed() >= REPORT) {
            said = Some(Instant::now());
            progress.at_ns = now_ns();
            if !say(&progress) {
                return Ok(());
            }
        }
        events.clear();
        match epoll::wait(
            &epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&PAUSE),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let at = usize::try_from(event.data.u64())?;
            let connection = all.get_mut(at).context("a connection")?;
            while let Some(answered) = connection.read(&mut part)? {
                match answered {
                    true => progress.done += 1,
                    false => progress.wrong += 1,
                }
                if connection.ended {
                    *connection = Connection::open(port, &epoll, event.data.u64())?;
                }
                connection.ask(&request)?;
            }
        }
    }
}

impl Connection {
    fn open(port: u16, epoll: &OwnedFd, number: u64) -> Result<Connection> {
        let socket = TcpStream::connect(("127.0.0.1", port)).context("connecting")?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        epoll::add(epoll, &socket, EventData::new_u64(number), EventFlags::IN)?;
        Ok(Connection {
            socket,
            head: Vec::with_capacity(HEAD),
            left: None,
            refused: false,
            ended: false,
        })
    }

    fn ask(&mut self, request: &str) -> Result<()> {
        // A request is small: a socket without anything to send takes it whole.
        match self.socket.write_all(request.as_bytes()) {
            // The end shows when it is read.
            Err(error) if is_end(&error) => Ok(()),
            other => other.context("asking"),
        }
    }

    /// Reads on. `true`: the right answer is whole; `false`: a refusal is.
    fn read(&mut self, part: &mut [u8]) -> Result<Option<bool>> {
        loop {
            if self.left == Some(0) {
                self.left = None;
                return Ok(Some(!self.refused));
            }
            let got = match self.socket.read(part) {
                // A refusal may end the connection.
                Ok(0) => {
                    self.ended = true;
                    return Ok(Some(false));
                }
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if is_end(&error) => {
                    self.ended = true;
                    return Ok(Some(false));
                }
                Err(error) => return Err(error).context("reading an answer"),
            };
            let bytes = &part[..got];
            match &mut self.left {
                Some(left) => *left = left.checked_sub(got).context("a longer answer")?,
                None => {
                    self.head.extend(&bytes[..got.min(HEAD)]);
                    let end = self.head.windows(4).position(|at| at == b"\r\n\r\n");
                    let Some(end) = end else {
                        if self.head.len() > HEAD {
                            bail!("a head longer than {HEAD} bytes");
                        }
                        continue;
                    };
                    let before = self.head.len() - bytes.len().min(HEAD);
                    let text = String::from_utf8_lossy(&self.head[..end]).to_ascii_lowercase();
                    let length = text.lines().find_map(|l| l.strip_prefix("content-length:"));
                    let length = length.and_then(|it| it.trim().parse::<usize>().ok());
                    let body = before + got - (end + 4);
                    self.refused = !text.starts_with("http/1.1 200 ");
                    let left = length
                        .context("an answer without a length")?
                        .checked_sub(body);
                    self.left = Some(left.context("a longer answer")?);
                    self.head.clear();
                }
            }
        }
    }
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}
