//! Bodies in chunks (RFC 9112, section 7.1). Data is passed on by reference; sizes, extensions and trailers are taken off.

use tranship::Buffer;

/// Most bytes of a chunk's line, and of all trailers.
const LINE: usize = 256;
const TRAILERS: usize = 4096;

/// A body in chunks that is being read.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    phase: Phase,
    /// The line so far, or in the trailer all lines.
    text: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    /// In a chunk's line.
    #[default]
    Size,
    Data(u64),
    /// Behind a chunk's data, where an empty line is.
    DataEnd,
    /// In the lines behind the last chunk. The last line begins there.
    Trailer(usize),
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
            self.text.push(byte);
            match self.phase {
                Phase::DataEnd if !b"\r\n".starts_with(&self.text) => return Err(400),
                Phase::Size if self.text.len() > LINE => return Err(400),
                Phase::Trailer(_) if self.text.len() > TRAILERS => return Err(431),
                _ if byte != b'\n' => continue,
                _ => {}
            }
            let begins = match self.phase {
                Phase::Trailer(begins) => begins,
                _ => 0,
            };
            let line = self.text[begins..].strip_suffix(b"\r\n").ok_or(400u16)?;
            if line.iter().any(|byte| matches!(byte, b'\r' | b'\0')) {
                return Err(400);
            }
            self.phase = match self.phase {
                Phase::Size => match size_of(line)? {
                    0 => Phase::Trailer(0),
                    size => Phase::Data(size),
                },
                Phase::Trailer(_) if line.is_empty() => return Ok(true),
                Phase::Trailer(_) => Phase::Trailer(self.text.len()),
                _ => Phase::Size,
            };
            if !matches!(self.phase, Phase::Trailer(1..)) {
                self.text.clear();
            }
        }
        Ok(false)
    }
}

/// Returns the size that a chunk's line says. An extension behind it means nothing here.
fn size_of(line: &[u8]) -> Result<u64, u16> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (digits, rest) = line.split_at(digits.count());
    match (digits.len(), rest.first()) {
        (1..=8, None | Some(b';' | b' ' | b'\t')) => {
            let digits = std::str::from_utf8(digits).map_err(|_| 400u16)?;
            u64::from_str_radix(digits, 16).map_err(|_| 400)
        }
        (9.., _) => Err(413),
        _ => Err(400),
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
