//! Kit of every test here: two ends in this process, which send frames with buffers and check every byte that comes.

use std::any::Any;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tranship_sys::stream;
use tranship_transport::net::{Credentials, Net, Timing, certificate};
use tranship_transport::{Backend, Error, Source, Target, Transport};

pub const PAGE: usize = 4096;
pub const DAY: Duration = Duration::from_secs(86400);

/// Quick enough for tests, slow enough for a loaded machine.
pub fn timing() -> Timing {
    Timing {
        keepalive: Duration::from_millis(200),
        idle_timeout: Duration::from_secs(2),
        grace: Duration::from_secs(60),
        handshake: Duration::from_secs(30),
        linger: Duration::from_secs(30),
    }
}

/// Returns time limits with frequent keepalives, and with an idle timeout that is longer than any loaded machine delays
/// a thread.
pub fn calm() -> Timing {
    Timing {
        idle_timeout: Duration::from_secs(6),
        ..timing()
    }
}

/// Longer than any idle timeout.
pub fn long(mut meanwhile: impl FnMut()) {
    let since = Instant::now();
    while since.elapsed() < calm().idle_timeout + Duration::from_secs(2) {
        meanwhile();
    }
}

/// An authority, and credentials of it for this machine.
pub fn credentials() -> Credentials {
    let ca = certificate::authority("tests", DAY).expect("authority");
    issued(&ca, "tests", &["127.0.0.1"])
}

pub fn issued(ca: &certificate::Issued, name: &str, addresses: &[&str]) -> Credentials {
    let addresses: Vec<String> = addresses.iter().map(|a| (*a).to_owned()).collect();
    let own = certificate::issue(ca, name, &addresses, DAY).expect("issue");
    Credentials::new(ca.cert.as_bytes(), own.cert.as_bytes(), own.key.as_bytes())
        .expect("credentials")
}

pub fn plain() -> Net {
    Net::plain(timing()).expect("net")
}

/// One with and one without TLS.
pub fn both() -> [Net; 2] {
    [plain(), Net::tls(credentials(), timing()).expect("net")]
}

pub fn open(net: &Net) -> SocketAddr {
    net.open("127.0.0.1:0".parse().expect("address"))
        .expect("open")
}

/// Bytes that no other message has, nor any other page of it.
pub fn pattern(round: u32, bytes: usize) -> Vec<u8> {
    let word = round.wrapping_mul(0x9e37_79b9);
    let page: Vec<u8> = (0..1024u32)
        .flat_map(|at| (word ^ at).to_le_bytes())
        .collect();
    let mut all = page.repeat(bytes.div_ceil(PAGE));
    for (number, page) in (0u32..).zip(all.chunks_mut(PAGE)) {
        page[..4].copy_from_slice(&(word ^ !number).to_le_bytes());
    }
    all.truncate(bytes);
    all
}

/// Destination of arriving bytes.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl Target for Memory {
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn receive(&mut self, offset: usize, socket: BorrowedFd<'_>) -> io::Result<usize> {
        stream::recv(socket, &mut self.0[offset..])
    }
}

/// A frame, and the bytes of its buffer.
pub type Came = (Vec<u8>, Vec<u8>);

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    pub transport: Box<dyn Transport>,
    /// Frame that has come except for its buffer's bytes.
    arriving: Option<(Vec<u8>, Memory)>,
}

impl End {
    pub fn new(transport: Box<dyn Transport>) -> End {
        End {
            transport,
            arriving: None,
        }
    }

    pub fn connect(net: &Net, address: &str) -> End {
        let made = net.connect(address);
        End::new(made.unwrap_or_else(|error| panic!("{error}")))
    }

    pub fn try_send(&mut self, frame: &[u8], bytes: Vec<u8>) -> Result<(), Error> {
        let buffer = (!bytes.is_empty()).then(|| Arc::new(bytes) as Arc<dyn Source>);
        self.transport.send(frame, buffer.as_ref())
    }

    pub fn send(&mut self, frame: &[u8], bytes: Vec<u8>) {
        let sent = self.try_send(frame, bytes);
        sent.unwrap_or_else(|error| panic!("{error}: {:?}", self.transport.why()));
    }

    /// The next frame with all of its bytes, if it is there.
    pub fn try_look(&mut self) -> Result<Option<Came>, Error> {
        if self.arriving.is_none() {
            let Some((frame, follows)) = self.transport.recv()? else {
                return Ok(None);
            };
            if follows == 0 {
                return Ok(Some((frame.to_vec(), Vec::new())));
            }
            self.arriving = Some((frame.to_vec(), Memory(vec![0; follows])));
        }
        let Some((_, memory)) = &mut self.arriving else {
            return Ok(None);
        };
        if !self.transport.fill(memory)? {
            return Ok(None);
        }
        let came = self.arriving.take();
        Ok(came.map(|(frame, memory)| (frame, memory.0)))
    }

