//! The receiving end of a channel.

use crate::buf::{BUF_INLINE, BUF_SHARED, Buf, place, places};
use crate::given::{FOREVER, bytes, nanoseconds, patience, there};
use crate::open::closed;
use crate::status::{Error, Status, border, quietly};
use facade::{ErrorKind, Message, Released};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Receives messages from one sender. One thread at a time.
#[derive(Debug)]
pub struct Receiver(pub(crate) facade::Receiver);

/// Closes it. Received buffers stay. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_receiver_close(receiver: Option<Box<Receiver>>) {
    quietly((), || drop(closed(receiver, "tranship_receiver_close")));
}

/// Receives the next message, in `out`: a shared buffer (the kernel prevents writes), a buffer that was moved here,
/// inline bytes, or an aggregate, as `out->kind` says. `out->word` is the sender's word. Release it by
/// tranship_release.
///
/// Waits for `timeout_ns`, as tranship_alloc does: TRANSHIP_ERR_TIMED_OUT if nothing came. TRANSHIP_ERR_PEER_GONE: all
/// was received, and the sender has closed in order; TRANSHIP_ERR_PEER_DIED: the sender died, and messages may be
/// missing. Signal handlers run meanwhile, and the wait goes on.
///
/// `out` need not be initialised; an old content is not released. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_recv(
    receiver: Option<&mut Receiver>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let receiver = &mut there(receiver, "receiver")?.0;
        let message = match timeout_ns {
            FOREVER => receiver.recv()?,
            ..=0 => receiver.try_recv()?.ok_or(ErrorKind::TimedOut)?,
            _ => receiver.recv_timeout(nanoseconds(timeout_ns))?,
        };
        out.put_message(message);
        Ok(())
    })
}

/// Receives all messages that are there, at most `count` of them, in `out[0]` and so on, each as of tranship_recv; `*received` is how many. Waits for the first as
/// tranship_recv does. The sender gets the places of plain messages back together, by one wake-up.
///
/// On failure `*received` is 0. Bufs from `*received` on hold nothing, and need not be released.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_recv_many(
    receiver: Option<&mut Receiver>,
    timeout_ns: i64,
    out: *mut MaybeUninit<Buf>,
    count: usize,
    received: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let received = there(received, "received")?.write(0);
        let receiver = &mut there(receiver, "receiver")?.0;
        let out = places(out, count)?;
        let mut messages = Vec::with_capacity(count.min(64));
        if receiver.try_recv_many(&mut messages, count)? == 0 && count > 0 {
            let first = match timeout_ns {
                FOREVER => receiver.recv()?,
                ..=0 => return Err(ErrorKind::TimedOut.into()),
                _ => receiver.recv_timeout(nanoseconds(timeout_ns))?,
            };
            messages.push(first);
            // An error stays until the next call.
            let _ = receiver.try_recv_many(&mut messages, count - 1);
        }
        *received = messages.len();
        for (out, message) in out.iter_mut().zip(messages) {
            out.put_message(message);
        }
        Ok(())
    })
}

/// Hands back a buffer that was given to this receiver, with the word `buf->word`: the sender, whose pool it is of,
/// gets it from tranship_recv_back. A buffer of kind TRANSHIP_BUF_SHARED is handed back if it was given away and this
/// handle arrived: clones, parts and shared buffers are TRANSHIP_ERR_BUFFER_NOT_OWNED. Inline bytes are copied. `buf`
/// then holds nothing; on failure it is as before.
///
/// Waits for room on the way back for `timeout_ns`, as tranship_alloc does: TRANSHIP_ERR_FULL if there is none. A receiver that must
/// not wait for its sender says TRANSHIP_NOW: two ends that wait for each other wait for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_send_back(
    receiver: Option<&mut Receiver>,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let receiver = &mut there(receiver, "receiver")?.0;
        let buf = there(buf, "buf")?;
        let word = buf.word;
        if buf.kind == BUF_INLINE {
            let inline = buf.inline_to_send()?;
            let sent = receiver.send_back_timeout((inline, word), patience(timeout_ns));
            sent.map_err(|failed| failed.error)?;
            buf.release();
            return Ok(());
        }
        if buf.kind == BUF_SHARED {
            let back = buf.take_shared()?;
            let sent = receiver.send_back_timeout((back, word), patience(timeout_ns));
            return sent.map_err(|failed| {
                buf.put_shared(failed.unsent.0);
                failed.error
            });
        }
        let back = buf.take_exclusive()?;
        let sent = receiver.send_back_timeout((back, word), patience(timeout_ns));
        sent.map_err(|failed| {
            buf.put_exclusive(failed.unsent.0);
            failed.error
        })
    })
}

/// Releases a content that came by this channel, as tranship_release does, and tells the sender: it gets the word
/// `buf->word`, as TRANSHIP_BUF_RELEASED from tranship_recv_back. Waits for room on the way back for `timeout_ns`, as
/// tranship_send_back does. `buf` then holds nothing; on failure it is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_send_back_released(
    receiver: Option<&mut Receiver>,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let receiver = &mut there(receiver, "receiver")?.0;
        let buf = there(buf, "buf")?;
        let word = buf.word;
        let body = buf.take_body()?;
        let released = receiver.send_back_timeout((Released(body), word), patience(timeout_ns));
        released.map_err(|failed| {
            let body = failed.unsent.0;
            buf.put_message(Message { word, body });
            failed.error
        })
    })
}

/// Sends up to TRANSHIP_INLINE_BYTES bytes back to the sender, with a word. Waits for room on the way back for `timeout_ns`, as tranship_send_back does.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_send_back_bytes(
    receiver: Option<&mut Receiver>,
    data: *const c_void,
    len: usize,
    word: u64,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let receiver = &mut there(receiver, "receiver")?.0;
        let bytes = bytes(data, len, "data")?;
        let sent = receiver.send_back_timeout((bytes, word), patience(timeout_ns));
        sent.map_err(|failed| failed.error)
    })
}

/// Says that this end goes to sleep on the domain's descriptor (tranship_domain_fd). `may_sleep` is 1 if it may; 0 if a message, or the
/// end, is there already: receive first. From the first call on, messages show on that descriptor. Call it before each wait.
/// tranship_poll does so by itself.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_receiver_arm(
    receiver: Option<&mut Receiver>,
    may_sleep: Option<&mut MaybeUninit<i32>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let may_sleep = there(may_sleep, "may_sleep")?;
        may_sleep.write(there(receiver, "receiver")?.0.arm()?.into());
        Ok(())
    })
}

/// Says that this end is awake again.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_receiver_disarm(receiver: Option<&mut Receiver>) {
    quietly((), || {
        if let Some(receiver) = receiver {
            receiver.0.disarm();
        }
    });
}

/// Returns how many messages this receiver has skipped, because newer ones were there and the sender has
/// TRANSHIP_WHEN_FULL_DROP_OLDEST. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_receiver_skipped(receiver: Option<&Receiver>) -> u64 {
    quietly(0, || {
        receiver.map_or(0, |receiver| receiver.0.status().dropped)
    })
}

/// Returns the sender's domain. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_receiver_peer(receiver: Option<&Receiver>) -> u32 {
    quietly(0, || {
        receiver.map_or(0, |receiver| receiver.0.status().peer.0)
    })
}
