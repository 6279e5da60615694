//! The server's side of iperf3's protocol, over smoltcp sockets: one test at a time, TCP or UDP, the client sends
//! (or, with `-R` over TCP, receives).
//!
//! Control connection: a 37-byte cookie, then states of one byte; parameters and results are JSON behind a 32-bit
//! big-endian length (iperf3, `docs/dev.rst` and `src/iperf_api.h` name the states).

use serde::Deserialize;
use serde_json::json;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use std::time::Instant;

/// The default port of iperf3.
pub const PORT: u16 = 5201;
const COOKIE: usize = 37;
/// Longest JSON that is believed, bytes.
const MAX_JSON: usize = 64 << 10;
/// Parallel streams that can be served.
const STREAMS: usize = 8;
const UDP_REPLY: u32 = 0x3938_3736;
/// The length of a UDP datagram that is not data.
const UDP_HELLO: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    Start = 1,
    Running = 2,
    End = 4,
    Parameters = 9,
    Streams = 10,
    Results = 13,
    Display = 14,
    Done = 16,
}

#[derive(Deserialize, Debug, Default)]
struct Parameters {
    #[serde(default)]
    udp: bool,
    #[serde(default)]
    parallel: Option<usize>,
    #[serde(default)]
    reverse: bool,
}

/// The bytes of a finished test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Bytes of payload.
    pub bytes: u64,
    /// Number of received UDP datagrams.
    pub datagrams: u64,
}

#[derive(Debug, Default)]
struct Stream {
    tcp: Option<SocketHandle>,
    bytes: u64,
    datagrams: u64,
    /// Highest datagram number seen.
    highest: u64,
}

/// The message that the server waits for.
#[derive(Debug)]
enum Step {
    Cookie,
    Parameters,
    Streams,
    Running(Instant),
    Results(Instant),
    Done,
}

/// One server: sockets in the set that it was made with.
#[derive(Debug)]
pub struct Iperf {
    sockets: Vec<SocketHandle>,
    udp: SocketHandle,
    control: Option<SocketHandle>,
    step: Step,
    input: Vec<u8>,
    parameters: Parameters,
    streams: Vec<Stream>,
    finished: Vec<Moved>,
}

impl Iperf {
    /// Adds its sockets to the set; `window` is the size of each TCP buffer, bytes.
    pub fn new(set: &mut SocketSet<'_>, window: usize) -> Self {
        let sockets = (0..=STREAMS)
            .map(|_| set.add(tcp_socket(window, window)))
            .collect();
        let udp = set.add(udp_socket(1024, 4 << 20));
        Self {
            sockets,
            udp,
            control: None,
            step: Step::Cookie,
            input: Vec::new(),
            parameters: Parameters::default(),
            streams: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Takes the tests that have ended since the last call.
    pub fn finished(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.finished)
    }

    /// Takes the messages that have come, and answers.
    pub fn serve(&mut self, set: &mut SocketSet<'_>) {
        for &handle in &self.sockets {
            let socket = set.get_mut::<tcp::Socket<'_>>(handle);
            if !socket.is_open() && socket.listen(PORT).is_err() {
                socket.abort();
            }
        }
        let udp = set.get_mut::<udp::Socket<'_>>(self.udp);
        if !udp.is_open() {
            // Fails only for port 0.
            let _ = udp.bind(PORT);
        }
        if self.control.is_none() {
            let taken = |handle: &SocketHandle| set.get::<tcp::Socket<'_>>(*handle).may_recv();
            self.control = self.sockets.iter().copied().find(taken);
        }
        let Some(control) = self.control else {
            return;
        };
        self.read(set, control);
        while self.advance(set, control) {}
        self.pump(set);
        if !set.get::<tcp::Socket<'_>>(control).may_recv() {
            self.forget(set);
        }
    }

