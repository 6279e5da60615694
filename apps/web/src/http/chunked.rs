//! Bodies in chunks (RFC 9112, section 7.1). Data is passed on by reference; sizes, extensions and trailers are taken off.

use tranship::Buffer;

/// Most bytes of a chunk's line, and of all trailers.
const LINE: u32 = 256;
const TRAILERS: u32 = 4096;

/// A body in chunks that is being read.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// In a chunk's line: size so far, its digits, bytes of the line, whether the digits are over.
    Size {
        size: u64,
        digits: u32,
        read: u32,
        over: bool,
    },
    /// Behind the CR of the line.
    SizeEnd(u64),
    Data(u64),
    DataEnd,
    DataEnd2,
    /// In the lines behind the last chunk: bytes of all, bytes of this line.
    Trailer {
        read: u32,
        line: u32,
    },
    TrailerEnd {
        read: u32,
        line: u32,
    },
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Size {
            size: 0,
            digits: 0,
            read: 0,
            over: false,
        }
    }
}

impl Chunked {
    /// Reads from `at` on, gives each piece of data to `take`, and says whether the body is complete. The error is a status.
    pub(super) fn read(
        &mut self,
        bytes: &Buffer,
        at: &mut usize,
        mut take: impl FnMut(Buffer) -> Result<(), u16>,
    ) -> Result<bool, u16> {
        let view = bytes.view();
        while *at < bytes.len() {
            if let Phase::Data(left) = self.phase {
                let here = (bytes.len() - *at).min(usize::try_from(left).unwrap_or(usize::MAX));
                take(bytes.slice(*at..*at + here))?;
                *at += here;
                self.phase = match left - here as u64 {
                    0 => Phase::DataEnd,
                    left => Phase::Data(left),
                };
                continue;
            }
            let byte: u8 = view.read(*at).map_err(|_| 500u16)?;
            *at += 1;
            self.phase = match (self.phase, byte) {
                (Phase::Size { size, digits, .. }, b'\r') if digits > 0 => Phase::SizeEnd(size),
                (Phase::Size { read: LINE.., .. }, _) | (_, b'\0') => return Err(400),
                (
                    Phase::Size {
                        size,
                        digits,
                        read,
                        over: false,
                    },
                    byte,
                ) if byte.is_ascii_hexdigit() => {
                    if digits == 8 {
                        return Err(413);
                    }
                    let digit = char::from(byte).to_digit(16).unwrap_or(0);
                    Phase::Size {
                        size: size * 16 + u64::from(digit),
                        digits: digits + 1,
                        read: read + 1,
                        over: false,
                    }
                }
                // An extension, which means nothing here.
                (
                    Phase::Size {
                        size,
                        digits: digits @ 1..,
                        read,
                        over,
                    },
                    byte,
                ) if over && byte != b'\n' || matches!(byte, b';' | b' ' | b'\t') => Phase::Size {
                    size,
                    digits,
                    read: read + 1,
                    over: true,
                },
                (Phase::SizeEnd(0), b'\n') => Phase::Trailer { read: 0, line: 0 },
                (Phase::SizeEnd(size), b'\n') => Phase::Data(size),
                (Phase::DataEnd, b'\r') => Phase::DataEnd2,
                (Phase::DataEnd2, b'\n') => Phase::default(),
                (Phase::Trailer { read, line }, b'\r') => Phase::TrailerEnd { read, line },
                (
                    Phase::Trailer {
                        read: TRAILERS.., ..
                    },
                    _,
                ) => return Err(431),
                (Phase::Trailer { .. }, b'\n') => return Err(400),
                (Phase::Trailer { read, line }, _) => Phase::Trailer {
                    read: read + 1,
                    line: line + 1,
                },
                (Phase::TrailerEnd { line: 0, .. }, b'\n') => {
                    return Ok(true);
                }
                (Phase::TrailerEnd { read, .. }, b'\n') => Phase::Trailer { read, line: 0 },
                _ => return Err(400),
            };
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::Chunked;
    use tranship::{Domain, PoolOptions};

    /// Reads a text in two parts: the data, and what is left behind the body; or the status.
    fn read(text: &str, cut: usize) -> Result<Option<(String, usize)>, u16> {
        let domain = Domain::embedded().expect("a domain");
        let pool = domain
            .create_pool(PoolOptions::new(1 << 20))
            .expect("a pool");
        let mut chunked = Chunked::default();
        let mut data = Vec::new();
        let mut used = 0;
        for part in [&text[..cut], &text[cut..]] {
            let bytes = pool.copy(part.as_bytes()).expect("room").freeze();
            let mut at = 0;
            let done = chunked.read(&bytes, &mut at, |piece| {
                data.extend(piece.to_vec());
                Ok(())
            })?;
            used += at;
            if done {
                let data = String::from_utf8(data).expect("text");
                return Ok(Some((data, text.len() - used)));
            }
        }
        Ok(None)
    }

    #[test]
    fn chunks_are_read_however_they_are_cut() {
        let text = "5\r\nhello\r\n1;a=b\r\n \r\n05\r\nworld\r\n0\r\nX: y\r\n\r\nnext";
        for cut in [0, 1, 2, 3, 7, 8, 9, 10, 16, 30, 40, text.len()] {
            let read = read(text, cut.min(text.len()));
            assert_eq!(
                read,
                Ok(Some(("hello world".to_owned(), 4))),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn wrong_chunks_are_refused() {
        for (text, status) in [
            ("\r\n", 400),
            ("5\nhello", 400),
            ("5\r\nhello\n", 400),
            ("5\r\nhellox", 400),
            ("x\r\n", 400),
            ("-1\r\n", 400),
            (" 1\r\n", 400),
            ("fffffffff\r\n", 413),
            ("0\r\nX: y\n\r\n", 400),
        ] {
            assert_eq!(read(text, 0), Err(status), "{text:?}");
        }
    }
}
