//! The sending end of a channel.

use crate::buf::{BUF_AGGREGATE, BUF_EXCLUSIVE, BUF_INLINE, Buf, bufs_of, place};
use crate::given::{FOREVER, bytes, nanoseconds, patience, there};
use crate::open::closed;
use crate::pool::{self, Pool};
use crate::status::{Error, Status, border, quietly};
use facade::{Body, ErrorKind, Message, Payload, SendError};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::time::Instant;

/// Sends messages to one receiver. One thread at a time.
#[derive(Debug)]
pub struct Sender(pub(crate) facade::Sender);

/// Ends the channel in order: the receiver gets all that was sent, and then TRANSHIP_ERR_PEER_GONE. (A process that
/// ends without this call leaves it with TRANSHIP_ERR_PEER_DIED: messages may be missing.) NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_close(sender: Option<Box<Sender>>) {
    quietly((), || drop(closed(sender, "tranship_sender_close")));
}

/// Ends the channel although the data is incomplete: the receiver gets the sent messages, and then
/// TRANSHIP_ERR_PEER_DIED. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_abandon(sender: Option<Box<Sender>>) {
    quietly((), || {
        if let Some(sender) = closed(sender, "tranship_sender_abandon") {
            sender.0.abandon();
        }
    });
}

/// A send with TRANSHIP_FOREVER waits while the channel is full. This is the default.
pub const WHEN_FULL_WAIT: u32 = 0;
/// Such a send drops the message, which tranship_sender_dropped counts.
pub const WHEN_FULL_DROP_NEW: u32 = 1;
/// The receiver skips each message behind which a newer one waits (tranship_receiver_skipped). If the channel is full
/// such a send drops the message, as with TRANSHIP_WHEN_FULL_DROP_NEW: give the channel as many lines as messages may
/// be sent between two receives.
pub const WHEN_FULL_DROP_OLDEST: u32 = 2;

/// Sets the action of a send with TRANSHIP_FOREVER on a full channel from now on. A send waits for the receiver's
/// consent to a new pool in all modes. TRANSHIP_ERR_BAD_ARGUMENT for an unknown mode.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_set_when_full(
    sender: Option<&mut Sender>,
    when_full: u32,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let sender = &mut there(sender, "sender")?.0;
        sender.set_when_full(match when_full {
            WHEN_FULL_WAIT => facade::WhenFull::Wait,
            WHEN_FULL_DROP_NEW => facade::WhenFull::DropNew,
            WHEN_FULL_DROP_OLDEST => facade::WhenFull::DropOldest,
            other => {
                let text = format!("when_full is {other}, allowed are TRANSHIP_WHEN_FULL_WAIT (0) to TRANSHIP_WHEN_FULL_DROP_OLDEST (2)");
                return Err(facade::Error::new(ErrorKind::BadArgument, text));
            }
        });
        Ok(())
    })
}

/// Returns how many messages this sender has dropped. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_dropped(sender: Option<&Sender>) -> u64 {
    quietly(0, || sender.map_or(0, |sender| sender.0.status().dropped))
}

/// Allocates a buffer of `len` bytes from the channel's own pool, in `buf`. Only the receiver can read it, and it goes
/// over this channel only. The first call makes the pool. Waits for memory for `timeout_ns`, as tranship_alloc does.
/// `buf` need not be initialised; an old content is not released. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_alloc(
    sender: Option<&mut Sender>,
    len: usize,
    timeout_ns: i64,
    buf: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = place(buf, "buf")?;
        let sender = &mut there(sender, "sender")?.0;
        let got = match timeout_ns {
            FOREVER => sender.alloc(len)?,
            ..=0 => sender.try_alloc(len)?,
            _ => sender.alloc_timeout(len, nanoseconds(timeout_ns))?,
        };
        buf.put_exclusive(got);
        Ok(())
    })
}

