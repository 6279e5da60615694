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
