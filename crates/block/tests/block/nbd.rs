//! A plain NBD client: enough to be right, and enough to be wrong.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const ZERO: u16 = 6;

pub struct Client {
    pub stream: UnixStream,
    pub size: u64,
    cookie: u64,
}

fn eight(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut whole = 0x2560_9513u32.to_be_bytes().to_vec();
    whole.extend(flags.to_be_bytes());
    whole.extend(command.to_be_bytes());
    whole.extend(cookie.to_be_bytes());
    whole.extend(offset.to_be_bytes());
    whole.extend(len.to_be_bytes());
    whole
}

impl Client {
    /// The whole handshake, with the oldest option.
    pub fn connect(path: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(path)?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let size = eight(&mut stream)?;
        stream.read_exact(&mut [0; 2])?;
        Ok(Client {
            stream,
            size,
            cookie: 0,
        })
    }

    /// Connects with replies in chunks.
    pub fn connect_with_chunks(path: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(path)?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3u32.to_be_bytes())?;
        stream.write_all(b"IHAVEOPT\0\0\0\x08\0\0\0\0")?;
        stream.read_exact(&mut [0; 20])?;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let size = eight(&mut stream)?;
        stream.read_exact(&mut [0; 2])?;
        Ok(Client {
            stream,
            size,
            cookie: 0,
        })
    }

    /// A read that is answered in chunks, in any order, each byte once.
    pub fn read_chunks(&mut self, offset: u64, to: &mut [u8]) -> io::Result<u32> {
        let len = u32::try_from(to.len()).expect("short");
        let number = self.send(READ, 0, offset, len, &[])?;
        let (mut came, mut error) = (0, 0);
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head)?;
            assert_eq!(head[..4], 0x668e_33ef_u32.to_be_bytes(), "a chunk");
            let [done, kind] = [head[5], head[7]];
            assert_eq!(head[8..16], number.to_be_bytes());
            let len = u32::from_be_bytes(head[16..].try_into().expect("four")) as usize;
            match kind {
                1 => {
                    let at = usize::try_from(eight(&mut self.stream)? - offset).expect("inside");
                    self.stream.read_exact(&mut to[at..at + len - 8])?;
                    came += len - 8;
                }
                _ => {
                    let mut text = vec![0; len];
                    self.stream.read_exact(&mut text)?;
                    if let Some(number) = text.first_chunk() {
                        error = u32::from_be_bytes(*number);
                    }
                }
            }
            if done == 1 {
                assert!(error != 0 || came == to.len(), "{came} bytes");
                return Ok(error);
            }
        }
    }

    /// Sends a request; gives its number.
    pub fn send(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        len: u32,
        bytes: &[u8],
    ) -> io::Result<u64> {
        self.cookie += 1;
        let mut whole = request(command, flags, self.cookie, offset, len);
        whole.extend(bytes);
        self.stream.write_all(&whole)?;
        Ok(self.cookie)
    }

    /// The next reply: its error, and the number of its request.
    pub fn reply(&mut self) -> io::Result<(u32, u64)> {
        let first = eight(&mut self.stream)?;
        assert_eq!(first >> 32, 0x6744_6698, "a simple reply");
        Ok((
            u32::try_from(first & 0xffff_ffff).expect("masked"),
            eight(&mut self.stream)?,
        ))
    }

    /// One request, alone.
    pub fn ask(&mut self, command: u16, offset: u64, len: u32, bytes: &[u8]) -> io::Result<u32> {
        let number = self.send(command, 0, offset, len, bytes)?;
        let (error, of) = self.reply()?;
        assert_eq!(of, number);
        Ok(error)
    }

    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> io::Result<u32> {
        let len = u32::try_from(to.len()).expect("short");
        match self.ask(READ, offset, len, &[])? {
            0 => self.stream.read_exact(to).map(|()| 0),
            error => Ok(error),
        }
    }
}

