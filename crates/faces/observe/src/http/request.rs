//! Parser of requests: the bytes come from an untrusted client.

/// The most that the head of a request may be, bytes, and how many headers it may have.
pub(crate) const HEAD_BYTES: usize = 8 << 10;
const HEADERS: usize = 64;

/// Relevant parts of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    pub method: String,
    /// Path without the query.
    pub path: String,
    pub host: Option<String>,
    pub accept: Option<String>,
}

/// Reason for which a request is none: status, and a line for people.
pub(crate) type Wrong = (u16, &'static str);

/// Parses the head of a request. Nothing as long as it is not whole.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Asked>, Wrong> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() >= HEAD_BYTES => {
            return Err((431, "a request's head has at most 8 KiB"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err((431, "a request has at most 64 headers"));
        }
        Err(_) => return Err((400, "that is no HTTP request")),
    }
    let path = request.path.unwrap_or("");
    if !path.starts_with('/') {
        return Err((400, "the target of a request begins with /"));
    }
    let mut asked = Asked {
        method: request.method.unwrap_or("").to_owned(),
        path: path.split(['?', '#']).next().unwrap_or("").to_owned(),
        ..Asked::default()
    };
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") || is("content-length") && header.value != b"0" {
            return Err((400, "a request for this has no body"));
        }
        let value = || {
            std::str::from_utf8(header.value)
                .map(str::trim)
                .map(str::to_owned)
        };
        let no_text = |_| (400, "a header that is no text");
        if is("host") {
            if asked.host.is_some() {
                return Err((400, "a request names one host"));
            }
            asked.host = Some(value().map_err(no_text)?);
        } else if is("accept") {
            // Several lines are one list.
            let more = value().map_err(no_text)?;
            asked.accept = Some(asked.accept.map_or(more.clone(), |a| format!("{a},{more}")));
        }
    }
    if request.version == Some(1) && asked.host.is_none() {
        return Err((400, "HTTP/1.1 names a host"));
    }
    Ok(Some(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_in_pieces_and_are_checked_whole() {
        let whole = b"GET /metrics?a=b HTTP/1.1\r\nHost: x:1\r\naccept: a\r\nAccept: b\r\n\r\n";
        for n in 0..whole.len() {
            assert_eq!(parse(&whole[..n]), Ok(None), "{n}");
        }
        let asked = parse(whole).expect("a request").expect("whole");
        let text = |s: &str| Some(s.to_owned());
        assert_eq!(
            (asked.method.as_str(), asked.path.as_str()),
            ("GET", "/metrics")
        );
        assert_eq!((asked.host, asked.accept), (text("x:1"), text("a,b")));
    }

    #[test]
    fn what_is_not_asked_so_is_refused() {
        for (status, wrong) in [
            (400, "GET / HTTP/1.1\r\n\r\n"),
            (400, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
            (400, "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n"),
            (400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
            (
                400,
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            ),
            (
                400,
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            ),
            (400, "\x16\x03\x01\x02\x00\x01"),
            (400, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"),
            (400, "GET / HTTP/3.0\r\nHost: a\r\n\r\n"),
        ] {
            assert_eq!(
                parse(wrong.as_bytes()).expect_err(wrong).0,
                status,
                "{wrong}"
            );
        }
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_BYTES));
        assert_eq!(parse(long.as_bytes()).expect_err("long").0, 431);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(parse(many.as_bytes()).expect_err("many").0, 431);
        let old = parse(b"GET / HTTP/1.0\r\n\r\n").expect("a request");
        assert!(old.is_some_and(|a| a.host.is_none()));
    }

    #[test]
    fn random_bytes_are_no_panic() {
        let mut random = tranship_testkit::Random::printed("bytes for the HTTP parser");
        for _ in 0..20_000 {
            let n = random.below(200);
            let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
            for _ in 0..n % 8 {
                let at = random.below(bytes.len() as u64);
                #[allow(clippy::cast_possible_truncation)]
                let (at, to) = (at as usize, random.below(256) as u8);
                bytes[at] = to;
            }
            let _ = parse(&bytes);
        }
    }
}
