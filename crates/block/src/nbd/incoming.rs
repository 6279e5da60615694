//! Input from one client: many short requests in one system call, and the bytes of a long one directly to their place.

use std::io::{self, ErrorKind, IoSliceMut, Read};

/// Bytes that are taken ahead. They are copied once more: few enough for long writes.
const AHEAD: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Incoming<R> {
    from: R,
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<R: Read> Incoming<R> {
    pub(super) fn new(from: R) -> Incoming<R> {
        Incoming {
            from,
            ahead: vec![0; AHEAD].into(),
            start: 0,
            end: 0,
        }
    }

    /// Returns how many bytes are here.
    pub(super) fn here(&self) -> usize {
        self.end - self.start
    }

    /// Waits for more bytes, while less than a request is here. Returns false if the client has closed and no byte is
    /// here.
    pub(super) fn wait(&mut self) -> io::Result<bool> {
        self.ahead.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.here());
        match retry(|| self.from.read(&mut self.ahead[self.end..]))? {
            0 if self.end > 0 => Err(ErrorKind::UnexpectedEof.into()),
            more => {
                self.end += more;
                Ok(more > 0)
            }
        }
    }
}

impl<R: Read> Read for Incoming<R> {
    /// Reads the bytes that are here. Otherwise reads from the socket directly to `to`, and keeps the bytes that come
    /// with them.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.here() == 0 {
            let mut both = [IoSliceMut::new(to), IoSliceMut::new(&mut self.ahead)];
            let came = self.from.read_vectored(&mut both)?;
            (self.start, self.end) = (0, came.saturating_sub(to.len()));
            return Ok(came.min(to.len()));
        }
        let len = self.here().min(to.len());
        to[..len].copy_from_slice(&self.ahead[self.start..self.start + len]);
        self.start += len;
        Ok(len)
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn every_byte_comes_once_and_in_order_however_it_is_cut() {
        let (mut theirs, ours) = UnixStream::pair().expect("a pair");
        let sent: Vec<u8> = (0..100_000u32)
            .map(|n| n.wrapping_mul(31).to_le_bytes()[1])
            .collect();
        let copy = sent.clone();
        let sender = std::thread::spawn(move || {
            use std::io::Write;
            for piece in copy.chunks(7001) {
                theirs.write_all(piece).expect("sending");
            }
        });
        let mut from = Incoming::new(ours);
        let mut came = Vec::new();
        for len in [28, 1, 5000, 28, 40_000, 3].into_iter().cycle() {
            if len == 28 {
                while from.here() < 28 && came.len() + 28 <= sent.len() {
                    assert!(from.wait().expect("waiting"));
                }
            }
            let mut piece = vec![0; len.min(sent.len() - came.len())];
            from.read_exact(&mut piece).expect("reading");
            came.extend(piece);
            if came.len() == sent.len() {
                break;
            }
        }
        sender.join().expect("the sender");
        assert!(came == sent);
        assert!(!from.wait().expect("the end"));
    }

    #[test]
    fn half_a_request_at_the_end_is_an_error() {
        let mut from = Incoming::new(&[1u8; 5][..]);
        assert!(from.wait().expect("five bytes"));
        assert!(from.wait().is_err());
    }
}
