//! The reader's side: values of a cache server of this machine, read where they are.

use super::wire::{self, LINES, Limits, Refused, Say, TAIL, VERSION};
use crate::parse::KEY;
use std::io;
use std::time::{Duration, Instant};
use tranship_core::{
    Body, Buffer, ChannelOptions, Domain, Error, ErrorKind, INLINE_BYTES, Message, Receiver, View,
    error,
};

/// Questions under way at a time: less than there is room for in the ring, however long the keys.
const UNDER_WAY: usize = LINES as usize / KEY.div_ceil(INLINE_BYTES) / 2;

/// Reads values of a cache server (`tranship cache --shm NAME`) by reference: a value lies in memory of the server's,
/// which this process can only read.
///
/// A server that has ended, or was handed over to its successor, is [`ErrorKind::PeerGone`] or [`ErrorKind::PeerDied`]: open it
/// again.
///
/// ```
/// # mod tranship { pub use tranship_core::*; pub use tranship_cache as cache; }
/// use std::io::{BufRead, BufReader, Write};
/// use tranship::cache::{Options, Reader, Server, Share};
/// use tranship::Domain;
///
/// let domain = Domain::builder().helper_thread(true).embedded()?;
/// let socket = domain.socket_path().ok_or("no socket")?;
/// let share = Some(Share::new(domain, "values"));
/// let server = Server::start(Options { listen: "127.0.0.1:0".parse()?, share, ..Options::default() })?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"set greeting 0 0 5\r\nhello\r\n")?;
/// assert_eq!(BufReader::new(client).lines().next().ok_or("no answer")??, "STORED");
///
/// let here = Domain::builder().socket(socket).connect()?; // in life, another process
/// let mut reader = Reader::open(&here, "values")?;
/// let value = reader.get(b"greeting")?.ok_or("it was stored")?;
/// assert_eq!(value.to_vec(), b"hello");
/// # drop((value, reader));
/// # server.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    receiver: Receiver,
    limits: Limits,
    timeout: Option<Duration>,
    /// Answers may come to questions that were given up.
    broken: bool,
}

/// Value that is stored under a key, or the reason for none.
#[derive(Debug)]
pub enum Answer {
    /// The key has this value.
    Hit(Hit),
    /// No value is stored.
    Miss,
    /// The reader is not told the value, for this reason.
    Refused(Refused),
}

/// A value that is held: its bytes stay as they are, whatever becomes of the key, until this is dropped. It may outlive
/// its [`Reader`].
#[derive(Clone, Debug)]
pub struct Hit {
    value: Buffer,
    flags: u32,
    cas: u64,
    ttl: Option<u32>,
}

impl Reader {
    /// Connects to the server that shows its values under a name; waits until there is one.
    ///
    /// # Errors
    /// The manager's refusal; [`ErrorKind::Limit`] with [`Refused`] if too many others read; [`ErrorKind::PeerViolation`] if it
    /// is no cache server.
    pub fn open(domain: &Domain, name: &str) -> Result<Reader, Error> {
        Reader::connect(domain, name, None)
    }

    /// Opens a cache's values, and waits at most `timeout` for the server, here and for each answer later on.
    ///
    /// # Errors
    /// As [`Reader::open`]; [`ErrorKind::TimedOut`].
    pub fn open_within(domain: &Domain, name: &str, timeout: Duration) -> Result<Reader, Error> {
        Reader::connect(domain, name, Some(timeout))
    }

    fn connect(domain: &Domain, name: &str, timeout: Option<Duration>) -> Result<Reader, Error> {
        let options = ChannelOptions::new().lines(LINES);
        let options = timeout.map_or(options.clone(), |timeout| options.timeout(timeout));
        let mut own = Reader {
            receiver: domain.open_with::<Receiver>(name, options)?,
            limits: Limits::default(),
            timeout,
            broken: false,
        };
        let message = own.next(own.deadline())?;
        match inline(&message) {
            Some(Say::Hello(VERSION, limits)) => own.limits = limits,
            Some(Say::Hello(other, _)) => {
                let text =
                    format!("the cache server at `{name}` speaks version {other}, not {VERSION}");
                return Err(Error::new(ErrorKind::Version, text));
            }
            Some(Say::Refused(why)) => return Err(refusal(why)),
            _ => {
                let text = format!("`{name}` is no cache server's");
                return Err(Error::new(ErrorKind::PeerViolation, text));
            }
        }
        Ok(own)
    }