    /// Makes one step, if it can be made now.
    fn advance(&mut self, set: &mut SocketSet<'_>, control: SocketHandle) -> bool {
        match self.step {
            Step::Cookie => {
                let come = self.take(COOKIE).is_some();
                if come {
                    say(set, control, Message::Parameters);
                    self.step = Step::Parameters;
                }
                come
            }
            Step::Parameters => {
                let Some(text) = self.take_json() else {
                    return false;
                };
                self.parameters = serde_json::from_slice(&text).unwrap_or_default();
                self.streams.clear();
                say(set, control, Message::Streams);
                self.step = Step::Streams;
                true
            }
            Step::Streams => {
                self.accept(set, control);
                let wanted = self.parameters.parallel.unwrap_or(1).clamp(1, STREAMS);
                let all = self.streams.len() == wanted;
                if all {
                    say(set, control, Message::Start);
                    say(set, control, Message::Running);
                    self.step = Step::Running(Instant::now());
                }
                all
            }
            Step::Running(begun) => {
                // A single byte; any other than the end means that the client gives up.
                let Some(state) = self.take(1) else {
                    return false;
                };
                if state[0] != Message::End as u8 {
                    self.forget(set);
                    return false;
                }
                self.pump(set);
                // A client that receives reads whole blocks: the end of the stream wakes it.
                for handle in self.streams.iter().filter_map(|stream| stream.tcp) {
                    set.get_mut::<tcp::Socket<'_>>(handle).close();
                }
                say(set, control, Message::Results);
                self.step = Step::Results(begun);
                true
            }
            Step::Results(begun) => {
                if self.take_json().is_none() {
                    return false;
                }
                let results = self.results(begun).to_string();
                let length = u32::try_from(results.len()).unwrap_or(u32::MAX);
                write(set, control, &length.to_be_bytes());
                write(set, control, results.as_bytes());
                say(set, control, Message::Display);
                self.step = Step::Done;
                true
            }
            Step::Done => {
                let over = self
                    .take(1)
                    .is_some_and(|state| state[0] == Message::Done as u8);
                if over {
                    let sum = |of: fn(&Stream) -> u64| self.streams.iter().map(of).sum();
                    self.finished.push(Moved {
                        bytes: sum(|s| s.bytes),
                        datagrams: sum(|s| s.datagrams),
                    });
                    self.forget(set);
                }
                false
            }
        }
    }

    /// Accepts waiting streams: a connection with the cookie, or a UDP hello.
    fn accept(&mut self, set: &mut SocketSet<'_>, control: SocketHandle) {
        if self.parameters.udp {
            let udp = set.get_mut::<udp::Socket<'_>>(self.udp);
            while let Ok((hello, from)) = udp.recv() {
                if hello.len() == UDP_HELLO {
                    self.streams.push(Stream::default());
                    // There is always room: nothing else is sent.
                    let _ = udp.send_slice(&UDP_REPLY.to_ne_bytes(), from);
                }
            }
            return;
        }
        for &handle in &self.sockets {
            let ours = |stream: &Stream| stream.tcp == Some(handle);
            if handle == control || self.streams.iter().any(ours) {
                continue;
            }
            let socket = set.get_mut::<tcp::Socket<'_>>(handle);
            if socket.recv_queue() >= COOKIE && socket.recv_slice(&mut [0; COOKIE]).is_ok() {
                self.streams.push(Stream {
                    tcp: Some(handle),
                    ..Stream::default()
                });
            }
        }
    }

