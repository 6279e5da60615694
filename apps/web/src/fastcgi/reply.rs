//! From an application's answer, which begins with headers as CGI has them, to a reply.

use crate::reply::Heads;
use crate::word::Word;
use tranship::{Aggregate, Body, Buffer, Pool};

/// Most bytes of an application's headers.
const HEADERS: usize = 32 << 10;

/// Makes the reply. The error is a status.
pub(super) fn reply(
    heads: &mut Heads,
    pool: &Pool,
    word: Word,
    pieces: &[Buffer],
) -> Result<(Word, Body), u16> {
    let mut text = Vec::new();
    for piece in pieces {
        let here = piece.len().min(HEADERS - text.len());
        text.extend(piece.slice(..here).to_vec());
        if text.len() == HEADERS {
            break;
        }
    }
    let (status, headers, mut skip) = parse(&text).ok_or(502u16)?;
    let all: usize = pieces.iter().map(Buffer::len).sum();
    let length = match status {
        204 | 304 => None,
        _ => Some((all - skip) as u64),
    };
    let head = heads.head(word, status, length, &headers);
    let mut buffer = pool.try_alloc(head.len()).map_err(|_| 503u16)?;
    buffer.copy_from_slice(head);
    let mut whole = Aggregate::new();
    whole.set_list_pool(pool);
    whole.push_back(buffer.freeze()).map_err(|_| 500u16)?;
    if !word.has(Word::HEAD) && length.is_some() {
        for piece in pieces {
            let here = skip.min(piece.len());
            skip -= here;
            if here < piece.len() {
                whole.push_back(piece.slice(here..)).map_err(|_| 502u16)?;
            }
        }
    }
    Ok((word.with_status(status), Body::Aggregate(whole)))
}

/// Reads headers: the status, lines for the client, and where the body begins.
fn parse(text: &[u8]) -> Option<(u16, String, usize)> {
    let (mut status, mut headers, mut at) = (None, String::new(), 0);
    let mut moved = false;
    loop {
        let end = at + text[at..].iter().position(|byte| *byte == b'\n')?;
        let line = text[at..end].strip_suffix(b"\r").unwrap_or(&text[at..end]);
        at = end + 1;
        if line.is_empty() {
            let usual = if moved { 302 } else { 200 };
            return Some((status.unwrap_or(usual), headers, at));
        }
        let line = std::str::from_utf8(line).ok()?;
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) || value.chars().any(char::is_control) {
            return None;
        }
        match &name.to_ascii_lowercase()[..] {
            "status" => {
                let number = value.split(' ').next()?.parse().ok();
                status = Some(number.filter(|number| (200..600).contains(number))?);
            }
            // The front says these itself.
            "content-length" | "connection" | "transfer-encoding" | "date" | "server"
            | "keep-alive" => {}
            name => {
                moved |= name == "location";
                headers.push_str(&format!("{name}: {value}\r\n"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn headers_are_those_of_cgi() {
        let text = b"Status: 404 Not Found\r\nX-A: b\r\nContent-Length: 99\r\n\r\nbody";
        let wanted = (404, "x-a: b\r\n".to_owned(), text.len() - 4);
        assert_eq!(parse(text), Some(wanted));
        assert_eq!(
            parse(b"Content-type: a/b\n\n"),
            Some((200, "content-type: a/b\r\n".to_owned(), 19))
        );
        assert_eq!(parse(b"Location: /x\n\n").map(|reply| reply.0), Some(302));
        for wrong in [
            &b"no headers"[..],
            b"no colon\n\n",
            b"a b: c\n\n",
            b"Status: 99\n\n",
        ] {
            assert_eq!(parse(wrong), None);
        }
    }
}
