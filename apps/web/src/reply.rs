//! Replies: the head, and its date.

use crate::stage::nothing;
use crate::word::Word;
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;
use tranship::{Aggregate, Body, Buffer, BufferMut, Error, Pool};

/// Returns the reason phrase of a status.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

/// Time for memory to come back from the front. A component that waits for memory says so by waiting: a policy then gives
/// it more.
pub(crate) const MEMORY: Duration = Duration::from_millis(500);

/// Bytes ahead of a body in which its head is written, so that one buffer has both.
pub(crate) const HEAD_ROOM: usize = 512;
/// Most bytes of a body that is copied behind its head: two buffers and a list of them cost more.
const COPIED: usize = 4 << 10;

/// Writes heads of replies. The lines of a status that do not depend on the request are made once a second.
#[derive(Debug, Default)]
pub struct Heads {
    second: u64,
    status: u16,
    start: Vec<u8>,
    text: Vec<u8>,
}

impl Heads {
    /// Returns a reply's head. `length`: bytes of the body; `None`: the reply has none, and says nothing of it (204, 304).
    /// `headers` are whole lines.
    pub fn head(&mut self, word: Word, status: u16, length: Option<u64>, headers: &str) -> &[u8] {
        let second = second_now();
        if (second, status) != (self.second, self.status) {
            (self.second, self.status) = (second, status);
            self.start.clear();
            let (reason, date) = (reason(status), http_date(second));
            // A vector takes everything, here and below.
            let _ = write!(
                self.start,
                "HTTP/1.1 {status} {reason}\r\nserver: tranship\r\ndate: {date}\r\n"
            );
        }
        self.text.clear();
        let text = &mut self.text;
        text.extend_from_slice(&self.start);
        if let Some(length) = length {
            let _ = write!(text, "content-length: {length}\r\n");
        }
        text.extend_from_slice(headers.as_bytes());
        if word.has(Word::CLOSE) {
            text.extend_from_slice(b"connection: close\r\n");
        } else if word.has(Word::KEEP) {
            text.extend_from_slice(b"connection: keep-alive\r\n");
        }
        text.extend_from_slice(b"\r\n");
        text
    }

    /// Makes a whole reply of a head and a body, which is not sent to a HEAD request, nor with a status that has none.
    ///
    /// # Errors
    /// `TimedOut` without memory for the head.
    pub fn reply(
        &mut self,
        pool: &Pool,
        word: Word,
        status: u16,
        headers: &str,
        body: Option<Buffer>,
    ) -> Result<(Word, Body), Error> {
        let length = length_of(status, body.as_ref().map_or(0, Buffer::len));
        let head = self.head(word, status, length, headers);
        let body = body.filter(|_| sends_body(word, status));
        let copied = body.as_ref().filter(|body| body.len() <= COPIED);
        let bytes = head.len() + copied.map_or(0, Buffer::len);
        let mut buffer = pool.alloc_timeout(bytes, MEMORY)?;
        let (here, behind) = buffer.split_at_mut(head.len());
        here.copy_from_slice(head);
        if let Some(body) = copied {
            // As long as there is room for it.
            let _ = body.view().copy_to_slice(0, behind);
        }
        let head = buffer.freeze();
        let whole = match body.filter(|body| body.len() > COPIED) {
            None => Body::Buffer(head),
            Some(body) => Body::Aggregate(together(pool, head, body)?),
        };
        Ok((word.with_status(status), whole))
    }

    /// Makes a whole reply as [`reply`](Heads::reply) does, of a body that was written behind `room` bytes of its
    /// buffer.
    ///
    /// # Errors
    /// Those of [`reply`](Heads::reply).
    pub(crate) fn reply_in_room(
        &mut self,
        pool: &Pool,
        (word, status, headers): (Word, u16, &str),
        mut buffer: BufferMut,
        room: usize,
    ) -> Result<(Word, Body), Error> {
        let length = length_of(status, buffer.len() - room);
        let head = self.head(word, status, length, headers);
        let start = room.checked_sub(head.len());
        let Some(start) = start.filter(|_| sends_body(word, status)) else {
            let body = buffer.freeze().slice(room..);
            return self.reply(pool, word, status, headers, Some(body));
        };
        buffer[start..room].copy_from_slice(head);
        let whole = Body::Buffer(buffer.freeze().slice(start..));
        Ok((word.with_status(status), whole))
    }
}

/// Returns the seconds since 1970. The coarse clock is exact enough, and costs a fifth.
pub(crate) fn second_now() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(now.tv_sec).unwrap_or(0)
}

/// Returns the length that a head says; `None`: replies with this status have no body.
fn length_of(status: u16, bytes: usize) -> Option<u64> {
    (!matches!(status, 204 | 304)).then_some(bytes as u64)
}

/// Says whether a body goes out behind the head.
fn sends_body(word: Word, status: u16) -> bool {
    !word.has(Word::HEAD) && length_of(status, 0).is_some()
}

/// Makes an aggregate of two pieces.
///
/// # Errors
/// None is known.
pub fn together(pool: &Pool, head: Buffer, body: Buffer) -> Result<Aggregate, Error> {
    let mut all = Aggregate::new();
    all.set_list_pool(pool);
    all.push_back(head).map_err(|failed| failed.error)?;
    all.push_back(body).map_err(|failed| failed.error)?;
    Ok(all)
}

/// Returns pieces as one body. The list of several lies in the pool.
pub(crate) fn body(pool: &Pool, pieces: impl IntoIterator<Item = Buffer>) -> Body {
    let mut pieces = pieces.into_iter();
    let (first, second) = (pieces.next(), pieces.next());
    let (Some(first), Some(second)) = (first.clone(), second) else {
        return first.map_or_else(nothing, Body::Buffer);
    };
    let mut all = Aggregate::new();
    all.set_list_pool(pool);
    for piece in [first, second].into_iter().chain(pieces) {
        // Fewer than an aggregate holds.
        let _ = all.push_back(piece);
    }
    Body::Aggregate(all)
}

/// Writes a date as RFC 9110, section 5.6.7, has it.
#[must_use]
pub fn http_date(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let days = second / 86_400;
    let (hour, minute, rest) = (second / 3600 % 24, second / 60 % 60, second % 60);
    // The calendar repeats every 400 years; days are counted from 1 March of the year 0.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 2, 0)
    } else {
        (month - 10, 1)
    };
    let year = year + era * 400 + next;
    let weekday = DAYS[usize::try_from(days % 7).unwrap_or(0)];
    let month = MONTHS[usize::try_from(month).unwrap_or(0)];
    format!("{weekday}, {date:02} {month} {year} {hour:02}:{minute:02}:{rest:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::http_date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(4_107_542_399), "Sun, 28 Feb 2100 23:59:59 GMT");
    }
}
