//! A request as the components pass it on: parsed, checked, and without a byte that the client put around it.

use tranship::{Body, Buffer};

/// Most bytes of a request's head, and so nearly of its record.
pub const HEAD_BYTES: usize = 16 << 10;

/// Methods that are known. Others are answered with 501.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// PATCH.
    Patch,
}

const METHODS: [(Method, &str); 7] = [
    (Method::Get, "GET"),
    (Method::Head, "HEAD"),
    (Method::Post, "POST"),
    (Method::Put, "PUT"),
    (Method::Delete, "DELETE"),
    (Method::Options, "OPTIONS"),
    (Method::Patch, "PATCH"),
];

impl Method {
    /// Returns the method of a name; names have large letters.
    #[must_use]
    pub fn of(name: &str) -> Option<Method> {
        let found = METHODS.iter().find(|(_, known)| *known == name);
        found.map(|(method, _)| *method)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        METHODS[self as usize].1
    }
}

/// Bytes before the texts of a record: method, minor version, lengths.
const FIXED: usize = 12;

/// A request, read out of its record.
///
/// ```text
/// 0  method     1  minor version   2  bytes of target   4  bytes of path   6  number of headers   8  bytes of body
/// 12 target, path, and for each header: u16 bytes of name, u16 bytes of value, name, value
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Method.
    pub method: Method,
    /// 0 or 1: HTTP/1.0, HTTP/1.1.
    pub minor: u8,
    /// Target as the client sent it: a path, and behind `?` the query.
    pub target: &'a str,
    /// Path, with `%` sequences decoded. It begins with `/`.
    pub path: &'a [u8],
    /// Bytes of the body.
    pub body_bytes: u32,
    headers: &'a [u8],
    count: u16,
}

impl<'a> Request<'a> {
    /// Reads a record; `None`: it is none.
    #[must_use]
    pub fn read(record: &'a [u8]) -> Option<Request<'a>> {
        let (fixed, texts) = record.split_at_checked(FIXED)?;
        let (target, rest) = texts.split_at_checked(short(fixed, 2)?.into())?;
        let (path, headers) = rest.split_at_checked(short(fixed, 4)?.into())?;
        Some(Request {
            method: METHODS.get(usize::from(fixed[0]))?.0,
            minor: fixed[1],
            target: std::str::from_utf8(target).ok()?,
            path: Some(path).filter(|path| path.first() == Some(&b'/'))?,
            body_bytes: u32::from_le_bytes(fixed[8..].try_into().ok()?),
            headers,
            count: short(fixed, 6)?,
        })
    }

    /// Returns the headers: name, value. Names have the letters that the client used.
    pub fn headers(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let mut rest = self.headers;
        (0..self.count).map_while(move |_| {
            let (name, value) = (short(rest, 0)?.into(), short(rest, 2)?.into());
            let (name, after) = rest.get(4..)?.split_at_checked(name)?;
            let (value, after) = after.split_at_checked(value)?;
            rest = after;
            Some((std::str::from_utf8(name).ok()?, value))
        })
    }

    /// Returns the first header of a name, which is compared without regard to capitals.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut headers = self.headers();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Returns the part of the target behind `?`; empty: there is none.
    #[must_use]
    pub fn query(&self) -> &'a str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// Returns the value of a field of the query (`name=value`), as it was sent.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.query().split('&');
        fields
            .find_map(|field| field.split_once('=').filter(|(known, _)| *known == name))
            .map(|(_, value)| value)
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

/// Writes a record.
#[derive(Debug)]
pub struct RecordWriter {
    record: Vec<u8>,
    count: u16,
}

impl RecordWriter {
    /// Begins a record. `None`: a text is longer than 64 KiB.
    #[must_use]
    pub fn new(method: Method, minor: u8, target: &str, path: &[u8]) -> Option<RecordWriter> {
        RecordWriter::over(Vec::new(), method, minor, target, path)
    }

    /// Begins a record in the room of another one.
    pub(crate) fn over(
        mut record: Vec<u8>,
        method: Method,
        minor: u8,
        target: &str,
        path: &[u8],
    ) -> Option<RecordWriter> {
        record.clear();
        record.reserve(FIXED + target.len() + path.len() + 512);
        record.extend([method as u8, minor]);
        record.extend(u16::try_from(target.len()).ok()?.to_le_bytes());
        record.extend(u16::try_from(path.len()).ok()?.to_le_bytes());
        record.extend([0; FIXED - 6]);
        record.extend(target.as_bytes());
        record.extend(path);
        Some(RecordWriter { record, count: 0 })
    }

    /// Adds a header. `None`: it is longer than 64 KiB.
    pub fn header(&mut self, name: &str, value: &[u8]) -> Option<()> {
        self.record
            .extend(u16::try_from(name.len()).ok()?.to_le_bytes());
        self.record
            .extend(u16::try_from(value.len()).ok()?.to_le_bytes());
        self.record.extend(name.as_bytes());
        self.record.extend(value);
        self.count += 1;
        Some(())
    }

    /// Returns the record.
    #[must_use]
    pub fn finish(mut self, body_bytes: u32) -> Vec<u8> {
        self.record[6..8].copy_from_slice(&self.count.to_le_bytes());
        self.record[8..FIXED].copy_from_slice(&body_bytes.to_le_bytes());
        self.record
    }
}

/// Copies the record out of a message: nothing that its writer changes afterwards is seen. `false`: it has none, or one that is too long.
pub fn copy_record(body: &Body, record: &mut Vec<u8>) -> bool {
    let first = match body {
        Body::Buffer(record) => record,
        Body::Aggregate(all) => match all.pieces().front() {
            Some(first) => first,
            None => return false,
        },
        _ => return false,
    };
    if first.len() > 2 * HEAD_BYTES + FIXED {
        return false;
    }
    record.resize(first.len(), 0);
    first.view().copy_to_slice(0, record).is_ok()
}

/// Returns the pieces of a request's body.
pub fn body_of(body: &Body) -> impl Iterator<Item = &Buffer> {
    let pieces = match body {
        Body::Aggregate(all) => Some(all.pieces().iter().skip(1)),
        _ => None,
    };
    pieces.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_never_beyond_its_end() {
        let mut writer =
            RecordWriter::new(Method::Post, 1, "/a%20b?n=5&m=6", b"/a b").expect("short");
        writer.header("Host", b"example.org").expect("short");
        writer.header("Empty", b"").expect("short");
        let record = writer.finish(77);
        let request = Request::read(&record).expect("a record");
        assert_eq!(
            (request.method, request.minor, request.body_bytes),
            (Method::Post, 1, 77)
        );
        assert_eq!((request.path, request.query()), (&b"/a b"[..], "n=5&m=6"));
        assert_eq!((request.field("m"), request.field("x")), (Some("6"), None));
        assert_eq!(request.header("host"), Some(&b"example.org"[..]));
        assert_eq!(request.headers().count(), 2);
        for len in 0..record.len() {
            if let Some(request) = Request::read(&record[..len]) {
                assert!(request.headers().count() < 2);
            }
        }
    }
}