    #[track_caller]
    pub fn look(&mut self) -> Option<Came> {
        match self.try_look() {
            Ok(came) => came,
            Err(error) => panic!("{error:?}: {:?}", self.transport.why()),
        }
    }

    #[track_caller]
    pub fn next(&mut self) -> Came {
        loop {
            match self.look() {
                Some(came) => return came,
                None => self.wait(),
            }
        }
    }

    pub fn wait(&mut self) {
        self.transport.wait(Duration::from_millis(100));
    }

    /// Looks until there is an end to it, whatever comes before that, and says which.
    #[track_caller]
    pub fn over(&mut self) -> Error {
        loop {
            match self.try_look() {
                Ok(Some(_)) => {}
                Ok(None) => self.wait(),
                Err(error) => return error,
            }
        }
    }
}

/// A listener, until it is dropped.
pub struct Listener {
    _listens: Box<dyn Any + Send + Sync>,
    comes: mpsc::Receiver<Box<dyn Transport>>,
}

impl Listener {
    pub fn try_accept(&self) -> Option<End> {
        self.comes.try_recv().ok().map(End::new)
    }
}

pub fn try_listen(net: &Net, address: &str) -> Result<Listener, Error> {
    let (come, comes) = mpsc::channel();
    // A connection that comes when the listener is gone is dropped.
    let _listens = net.listen(address, Arc::new(move |end| drop(come.send(end))))?;
    Ok(Listener { _listens, comes })
}

pub fn listen(net: &Net, address: &str) -> Listener {
    try_listen(net, address).expect("listen")
}

pub fn accept(listener: &Listener) -> End {
    End::new(listener.comes.recv().expect("accept"))
}

/// Returns a listener's end at a name of a port, and a client's end that connects to it `through` another address.
pub fn pair(net: &Net, at: SocketAddr, through: SocketAddr, name: &str) -> [End; 2] {
    let listener = listen(net, &format!("{at}/{name}"));
    let there = End::connect(net, &format!("{through}/{name}"));
    [accept(&listener), there]
}

/// Sends something there, and waits for it to come back.
#[track_caller]
pub fn talk([one, other]: &mut [End; 2], round: u32, bytes: usize) {
    let said = round.to_le_bytes();
    one.send(&said, pattern(round, bytes));
    let (frame, came) = other.next();
    assert_eq!(frame, said);
    assert!(came == pattern(round, bytes), "round {round}");
    other.send(&frame, came);
    let (frame, came) = one.next();
    assert_eq!(frame, said);
    assert!(came == pattern(round, bytes), "back in round {round}");
}

/// Returns the handshake message of a client.
pub fn hello(again: bool, session: [u8; 16], taken: u64, name: &str) -> Vec<u8> {
    let mut out = b"tranship\x01\x00".to_vec();
    out.extend([
        if again { 2 } else { 1 },
        u8::try_from(name.len()).expect("short"),
    ]);
    out.extend(session);
    out.extend(taken.to_le_bytes());
    out.extend(name.as_bytes());
    out
}

/// Returns the handshake answer of a listener.
pub fn answer(status: u8, process: u8, taken: u64) -> Vec<u8> {
    let mut out = b"tranship\x01\x00".to_vec();
    out.extend([status, 0]);
    out.extend([process; 16]);
    out.extend(taken.to_le_bytes());
    out
}

/// A record, without its buffer's bytes.
pub fn record(kind: u8, frame: &[u8], payload: u64, number: u64, taken: u64) -> Vec<u8> {
    let mut out = vec![kind, 0];
    out.extend(u16::try_from(frame.len()).expect("short").to_le_bytes());
    out.extend([0; 4]);
    for word in [payload, number, taken] {
        out.extend(word.to_le_bytes());
    }
    out.extend(frame);
    out
}

/// Says something and reads until the other side closes.
pub fn say(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(at).expect("connect");
    // The other side may have closed already.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

/// A connection after its handshake, new or again.
pub fn met_with(at: SocketAddr, hello: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(at).expect("connect");
    socket.write_all(hello).expect("hello");
    let mut answer = [0; 36];
    socket.read_exact(&mut answer).expect("answer");
    assert_eq!(answer[10], 0, "welcome");
    socket
}

pub fn met(at: SocketAddr, session: [u8; 16], name: &str) -> TcpStream {
    met_with(at, &hello(false, session, 0, name))
}

/// A connection from another address of this machine.
pub fn from(address: [u8; 4], at: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("socket");
    bind(&socket, &SocketAddr::from((address, 0))).expect("bind");
    connect(&socket, &at).expect("connect");
    socket.into()
}