    /// Moves the test's data: takes and counts it, or with `-R` makes it.
    fn pump(&mut self, set: &mut SocketSet<'_>) {
        if !matches!(self.step, Step::Running(_) | Step::Results(_)) {
            return;
        }
        if self.parameters.udp {
            let udp = set.get_mut::<udp::Socket<'_>>(self.udp);
            let Some(stream) = self.streams.first_mut() else {
                return;
            };
            while let Ok((data, _)) = udp.recv() {
                if data.len() > UDP_HELLO + 8 {
                    let number = u32::from_be_bytes([data[8], data[9], data[10], data[11]]);
                    stream.highest = stream.highest.max(u64::from(number));
                    stream.bytes += data.len() as u64;
                    stream.datagrams += 1;
                }
            }
            return;
        }
        for stream in &mut self.streams {
            let Some(handle) = stream.tcp else { continue };
            let socket = set.get_mut::<tcp::Socket<'_>>(handle);
            if self.parameters.reverse {
                if matches!(self.step, Step::Running(_)) {
                    // The buffer's bytes are sent as they are: the bytes of a test mean nothing.
                    while let Ok(bytes @ 1..) = socket.send(|room| (room.len(), room.len())) {
                        stream.bytes += bytes as u64;
                    }
                }
            } else {
                while let Ok(bytes @ 1..) = socket.recv(|data| (data.len(), data.len())) {
                    stream.bytes += bytes as u64;
                }
            }
        }
    }

    fn results(&self, begun: Instant) -> serde_json::Value {
        let seconds = begun.elapsed().as_secs_f64();
        let streams: Vec<_> = self
            .streams
            .iter()
            .enumerate()
            .map(|(index, stream)| {
                json!({
                    // iperf3 numbers its streams 1, 3, 4, 5, ...
                    "id": if index == 0 { 1 } else { index + 2 },
                    "bytes": stream.bytes,
                    "retransmits": -1,
                    "jitter": 0.0,
                    "errors": stream.highest.saturating_sub(stream.datagrams),
                    "packets": stream.highest,
                    "start_time": 0.0,
                    "end_time": seconds,
                })
            })
            .collect();
        json!({
            "cpu_util_total": 0.0,
            "cpu_util_user": 0.0,
            "cpu_util_system": 0.0,
            "sender_has_retransmits": if self.parameters.reverse { 0 } else { -1 },
            "streams": streams,
        })
    }

    /// Forgets a test that is over, or given up.
    fn forget(&mut self, set: &mut SocketSet<'_>) {
        for stream in self.streams.drain(..) {
            if let Some(handle) = stream.tcp {
                set.get_mut::<tcp::Socket<'_>>(handle).abort();
            }
        }
        if let Some(control) = self.control.take() {
            set.get_mut::<tcp::Socket<'_>>(control).close();
        }
        self.input.clear();
        self.step = Step::Cookie;
    }

    fn read(&mut self, set: &mut SocketSet<'_>, control: SocketHandle) {
        let socket = set.get_mut::<tcp::Socket<'_>>(control);
        while self.input.len() < MAX_JSON {
            let more = socket.recv(|data| {
                self.input.extend_from_slice(data);
                (data.len(), data.len())
            });
            if !matches!(more, Ok(1..)) {
                break;
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        (self.input.len() >= bytes).then(|| self.input.drain(..bytes).collect())
    }

    fn take_json(&mut self) -> Option<Vec<u8>> {
        let length = self.input.get(..4)?;
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if self.input.len() < 4 + length.min(MAX_JSON) {
            return None;
        }
        self.take(4)?;
        self.take(length.min(MAX_JSON))
    }
}

fn say(set: &mut SocketSet<'_>, control: SocketHandle, state: Message) {
    write(set, control, &[state as u8]);
}

/// Writes a control message, which is far smaller than the socket's buffer.
fn write(set: &mut SocketSet<'_>, control: SocketHandle, bytes: &[u8]) {
    let socket = set.get_mut::<tcp::Socket<'_>>(control);
    if socket.send_slice(bytes) != Ok(bytes.len()) {
        socket.abort();
    }
}

/// Makes a TCP socket with so many bytes each way.
pub(crate) fn tcp_socket(receive: usize, send: usize) -> tcp::Socket<'static> {
    let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
    let mut socket = tcp::Socket::new(buffer(receive), buffer(send));
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None);
    socket
}

/// Makes a UDP socket with room for a number of datagrams and bytes each way.
pub(crate) fn udp_socket(datagrams: usize, bytes: usize) -> udp::Socket<'static> {
    let buffer =
        || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; datagrams], vec![0; bytes]);
    udp::Socket::new(buffer(), buffer())
}