/// Sends the contents of `buf`, with the word `buf->word`. A buffer of kind TRANSHIP_BUF_EXCLUSIVE is given away; after tranship_freeze it is shared,
/// as every other buffer. An aggregate is shared, and inline bytes are copied. No byte of a buffer is copied. `buf` then holds nothing; keep a handle by
/// tranship_buf_clone if it is still needed.
///
/// Waits for room for `timeout_ns`, as tranship_alloc does. On failure (TRANSHIP_ERR_FULL, TRANSHIP_ERR_PEER_GONE, ...) `buf` is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_send(
    sender: Option<&mut Sender>,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let sender = &mut there(sender, "sender")?.0;
        let buf = there(buf, "buf")?;
        let word = buf.word;
        match buf.kind {
            BUF_EXCLUSIVE => {
                let given = buf.take_exclusive()?;
                send(sender, (given, word), timeout_ns).map_err(|failed| {
                    buf.put_exclusive(failed.unsent.0);
                    failed.error
                })
            }
            BUF_AGGREGATE => {
                let aggregate = *buf.take_aggregate()?;
                send(sender, (aggregate, word), timeout_ns).map_err(|failed| {
                    buf.put_aggregate(Box::new(failed.unsent.0));
                    failed.error
                })
            }
            BUF_INLINE => {
                let inline = buf.inline_to_send()?;
                send(sender, (inline, word), timeout_ns).map_err(|failed| failed.error)?;
                buf.release();
                Ok(())
            }
            _ => {
                let shared = buf.take_shared()?;
                send(sender, (shared, word), timeout_ns).map_err(|failed| {
                    buf.put_shared(failed.unsent.0);
                    failed.error
                })
            }
        }
    })
}

/// Sends the contents of `count` bufs, each as tranship_send does, with one fence and at most one wake-up of the
/// receiver. `*sent`, if it is not NULL, is the number of sent messages, dropped ones included; these bufs hold
/// nothing. The bufs after them are as before.
///
/// Waits for room for `timeout_ns`, as tranship_alloc does, for all of them together: TRANSHIP_ERR_FULL when not all went. With TRANSHIP_NOW it sends as many
/// as there is room for.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_send_many(
    sender: Option<&mut Sender>,
    bufs: *mut Buf,
    count: usize,
    timeout_ns: i64,
    sent: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let sent = sent.map(|sent| sent.write(0));
        let sender = &mut there(sender, "sender")?.0;
        let bufs = bufs_of(bufs, count)?;
        let mut left = Vec::with_capacity(count);
        let mut wrong = None;
        for buf in bufs.iter_mut() {
            match buf.take_body() {
                Ok(body) => left.push((body, buf.word)),
                Err(error) => {
                    wrong = Some(error.context(format!("buf {}", left.len())));
                    break;
                }
            }
        }
        let all = left.len();
        let done = send_all(sender, left, timeout_ns);
        let left = done.as_ref().err().map_or(0, |failed| failed.unsent.len());
        if let Some(sent) = sent {
            *sent = all - left;
        }
        if let Err(failed) = done {
            for (buf, (body, word)) in bufs[all - left..].iter_mut().zip(failed.unsent) {
                buf.put_message(Message { word, body });
            }
            return Err(failed.error);
        }
        wrong.map_or(Ok(()), Err)
    })
}

/// Sends payloads. All of them together wait at most for that time.
fn send_all(
    sender: &mut facade::Sender,
    left: Vec<(Body, u64)>,
    timeout_ns: i64,
) -> Result<(), SendError<Vec<(Body, u64)>>> {
    let limit = match timeout_ns {
        FOREVER => return sender.send_many(left).map(drop),
        _ => patience(timeout_ns).unwrap_or_default(),
    };
    let deadline = Instant::now() + limit;
    let mut left = left;
    loop {
        let mut failed = match sender.try_send_many(left) {
            Ok(_) => return Ok(()),
            Err(failed) => failed,
        };
        let time = deadline.saturating_duration_since(Instant::now());
        let waits = matches!(failed.kind(), ErrorKind::Full | ErrorKind::PoolPending);
        if !waits || time.is_zero() || failed.unsent.is_empty() {
            return Err(failed);
        }
        let first = failed.unsent.remove(0);
        left = failed.unsent;
        if let Err(SendError { error, unsent, .. }) = sender.send_timeout(first, time) {
            left.insert(0, unsent);
            return Err(SendError::new(error, left));
        }
    }
}