/// One answer's chunk: whether it is the last, its kind, the offset of its request (extended headers), and its bytes.
pub type Chunk = (bool, u16, Option<u64>, Vec<u8>);

/// A client that asks for holes, with extended headers or without.
pub struct Wide {
    stream: UnixStream,
    extended: bool,
}

impl Wide {
    pub fn connect(path: &Path, extended: bool) -> io::Result<Wide> {
        let mut stream = UnixStream::connect(path)?;
        stream.read_exact(&mut [0; 18])?;
        stream.write_all(&3u32.to_be_bytes())?;
        let mut wide = Wide { stream, extended };
        assert_eq!(
            wide.option(if extended { 11 } else { 8 }, &[])?,
            [(1, vec![])]
        );
        let context = b"\0\0\0\x01\0\0\0\x0fbase:allocation";
        let all = [&[0; 4], &b"\0\0\0\0"[..]].concat();
        let answers = wide.option(9, &all)?;
        assert_eq!(answers[0], (4, b"\0\0\0\0base:allocation".to_vec()));
        let asked = [&[0; 4], &context[..]].concat();
        let answers = wide.option(10, &asked)?;
        assert_eq!(answers[0], (4, b"\0\0\0\x01base:allocation".to_vec()));
        wide.stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        wide.stream.read_exact(&mut [0; 10])?;
        Ok(wide)
    }

    /// Asks for an option; gives its answers, up to the last one.
    fn option(&mut self, kind: u32, data: &[u8]) -> io::Result<Vec<(u32, Vec<u8>)>> {
        self.stream.write_all(b"IHAVEOPT")?;
        self.stream.write_all(&kind.to_be_bytes())?;
        let len = u32::try_from(data.len()).expect("short");
        self.stream.write_all(&len.to_be_bytes())?;
        self.stream.write_all(data)?;
        let mut all = Vec::new();
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head)?;
            let four = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
            let mut data = vec![0; four(16) as usize];
            self.stream.read_exact(&mut data)?;
            all.push((four(12), data));
            if four(12) == 1 || four(12) >> 31 == 1 {
                return Ok(all);
            }
        }
    }

    /// One request, alone; gives the chunks of its answer.
    pub fn ask(
        &mut self,
        command: u16,
        flags: u16,
        (offset, len): (u64, u64),
        bytes: &[u8],
    ) -> io::Result<Vec<Chunk>> {
        let mut whole = match self.extended {
            true => 0x21e4_1c71_u32.to_be_bytes().to_vec(),
            false => 0x2560_9513_u32.to_be_bytes().to_vec(),
        };
        whole.extend(flags.to_be_bytes());
        whole.extend(command.to_be_bytes());
        whole.extend(7u64.to_be_bytes());
        whole.extend(offset.to_be_bytes());
        match self.extended {
            true => whole.extend(len.to_be_bytes()),
            false => whole.extend(u32::try_from(len).expect("short").to_be_bytes()),
        }
        whole.extend(bytes);
        self.stream.write_all(&whole)?;
        let mut all = Vec::new();
        loop {
            let mut head = vec![0; if self.extended { 32 } else { 20 }];
            self.stream.read_exact(&mut head)?;
            let magic = if self.extended {
                0x6e8a_278c_u32
            } else {
                0x668e_33ef
            };
            assert_eq!(head[..4], magic.to_be_bytes(), "a chunk");
            assert_eq!(head[8..16], 7u64.to_be_bytes());
            let eight = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("eight"));
            let (of, len) = match self.extended {
                true => (Some(eight(16)), eight(24)),
                false => (None, eight(12) & 0xffff_ffff),
            };
            let mut bytes = vec![0; usize::try_from(len).expect("short")];
            self.stream.read_exact(&mut bytes)?;
            let kind = u16::from_be_bytes([head[6], head[7]]);
            all.push((head[5] == 1, kind, of, bytes));
            if head[5] == 1 {
                return Ok(all);
            }
        }
    }
}
