//! FastCGI's records.

use crate::os::Piece;
use crate::request::Request;
use std::collections::VecDeque;
use tranship::Buffer;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// Most bytes of a record's contents, as a multiple of 8: no record needs padding.
const MOST: usize = 65_528;

/// Ends a request's body.
pub(super) const END_OF_STDIN: [u8; 8] = header(STDIN, 0);

/// Every connection has one request at a time, whose number is 1.
const fn header(kind: u8, len: u16) -> [u8; 8] {
    let len = len.to_be_bytes();
    [1, kind, 0, 1, len[0], len[1], 0, 0]
}

fn length(text: &mut Vec<u8>, len: usize) {
    match u8::try_from(len) {
        Ok(short @ ..0x80) => text.push(short),
        // A head has less than 2 GiB.
        _ => text.extend((u32::try_from(len).unwrap_or(0) | 0x8000_0000).to_be_bytes()),
    }
}

/// Returns the records ahead of a request's body.
pub(super) fn begin(request: &Request<'_>, root: &str) -> Vec<u8> {
    let mut params = Vec::new();
    let mut param = |name: &str, value: &[u8]| {
        length(&mut params, name.len());
        length(&mut params, value.len());
        params.extend(name.as_bytes());
        params.extend(value);
    };
    let body = request.body_bytes.to_string();
    let script = [root.as_bytes(), request.path].concat();
    let host = request.header("host").unwrap_or_default();
    let name = host.rsplit(|byte| *byte == b':').next_back();
    let protocol: &[u8] = match request.minor {
        0 => b"HTTP/1.0",
        _ => b"HTTP/1.1",
    };
    param("GATEWAY_INTERFACE", b"CGI/1.1");
    param("SERVER_SOFTWARE", b"tranship");
    param("SERVER_PROTOCOL", protocol);
    param("SERVER_NAME", name.unwrap_or_default());
    param("REQUEST_METHOD", request.method.name().as_bytes());
    param("REQUEST_URI", request.target.as_bytes());
    param("QUERY_STRING", request.query().as_bytes());
    param("SCRIPT_NAME", request.path);
    param("SCRIPT_FILENAME", &script);
    param("DOCUMENT_ROOT", root.as_bytes());
    param("DOCUMENT_URI", request.path);
    // php refuses to run without it.
    param("REDIRECT_STATUS", b"200");
    param("CONTENT_LENGTH", body.as_bytes());
    if let Some(kind) = request.header("content-type") {
        param("CONTENT_TYPE", kind);
    }
    for (name, value) in request.headers() {
        // Programs take HTTP_PROXY for their own setting. An underscore would look like a dash.
        if name.eq_ignore_ascii_case("proxy") || name.contains('_') {
            continue;
        }
        let name = name.to_ascii_uppercase().replace('-', "_");
        param(&format!("HTTP_{name}"), value);
    }
    let mut text = header(BEGIN_REQUEST, 8).to_vec();
    // The responder's role; the connection is kept.
    text.extend([0, 1, 1, 0, 0, 0, 0, 0]);
    for part in params.chunks(MOST) {
        text.extend(header(PARAMS, u16::try_from(part.len()).unwrap_or(0)));
        text.extend(part);
    }
    text.extend(header(PARAMS, 0));
    text
}

/// Adds a piece of a request's body to what is to be sent.
pub(super) fn stdin(out: &mut VecDeque<Piece>, piece: &Buffer) {
    let mut at = 0;
    while at < piece.len() {
        let here = (piece.len() - at).min(MOST);
        let header = header(STDIN, u16::try_from(here).unwrap_or(0));
        out.push_back(Piece::Own(header.to_vec()));
        out.push_back(Piece::Shared(piece.slice(at..at + here)));
        at += here;
    }
}

/// What an application said.
#[derive(Debug)]
pub(super) enum Event {
    Stdout(Buffer),
    Stderr(Buffer),
    /// The request is over.
    End,
    /// It does not speak FastCGI.
    Wrong,
}

/// Reads an application's records, however they are cut.
#[derive(Debug, Default)]
pub(super) struct Parser {
    header: [u8; 8],
    /// Bytes of the header that are there.
    has: usize,
    content: usize,
    padding: usize,
    ended: bool,
}

impl Parser {
    /// Returns what comes next, from byte `at` on; `None`: more bytes are needed.
    pub(super) fn next(&mut self, bytes: &Buffer, at: &mut usize) -> Option<Event> {
        loop {
            if self.has < 8 {
                let here = (bytes.len() - *at).min(8 - self.has);
                let to = &mut self.header[self.has..self.has + here];
                bytes.view().copy_to_slice(*at, to).ok()?;
                *at += here;
                self.has += here;
                if self.has < 8 {
                    return None;
                }
                let [version, _, high, low, len1, len2, padding, _] = self.header;
                self.content = usize::from(u16::from_be_bytes([len1, len2]));
                self.padding = padding.into();
                if version != 1 || [high, low] != [0, 1] {
                    return Some(Event::Wrong);
                }
            }
            if self.content > 0 {
                let here = (bytes.len() - *at).min(self.content);
                if here == 0 {
                    return None;
                }
                let piece = bytes.slice(*at..*at + here);
                *at += here;
                self.content -= here;
                match self.header[1] {
                    STDOUT => return Some(Event::Stdout(piece)),
                    STDERR => return Some(Event::Stderr(piece)),
                    END_REQUEST => self.ended = true,
                    _ => {}
                }
                continue;
            }
            let here = (bytes.len() - *at).min(self.padding);
            *at += here;
            self.padding -= here;
            if self.padding > 0 {
                return None;
            }
            self.has = 0;
            if std::mem::take(&mut self.ended) {
                return Some(Event::End);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship::{Domain, PoolOptions};

    #[test]
    fn records_are_read_however_they_are_cut() {
        let mut text = header(STDOUT, 5).to_vec();
        text[6] = 3;
        text.extend(b"hello...");
        text.extend(header(STDOUT, 0));
        text.extend(header(END_REQUEST, 8));
        text.extend([0; 8]);
        let domain = Domain::embedded().expect("a domain");
        let pool = domain
            .create_pool(PoolOptions::new(1 << 20))
            .expect("a pool");
        for cut in 0..text.len() {
            let (mut parser, mut said, mut ends) = (Parser::default(), Vec::new(), 0);
            for part in [&text[..cut], &text[cut..]] {
                let bytes = pool.copy(part).expect("room").freeze();
                let mut at = 0;
                while let Some(event) = parser.next(&bytes, &mut at) {
                    match event {
                        Event::Stdout(piece) => said.extend(piece.to_vec()),
                        Event::End => ends += 1,
                        other => panic!("{other:?}"),
                    }
                }
            }
            assert_eq!((&said[..], ends), (&b"hello"[..], 1), "cut at {cut}");
        }
    }
}
