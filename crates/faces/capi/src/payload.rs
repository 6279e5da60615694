//! Content of a buf, sent over a topic or a queue, or as a request or an answer.

use crate::buf::Buf;
use crate::given::patience;
use facade::{Body, Error, Message, SendError};
use std::time::Duration;

/// Sends the content of a buf, with its word: an exclusive buffer is given away, others are shared, inline bytes are
/// copied. The buf then holds nothing; on failure it holds the content again, which `send` may have made shared.
pub(crate) fn sent<T>(
    buf: &mut Buf,
    send: impl FnOnce((Body, u64)) -> Result<T, SendError<(Body, u64)>>,
) -> Result<T, Error> {
    let word = buf.word;
    send((buf.take_body()?, word)).map_err(|failed| {
        let (body, word) = failed.unsent;
        buf.put_message(Message { word, body });
        failed.error
    })
}

/// [`sent`] without a word.
pub(crate) fn sent_wordless<T>(
    buf: &mut Buf,
    send: impl FnOnce(Body) -> Result<T, SendError<Body>>,
) -> Result<T, Error> {
    sent(buf, |(body, word)| {
        send(body).map_err(|failed| failed.map(|body| (body, word)))
    })
}

/// Sends by a try, or within a time, as `timeout_ns` says.
pub(crate) fn within<W, P, R>(
    to: W,
    payload: P,
    timeout_ns: i64,
    (try_send, send_timeout): (impl FnOnce(W, P) -> R, impl FnOnce(W, P, Duration) -> R),
) -> R {
    match patience(timeout_ns) {
        Some(Duration::ZERO) => try_send(to, payload),
        time => send_timeout(to, payload, time.unwrap_or(Duration::MAX)),
    }
}
