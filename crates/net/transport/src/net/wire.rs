//! The bytes between two machines: the handshake, then records. A pure codec.
//!
//! All numbers are little-endian.
//!
//! | handshake | bytes |
//! |---|---|
//! | the client says | magic (8), version (2), 1 new or 2 going on (1), length of the name (1), session (16), frames taken (8), name |
//! | the listener says | magic (8), version (2), [`Status`] (1), 0 (1), its process's number (16), frames taken (8) |
//!
//! | record | bytes |
//! |---|---|
//! | header | [`FrameKind`] (1), 0 (1), length of the frame (2), 0 (4), length of the buffer's bytes (8), number (8), frames taken (8) |
//! | then | the frame, the buffer's bytes |

use super::address::MAX_NAME_BYTES;

const MAGIC: [u8; 8] = *b"tranship";
const VERSION: u16 = 1;

/// A number that nobody guesses.
pub(super) type Secret = [u8; 16];

/// Length of the fixed part of each side's first message.
pub(super) const HELLO_BYTES: usize = 36;
/// A record's header.
pub(super) const HEADER_BYTES: usize = 32;
/// The longest frame, without the bytes of a buffer.
pub(super) const MAX_FRAME_BYTES: usize = 4096;
/// The largest buffer.
pub(super) const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

/// Handshake message of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// Goes on with a session that lost its connection.
    pub again: bool,
    pub session: Secret,
    /// Number of frames that the client has taken.
    pub taken: u64,
    pub name: String,
}

/// Reason for which the listener refuses a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Welcome = 0,
    NoSuchName = 1,
    OtherVersion = 2,
    UnknownSession = 3,
    Busy = 4,
}

/// Handshake answer of the listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub status: Status,
    pub process: Secret,
    pub taken: u64,
}

/// The bytes are not a message of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Malformed {
    /// The bytes are not of this protocol, or have impossible lengths.
    Nonsense,
    /// The bytes are of another version of this protocol.
    Version(u16),
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn start() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

fn check_start(bytes: &[u8; HELLO_BYTES]) -> Result<(), Malformed> {
    if bytes[..8] != MAGIC {
        return Err(Malformed::Nonsense);
    }
    match u16::from_le_bytes(array(bytes, 8)) {
        VERSION => Ok(()),
        other => Err(Malformed::Version(other)),
    }
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = start();
        out.push(if self.again { 2 } else { 1 });
        out.push(u8::try_from(self.name.len()).unwrap_or(u8::MAX));
        out.extend(self.session);
        out.extend(self.taken.to_le_bytes());
        out.extend(self.name.as_bytes());
        out
    }

    /// Decodes the fixed part: everything but the name, and the name's length.
    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<(Hello, usize), Malformed> {
        check_start(bytes)?;
        let again = match bytes[10] {
            1 => false,
            2 => true,
            _ => return Err(Malformed::Nonsense),
        };
        let len = usize::from(bytes[11]);
        if len == 0 || len > MAX_NAME_BYTES {
            return Err(Malformed::Nonsense);
        }
        let (session, taken) = (array(bytes, 12), u64::from_le_bytes(array(bytes, 28)));
        let name = String::new();
        let hello = Hello {
            again,
            session,
            taken,
            name,
        };
        Ok((hello, len))
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = start();
        out.extend([self.status as u8, 0]);
        out.extend(self.process);
        out.extend(self.taken.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Answer, Malformed> {
        check_start(bytes)?;
        let status = match bytes[10] {
            0 => Status::Welcome,
            1 => Status::NoSuchName,
            2 => Status::OtherVersion,
            3 => Status::UnknownSession,
            4 => Status::Busy,
            _ => return Err(Malformed::Nonsense),
        };
        Ok(Answer {
            status,
            process: array(bytes, 12),
            taken: u64::from_le_bytes(array(bytes, 28)),
        })
    }
}

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// A frame, and the bytes of a buffer.
    Frame = 1,
    /// A report without a frame: how many frames were taken, and that the end is alive.
    News = 2,
    /// The last record of the session.
    Bye = 3,
}

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub kind: FrameKind,
    pub frame_bytes: usize,
    pub payload_bytes: usize,
    /// Number of the frame, from 0; without a frame, the number of the next one.
    pub number: u64,
    /// Number of frames of the other end that its program has taken.
    pub taken: u64,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = self.kind as u8;
        let len = u16::try_from(self.frame_bytes).unwrap_or(u16::MAX);
        out[2..4].copy_from_slice(&len.to_le_bytes());
        out[8..16].copy_from_slice(&(self.payload_bytes as u64).to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..].copy_from_slice(&self.taken.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let kind = match bytes[0] {
            1 => FrameKind::Frame,
            2 => FrameKind::News,
            3 => FrameKind::Bye,
            _ => return None,
        };
        let frame_bytes = usize::from(u16::from_le_bytes(array(bytes, 2)));
        let payload = u64::from_le_bytes(array(bytes, 8));
        let fits = match kind {
            FrameKind::Frame => (1..=MAX_FRAME_BYTES).contains(&frame_bytes),
            FrameKind::News | FrameKind::Bye => frame_bytes == 0 && payload == 0,
        };
        let zeros = bytes[1] == 0 && bytes[4..8] == [0; 4];
        if !fits || !zeros || payload > MAX_PAYLOAD_BYTES {
            return None;
        }
        Some(Header {
            kind,
            frame_bytes,
            payload_bytes: usize::try_from(payload).ok()?,
            number: u64::from_le_bytes(array(bytes, 16)),
            taken: u64::from_le_bytes(array(bytes, 24)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        let hello = Hello {
            again: true,
            session: [7; 16],
            taken: 1 << 40,
            name: "video".to_owned(),
        };
        let bytes = hello.encode();
        let fixed: [u8; HELLO_BYTES] = array(&bytes, 0);
        let (mut got, len) = Hello::decode(&fixed).expect("hello");
        got.name = String::from_utf8_lossy(&bytes[HELLO_BYTES..]).into_owned();
        assert_eq!((got, len), (hello, 5));
        let answer = Answer {
            status: Status::UnknownSession,
            process: [9; 16],
            taken: 3,
        };
        let said = array(&answer.encode(), 0);
        assert_eq!(Answer::decode(&said), Ok(answer));
        for (at, value, wrong) in [
            (0, b'x', Malformed::Nonsense),
            (8, 9, Malformed::Version(9)),
            (10, 7, Malformed::Nonsense),
            (11, 0, Malformed::Nonsense),
        ] {
            let mut bytes = fixed;
            bytes[at] = value;
            assert_eq!(Hello::decode(&bytes), Err(wrong));
        }
        let header = Header {
            kind: FrameKind::Frame,
            frame_bytes: 4096,
            payload_bytes: 1 << 30,
            number: 5,
            taken: u64::MAX,
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for (at, value) in [
            (0, 0),
            (0, 4),
            (0, 2),
            (1, 1),
            (3, 0x11),
            (5, 1),
            (11, 0x41),
        ] {
            let mut bytes = bytes;
            bytes[at] = value;
            assert_eq!(Header::decode(&bytes), None, "byte {at} is {value}");
        }
    }
}