/// Sends up to TRANSHIP_INLINE_BYTES bytes inside the message itself, with a word: no pool, no buffer. Waits and fails as tranship_send does;
/// TRANSHIP_ERR_TOO_LARGE for more bytes.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_send_bytes(
    sender: Option<&mut Sender>,
    data: *const c_void,
    len: usize,
    word: u64,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let sender = &mut there(sender, "sender")?.0;
        let inline = bytes(data, len, "data")?;
        send(sender, (inline, word), timeout_ns).map_err(|failed| failed.error)
    })
}

/// Sends a payload. Waits at most for that time.
#[inline(always)]
fn send<P: Payload>(
    sender: &mut facade::Sender,
    payload: P,
    timeout_ns: i64,
) -> Result<(), SendError<P::Unsent>> {
    let sent = match timeout_ns {
        FOREVER => sender.send(payload),
        ..=0 => sender.try_send(payload),
        _ => sender.send_timeout(payload, nanoseconds(timeout_ns)),
    };
    sent.map(drop)
}

/// Receives the next reply of the receiver: a few bytes (tranship_send_back_bytes), a buffer (tranship_send_back), or a
/// release (tranship_send_back_released). Waits for it for `timeout_ns` as tranship_recv does: TRANSHIP_ERR_TIMED_OUT
/// if nothing has come by then. Replies of a receiver that is gone can still be taken; after them
/// TRANSHIP_ERR_PEER_GONE, and with TRANSHIP_NOW TRANSHIP_ERR_TIMED_OUT. `out` is filled as by tranship_recv.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_recv_back(
    sender: Option<&mut Sender>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let sender = &mut there(sender, "sender")?.0;
        let message = match timeout_ns {
            FOREVER => sender.recv_back()?,
            ..=0 => sender.try_recv_back()?.ok_or(ErrorKind::TimedOut)?,
            _ => sender.recv_back_timeout(nanoseconds(timeout_ns))?,
        };
        out.put_message(message);
        Ok(())
    })
}

/// Asks the receiver to take a pool, ahead of the first send out of it. With TRANSHIP_NOW it does not wait: TRANSHIP_ERR_POOL_PENDING if the
/// receiver has still to answer, which it does when it next calls the library; call it again. Else it waits for that, for `timeout_ns`:
/// TRANSHIP_ERR_TIMED_OUT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_assign(
    sender: Option<&mut Sender>,
    pool: Option<&Pool>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let sender = &mut there(sender, "sender")?.0;
        let pool = pool::held(pool)?;
        match timeout_ns {
            FOREVER => sender.assign(&pool),
            ..=0 if sender.try_assign(&pool)? => Ok(()),
            ..=0 => Err(ErrorKind::PoolPending.into()),
            _ => sender.assign_timeout(&pool, nanoseconds(timeout_ns)),
        }
    })
}

/// Waits until the receiver has taken all that was sent, for `timeout_ns` as tranship_alloc does.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_wait_taken(
    sender: Option<&mut Sender>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        there(sender, "sender")?.0.wait_taken(patience(timeout_ns))
    })
}

/// Returns how many messages the receiver has not taken yet.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_queued(sender: Option<&Sender>) -> u64 {
    quietly(0, || sender.map_or(0, |sender| sender.0.queued()))
}

/// Returns the receiver's domain. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_sender_peer(sender: Option<&Sender>) -> u32 {
    quietly(0, || sender.map_or(0, |sender| sender.0.status().peer.0))
}
