//! Clients of a server of memcached's protocol: many connections in a closed loop; what comes is dropped or copied. They never wait in
//! the kernel.

use super::super::counters::{Counters, MISSES};
use crate::clock;
use crate::stats::{Facts, Measured, Samples};
use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use tranship_sys::stream;

/// Without a byte for so long, the server is taken for stuck: a value is missing.
const STUCK: Duration = Duration::from_secs(100);
/// The server's processor time in a run, ns for a request.
const CPU: &str = "server_cpu_ns";
/// And percent of a core.
const SHARE: &str = "server_cpu_percent";

/// A datagram that does not come in that time was lost.
const LOST: Duration = Duration::from_millis(200);
/// Bytes before a datagram's part of an answer.
const FRAME: usize = 8;

/// How values are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// Connections that stay.
    Kept,
    /// A connection for each value: the paper's load by TCP.
    Fresh,
    /// Datagrams: the paper's load by UDP.
    Datagrams,
}

impl Carrier {
    /// Connections or sockets at a time; 36 in the paper.
    fn count(self) -> usize {
        match self {
            Carrier::Kept => 16,
            Carrier::Fresh | Carrier::Datagrams => 36,
        }
    }
}

/// Requests of the client.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub carrier: Carrier,
    pub port: u16,
    /// Of UDP.
    pub udp: u16,
    /// The server's process.
    pub pid: u32,
    /// Bytes of a value.
    pub value: usize,
    /// How many there are.
    pub count: usize,
    /// Requests under way on each connection.
    pub depth: usize,
    /// Whether the client reads the replies. Otherwise the kernel drops them.
    pub copies: bool,
    pub budget: Duration,
}

/// The rows of a client, by their operation.
pub fn told(mut rows: Vec<Measured>, op: &str) -> Vec<Measured> {
    rows.iter_mut().for_each(|row| row.op = op.to_owned());
    rows
}

/// The command for a value.
fn get(index: usize) -> String {
    format!("get {}\r\n", key(index))
}

fn key(index: usize) -> String {
    format!("key:{index:08x}")
}

fn head(load: &Load) -> usize {
    format!("VALUE {} 0 {}\r\n", key(0), load.value).len()
}

/// Bytes of the answer to a get.
fn answer(load: &Load) -> usize {
    head(load) + load.value + "\r\nEND\r\n".len()
}

/// Each value has one byte, by its key.
fn byte(index: usize) -> u8 {
    u8::try_from(index % 251).expect("small")
}

/// Stores all values.
fn store_all(load: &Load) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", load.port))?;
    stream.set_nodelay(true)?;
    let mut out = Vec::with_capacity(1 << 20);
    for index in 0..load.count {
        write!(out, "set {} 0 0 {} noreply\r\n", key(index), load.value)?;
        out.resize(out.len() + load.value, byte(index));
        out.extend_from_slice(b"\r\n");
        if out.len() > 256 << 10 {
            stream.write_all(&out)?;
            out.clear();
        }
    }
    out.extend_from_slice(b"version\r\n");
    stream.write_all(&out)?;
    let said = line(&mut stream)?;
    ensure!(said.starts_with("VERSION"), "the server says {said:?}");
    Ok(stream)
}

/// Stores all values, asks for each once, and has the server say that none is missing.
pub fn fill(load: &Load) -> Result<()> {
    let mut stream = store_all(load)?;
    stream.write_all(b"stats\r\n")?;
    let mut items = 0;
    loop {
        let said = line(&mut stream)?;
        if let Some(count) = said.strip_prefix("STAT curr_items ") {
            items = count.parse()?;
        }
        if said == "END" {
            break;
        }
    }
    ensure!(
        items == load.count,
        "{items} of {} values stayed",
        load.count
    );
    // Each once: its pages are where the kernel finds them, and the server knows that it was asked for.
    let mut room = vec![0; answer(load) * 8];
    for first in (0..load.count).step_by(8) {
        let many = (load.count - first).min(8);
        let mut ask = String::new();
        (first..first + many).for_each(|index| ask.push_str(&get(index)));
        stream.write_all(ask.as_bytes())?;
        stream.read_exact(&mut room[..answer(load) * many])?;
        for (number, reply) in room.chunks_exact(answer(load)).take(many).enumerate() {
            let value = &reply[head(load)..][..load.value];
            let expected = byte(first + number);
            ensure!(
                value.iter().all(|byte| *byte == expected),
                "other bytes came than were asked for"
            );
        }
    }
    Ok(())
}

fn line(stream: &mut TcpStream) -> Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Numbers at random, other ones in each process.
struct Numbers(u64);

impl Numbers {
    fn new() -> Numbers {
        Numbers(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()))
    }

    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % below
    }
}

