//! Buffers that were sent to this domain, taken by their ids.

use crate::buf::{Buf, place};
use crate::given::{there, wrong};
use crate::open::{closed, opened};
use crate::receiver::Receiver;
use crate::status::{Error, Status, border, quietly};
use facade::BufferId;
use std::mem::MaybeUninit;

/// Takes buffers by their ids, which a program carries by an IPC of its own. Any thread.
#[derive(Debug)]
pub struct Inbox(facade::Inbox);

/// Makes an inbox of what comes by `receiver`, in `out`. The receiver belongs to it from here on: do not use or close it.
/// The inbox keeps at most `most` messages of each channel that were not taken, beside those that still lie in the channel. On failure
/// the receiver stays the caller's.
///
/// The sender sends a buffer by tranship_send, and then its tranship_buf_id by a pipe, a socket or a request. The ids are
/// the same in both programs where memory is shared: at addresses `shm:` and `local:`.
///
/// Close it with tranship_inbox_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_inbox_create(
    receiver: *mut Receiver,
    most: usize,
    out: Option<&mut MaybeUninit<Option<Box<Inbox>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = there(out, "out")?.write(None);
        if most == 0 {
            return Err(wrong("most is 0: an inbox keeps at least 1 message"));
        }
        let receiver = there(taken(receiver, "tranship_inbox_create"), "receiver")?;
        *out = Some(opened(Box::new(Inbox(facade::Inbox::new(receiver, most)))));
        Ok(())
    })
}

/// Adds another channel to an inbox, for example another sender's. The receiver belongs to the inbox from here on.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_inbox_add(
    inbox: Option<&Inbox>,
    receiver: *mut Receiver,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let inbox = there(inbox, "inbox")?;
        inbox
            .0
            .add(there(taken(receiver, "tranship_inbox_add"), "receiver")?);
        Ok(())
    })
}

/// Takes the message with the buffer of this id, in `out`, as of tranship_recv; an aggregate has the id of its first
/// piece. The sender sends the buffer before its id. Waits for the manager alone, if it has still to show the memory of a
/// message: 5 s for each channel. TRANSHIP_ERR_TIMED_OUT: it did not. TRANSHIP_ERR_STALE: no such buffer was sent here, or
/// it was taken as often as it was sent. TRANSHIP_ERR_LIMIT: too many messages were not taken
/// (tranship_inbox_clear).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_inbox_take(
    inbox: Option<&Inbox>,
    id: u64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        out.put_message(there(inbox, "inbox")?.0.take(BufferId(id))?);
        Ok(())
    })
}

/// Releases all messages that were received and not taken; returns how many. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_inbox_clear(inbox: Option<&Inbox>) -> usize {
    quietly(0, || inbox.map_or(0, |inbox| inbox.0.drain().len()))
}

/// Closes it, and its channels; messages that were not taken are released. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_inbox_close(inbox: Option<Box<Inbox>>) {
    quietly((), || drop(closed(inbox, "tranship_inbox_close")));
}

/// Takes a receiver out of its handle, which is no handle any more.
fn taken(receiver: *mut Receiver, by: &str) -> Option<facade::Receiver> {
    // SAFETY: the caller promises: a receiver, or NULL, which is the inbox's from here on.
    let receiver = (!receiver.is_null()).then(|| unsafe { Box::from_raw(receiver) });
    closed(receiver, by).map(|receiver| receiver.0)
}