    /// Returns the limits for the values that the reader holds at a time.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the channel. It sets how the channel waits, or states that the server is trusted not to change a shown
    /// value ([`trust_writer`](Receiver::trust_writer)); from then on [`Hit::bytes`] gives slices. A caller that
    /// receives from it takes answers away.
    pub fn channel(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Returns the value that is stored under a key, if there is one.
    ///
    /// # Errors
    /// - [`ErrorKind::BadArgument`]: the bytes are not a key.
    /// - [`ErrorKind::Limit`] and [`ErrorKind::OutOfMemory`], with [`Refused`]: this process holds too much, or all others do.
    /// - [`ErrorKind::PeerGone`] and [`ErrorKind::PeerDied`]: the server is gone.
    /// - [`ErrorKind::TimedOut`]: the server does not answer. The reader cannot be used any more.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Hit>, Error> {
        let mut one = None;
        self.each([key], |answer| one = Some(answer))?;
        match one {
            Some(Answer::Hit(hit)) => Ok(Some(hit)),
            Some(Answer::Miss) => Ok(None),
            Some(Answer::Refused(why)) => Err(refusal(why)),
            None => Err(ErrorKind::Internal.into()),
        }
    }

    /// Returns the values that are stored under these keys, in their order; many are asked for at a time.
    ///
    /// # Errors
    /// As [`Reader::get`]; a refusal is an answer.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Answer>, Error> {
        let mut all = Vec::with_capacity(keys.len());
        self.each(keys.iter().copied(), |answer| all.push(answer))?;
        Ok(all)
    }

    fn each<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
        mut tell: impl FnMut(Answer),
    ) -> Result<(), Error> {
        let keys = keys.into_iter();
        if let Some(key) = keys.clone().find(|key| !(1..=KEY).contains(&key.len())) {
            let text = format!("a key has 1 to {KEY} bytes, and this one {}", key.len());
            return Err(Error::new(ErrorKind::BadArgument, text));
        }
        if self.broken {
            let text = "an earlier answer of the server did not come, or was none";
            return Err(Error::new(ErrorKind::ChannelState, text));
        }
        self.broken = true;
        let mut keys = keys.peekable();
        let mut under_way = 0;
        while under_way > 0 || keys.peek().is_some() {
            while under_way < UNDER_WAY
                && let Some(key) = keys.next()
            {
                for (piece, word) in wire::ask(key) {
                    let sent = self.receiver.send_back((piece, word));
                    sent.map_err(|not| not.error)?;
                }
                under_way += 1;
            }
            let message = self.next(self.deadline())?;
            tell(answer(message)?);
            under_way -= 1;
        }
        self.broken = false;
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout
            .and_then(|timeout| Instant::now().checked_add(timeout))
    }

    fn next(&mut self, deadline: Option<Instant>) -> Result<Message, Error> {
        match deadline {
            None => self.receiver.recv(),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                self.receiver.recv_timeout(left)
            }
        }
    }
}

fn inline(message: &Message) -> Option<Say> {
    match &message.body {
        Body::Inline(bytes) => Say::decode(message.word, bytes),
        _ => None,
    }
}

fn answer(message: Message) -> Result<Answer, Error> {
    let wrong = |what: &'static str| Error::new(ErrorKind::PeerViolation, what);
    match inline(&message) {
        Some(Say::Miss) => return Ok(Answer::Miss),
        Some(Say::Refused(why)) => return Ok(Answer::Refused(why)),
        Some(_) => return Err(wrong("the server answers with something else")),
        None => {}
    }
    let (Some(Say::Hit(ttl)), Body::Buffer(whole)) = (Say::decode(message.word, &[]), message.body)
    else {
        return Err(wrong("the server answers what no cache server answers"));
    };
    let Some(len) = whole.len().checked_sub(TAIL) else {
        return Err(wrong(
            "the server's answer is shorter than what is behind a value",
        ));
    };
    let tail = whole
        .view()
        .read(len)
        .map_err(error::of_kind(ErrorKind::PeerViolation))?;
    let (flags, cas) = wire::read_tail(tail);
    let value = whole.slice(..len);
    Ok(Answer::Hit(Hit {
        value,
        flags,
        cas,
        ttl,
    }))
}

fn refusal(why: Refused) -> Error {
    let kind = match why {
        Refused::NoRoom { .. } => ErrorKind::OutOfMemory,
        Refused::Late { .. } => ErrorKind::TimedOut,
        _ => ErrorKind::Limit,
    };
    Error::because(kind, "the cache server does not give it", why)
}

impl Hit {
    /// Returns the length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.value.len()
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// Returns the client's word.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Returns the unique number, as `gets` reports it.
    #[must_use]
    pub fn cas(&self) -> u64 {
        self.cas
    }

    /// Seconds until it expires, as of the answer; none: never.
    #[must_use]
    pub fn ttl(&self) -> Option<u32> {
        self.ttl
    }

    /// Returns the bytes, in the server's memory.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        self.value.view()
    }

    /// Returns the bytes as a slice, if the server is trusted ([`Reader::channel`]).
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.value.bytes()
    }

    /// Returns a private copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.value.to_vec()
    }

    /// Writes it; takes little private memory, however long it is.
    ///
    /// # Errors
    /// The error of `to`.
    pub fn write_to(&self, to: &mut impl io::Write) -> io::Result<()> {
        self.value.write_to(to)
    }

    /// Returns the buffer, to be cut, or sent to a socket by [`tranship_zcopy::Piece::Buffer`].
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        self.value
    }
}