/// Asks, and measures.
pub fn run(load: Load) -> Result<Vec<Measured>> {
    let mut numbers = Numbers::new();
    let mut all = Vec::new();
    for _ in 0..load.carrier.count() {
        let mut one = Connection::new(&load)?;
        one.ask(&load, &mut numbers)?;
        all.push((one, clock::ticks()));
    }
    let mut room = vec![0u8; 256 << 10];
    let mut samples = Samples::new(1 << 20, u32::try_from(load.depth)?);
    let start = Instant::now();
    let (mut begun, mut cpu, mut served) = (None::<Instant>, 0, 0u64);
    let mut counters = None;
    let mut moved = Instant::now();
    loop {
        for (one, since) in &mut all {
            if !one.hear(&load, &mut room)? {
                continue;
            }
            let now = clock::ticks();
            if begun.is_some() {
                served += load.depth as u64;
                samples.push(now - *since);
            }
            one.ask(&load, &mut numbers)?;
            (*since, moved) = (now, Instant::now());
        }
        ensure!(moved.elapsed() < STUCK, "an answer does not come");
        match begun {
            // Until the set has been touched.
            None if start.elapsed() > load.budget => {
                (begun, cpu) = (Some(Instant::now()), cpu_of(load.pid)?);
                // Where there are none, the bench has said so.
                counters = Counters::of(load.pid).ok();
            }
            Some(begun) if begun.elapsed() > load.budget && samples.are_enough() => {
                let cpu = cpu_of(load.pid)? - cpu;
                let measured = samples.finish("").context("no sample")?;
                let seconds = begun.elapsed().as_secs_f64();
                let mut facts = Facts::from([
                    (CPU.into(), cpu as f64 / served as f64),
                    (SHARE.into(), cpu as f64 / seconds / 1e7),
                ]);
                let misses = counters.and_then(|mut all: Counters| all.read().ok());
                facts.extend(misses.map(|misses| (MISSES.into(), misses)));
                return Ok(vec![Measured {
                    per_second: served as f64 / seconds,
                    facts,
                    ..measured
                }]);
            }
            _ => {}
        }
    }
}

enum Line {
    Stream(TcpStream),
    Datagrams(UdpSocket),
    /// The next question opens one.
    Closed,
}

struct Connection {
    line: Line,
    /// Bytes that are still to come.
    missing: usize,
    /// Of datagrams: the question's number and value, and when it was asked.
    number: u16,
    key: usize,
    asked: Instant,
}

impl Connection {
    fn new(load: &Load) -> Result<Connection> {
        let line = match load.carrier {
            Carrier::Kept => {
                let stream = TcpStream::connect(("127.0.0.1", load.port))?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Line::Stream(stream)
            }
            Carrier::Fresh => Line::Closed,
            Carrier::Datagrams => {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(("127.0.0.1", load.udp))?;
                socket.set_nonblocking(true)?;
                Line::Datagrams(socket)
            }
        };
        Ok(Connection {
            line,
            missing: 0,
            number: 0,
            key: 0,
            asked: Instant::now(),
        })
    }

    /// Asks for values at random, as many as go together.
    fn ask(&mut self, load: &Load, numbers: &mut Numbers) -> Result<()> {
        self.missing = answer(load) * load.depth;
        match &mut self.line {
            Line::Stream(stream) => {
                let keys = (0..load.depth).map(|_| get(numbers.next(load.count)));
                stream.write_all(keys.collect::<String>().as_bytes())?;
            }
            Line::Closed => {
                let mut stream = TcpStream::connect(("127.0.0.1", load.port))?;
                stream.write_all(get(numbers.next(load.count)).as_bytes())?;
                stream.set_nonblocking(true)?;
                // Closed with a reset: else the number of the port would be kept for a minute.
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
                self.line = Line::Stream(stream);
            }
            Line::Datagrams(_) => {
                self.key = numbers.next(load.count);
                self.say(load)?;
            }
        }
        Ok(())
    }

    /// Sends the question as a datagram, under another number.
    fn say(&mut self, load: &Load) -> Result<()> {
        self.number = self.number.wrapping_add(1);
        (self.missing, self.asked) = (answer(load), Instant::now());
        let mut request = vec![0; FRAME];
        request[..2].copy_from_slice(&self.number.to_be_bytes());
        request[4..6].copy_from_slice(&1u16.to_be_bytes());
        request.extend_from_slice(get(self.key).as_bytes());
        if let Line::Datagrams(socket) = &self.line {
            socket.send(&request)?;
        }
        Ok(())
    }

    /// Looks whether the answer is there, whole.
    fn hear(&mut self, load: &Load, room: &mut [u8]) -> Result<bool> {
        let got = match &mut self.line {
            Line::Stream(stream) if load.copies => stream.read(room),
            Line::Stream(stream) => stream::drop_unread(stream, self.missing),
            Line::Datagrams(socket) => match socket.recv(room) {
                Ok(got) if got > FRAME && room[..2] == self.number.to_be_bytes() => Ok(got - FRAME),
                // A late part of an answer that was taken for lost.
                Ok(_) => return Ok(false),
                Err(_) if self.asked.elapsed() > LOST => {
                    self.say(load)?;
                    return Ok(false);
                }
                Err(error) => Err(error),
            },
            Line::Closed => bail!("not connected"),
        };
        match got {
            Ok(0) => bail!("the server is gone"),
            Ok(got) => {
                ensure!(got <= self.missing, "more came than was asked for");
                self.missing -= got;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        let is_whole = self.missing == 0;
        if is_whole && load.carrier == Carrier::Fresh {
            self.line = Line::Closed;
        }
        Ok(is_whole)
    }
}

/// Processor time of another process so far, ns.
pub fn cpu_of(pid: u32) -> Result<u64> {
    // clock_getcpuclockid(3).
    let clock = (!i32::try_from(pid)? << 3) | 2;
    // SAFETY: plain numbers.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: writes one timespec.
    let done = unsafe { libc::clock_gettime(clock, &raw mut time) };
    ensure!(
        done == 0,
        "the server's processor time: {}",
        std::io::Error::last_os_error()
    );
    Ok(u64::try_from(time.tv_sec)? * 1_000_000_000 + u64::try_from(time.tv_nsec)?)
}
