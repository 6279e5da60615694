//! A request's head.

use crate::request::{Method, RecordWriter};
use crate::word::Word;
use std::borrow::Cow;

/// Most headers of a request.
const MOST_HEADERS: usize = 64;

/// A head that was read.
#[derive(Debug)]
pub(super) struct Head {
    pub record: RecordWriter,
    /// Flags of the reply.
    pub flags: u64,
    /// The client waits for "100 Continue" before it sends the body.
    pub expects: bool,
}

/// How long a body is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Length {
    Bytes(u64),
    Chunked,
}

/// Returns the end of a head: behind its empty line. All before `known` was looked at. Each line must end with CR LF.
pub(super) fn end_of(text: &[u8], known: usize) -> Result<Option<usize>, u16> {
    let mut at = known;
    while let Some(found) = text[at..].iter().position(|byte| *byte == b'\n') {
        let line = at + found;
        if line == 0 || text[line - 1] != b'\r' {
            return Err(400);
        }
        if line == 1 || (line >= 3 && text[line - 2] == b'\n') {
            return Ok(Some(line + 1));
        }
        at = line + 1;
    }
    Ok(None)
}

/// Reads a whole head, and writes its record in the room of another one. `None`: it is only an empty line. The error is a
/// status.
pub(super) fn read(text: &[u8], room: &mut Vec<u8>) -> Result<Option<(Head, Length)>, u16> {
    if text == b"\r\n" {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(text) {
        Ok(httparse::Status::Complete(end)) if end == text.len() => {}
        Ok(_) => return Err(400),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(httparse::Error::Version) => return Err(505),
        Err(_) => return Err(400),
    }
    let minor = parsed.version.ok_or(400u16)?;
    let target = parsed.path.ok_or(400u16)?;
    let name = parsed.method.ok_or(400u16)?;
    let mut flags = 0;
    let mut facts = Facts::default();
    for header in parsed.headers.iter() {
        facts.note(header.name, header.value)?;
    }
    // Also where HTTP/1.0 does without: no later component has to guess.
    if minor == 1 && facts.hosts == 0 || facts.hosts > 1 {
        return Err(400);
    }
    let length = match (facts.length, facts.codings) {
        (None, 0) => Length::Bytes(0),
        (Some(bytes), 0) => Length::Bytes(bytes),
        (None, 1) if minor == 1 => match facts.chunked {
            true => Length::Chunked,
            false => return Err(501),
        },
        _ => return Err(400),
    };
    let Some(method) = Method::of(name) else {
        return Err(501);
    };
    let path = path_of(method, target)?;
    match minor {
        1 if facts.closes => flags |= Word::CLOSE,
        0 if facts.stays => flags |= Word::KEEP,
        0 => flags |= Word::CLOSE,
        _ => {}
    }
    if method == Method::Head {
        flags |= Word::HEAD;
    }
    let room = std::mem::take(room);
    let mut record = RecordWriter::over(room, method, minor, target, &path).ok_or(414u16)?;
    for header in parsed.headers.iter() {
        record.header(header.name, header.value).ok_or(431u16)?;
    }
    let head = Head {
        record,
        flags,
        expects: facts.expects && minor == 1,
    };
    Ok(Some((head, length)))
}

/// What the headers say about the message itself.
#[derive(Default)]
struct Facts {
    hosts: u32,
    length: Option<u64>,
    codings: u32,
    chunked: bool,
    closes: bool,
    stays: bool,
    expects: bool,
}

impl Facts {
    fn note(&mut self, name: &str, value: &[u8]) -> Result<(), u16> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            4 if is("host") => {
                self.hosts += 1;
                let fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:[]%".contains(byte);
                if !value.iter().all(fine) {
                    return Err(400);
                }
            }
            14 if is("content-length") => {
                let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(value).ok().filter(|_| digits);
                let number = number.ok_or(400u16)?;
                // Two of them, even of one value, are refused.
                if self.length.is_some() {
                    return Err(400);
                }
                self.length = Some(number.parse().map_err(|_| 413u16)?);
            }
            17 if is("transfer-encoding") => {
                self.codings += 1;
                self.chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            10 if is("connection") => {
                for option in value.split(|byte| *byte == b',') {
                    let option = option.trim_ascii();
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.stays |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            6 if is("expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(417);
                }
                self.expects = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the path of a target, with `%` sequences decoded.
fn path_of(method: Method, target: &str) -> Result<Cow<'_, [u8]>, u16> {
    if target == "*" && method == Method::Options {
        return Ok(Cow::Borrowed(b"/"));
    }
    let bytes = target.as_bytes();
    // A fragment is the client's; another form names a server, which this one would have to believe.
    if bytes.first() != Some(&b'/') || bytes.contains(&b'#') || !target.is_ascii() {
        return Err(400);
    }
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if !path.contains(['%', '\0']) {
        return Ok(Cow::Borrowed(path.as_bytes()));
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
                let (high, low) = (digit().ok_or(400u16)?, digit().ok_or(400u16)?);
                u8::try_from(high * 16 + low).map_err(|_| 400u16)?
            }
            byte => byte,
        };
        if byte == 0 {
            return Err(400);
        }
        decoded.push(byte);
    }
    Ok(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> u16 {
        match end_of(text.as_bytes(), 0) {
            Err(status) => status,
            Ok(None) => 0,
            Ok(Some(end)) => match read(&text.as_bytes()[..end], &mut Vec::new()) {
                Err(status) => status,
                Ok(_) => 200,
            },
        }
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused() {
        let cases = [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
            ("GET / HTTP/1.0\r\n\r\n", 200),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\nHost: a\n\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\n X: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
            ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                501,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
                200,
            ),
            ("POST / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ];
        for (text, wanted) in cases {
            assert_eq!(status(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_is_cut() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
        let end = text.len() - 4;
        for cut in 0..end {
            assert_eq!(end_of(&text[..cut], 0), Ok(None));
            assert_eq!(end_of(text, cut), Ok(Some(end)));
        }
    }
}
