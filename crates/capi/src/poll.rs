//! Waiting for many things at once.

use crate::domain::Domain;
use crate::given::{patience, wrong};
use crate::listener::Listener;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::status::{Error, Status, border};
use std::collections::HashSet;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// As `kind`: `object` is a tranship_receiver: ready when there is a message, or the end.
pub const POLL_RECEIVER: u32 = 1;
/// As `kind`: `object` is a tranship_sender: ready when there is room for a message, or the receiver is gone.
pub const POLL_SENDER: u32 = 2;
/// As `kind`: `object` is a tranship_listener: ready when somebody has connected.
pub const POLL_LISTENER: u32 = 3;
/// As `kind`: `object` is a tranship_domain: ready when the manager had news, which were taken.
pub const POLL_DOMAIN: u32 = 4;
/// As `kind`: `fd` is a descriptor of any kind: ready when it can be read, hangs up or has an error.
pub const POLL_READABLE: u32 = 5;
/// As `kind`: `fd` is a descriptor of any kind: ready when it can be written, hangs up or has an error.
pub const POLL_WRITABLE: u32 = 6;

/// One thing to wait for.
#[repr(C)]
#[derive(Debug)]
pub struct PollItem {
    /// TRANSHIP_POLL_RECEIVER, ..., TRANSHIP_POLL_WRITABLE. 0: nothing, which is never ready.
    pub kind: u32,
    /// Set by tranship_poll: 1 if it is ready, else 0.
    pub ready: u32,
    /// The handle.
    pub object: *mut c_void,
    /// The descriptor.
    pub fd: i32,
    /// 0.
    pub reserved: u32,
}

/// Waits for `timeout_ns`, as tranship_alloc does, until at least one of `count` items is ready; sets `ready` of each, and `*ready` to how many
/// are: 0 when the time is over. Takes the manager's news meanwhile. The same handle may be there once only.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_poll(
    items: *mut PollItem,
    count: usize,
    timeout_ns: i64,
    ready: Option<&mut MaybeUninit<usize>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        if count > 0 && items.is_null() {
            return Err(wrong("items is NULL"));
        }
        let items = match count {
            0 => &mut [][..],
            // SAFETY: the caller's word: so many are there, and nobody else uses them during the call.
            _ => unsafe { std::slice::from_raw_parts_mut(items, count) },
        };
        let fds: Vec<_> = items.iter().map(|item| descriptor(item.fd)).collect();
        let mut seen = HashSet::new();
        let (mut waited_for, mut places) = (Vec::new(), Vec::new());
        for (at, (item, fd)) in items.iter_mut().zip(&fds).enumerate() {
            item.ready = 0;
            let what = what(item, fd.as_ref()).map_err(|e| e.context(format!("item {at}")))?;
            let Some(what) = what else {
                continue;
            };
            if matches!(item.kind, POLL_RECEIVER | POLL_SENDER) && !seen.insert(item.object) {
                return Err(wrong(format!("item {at} is there twice")));
            }
            waited_for.push(what);
            places.push(at);
        }
        let found = facade::poll(&mut waited_for, patience(timeout_ns))?;
        for at in &found {
            items[places[*at]].ready = 1;
        }
        if let Some(ready) = ready {
            ready.write(found.len());
        }
        Ok(())
    })
}

/// Its descriptor, if it is one that can be waited for.
fn descriptor<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: the caller's word: it stays open during the call.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn what<'a>(
    item: &PollItem,
    fd: Option<&'a BorrowedFd<'a>>,
) -> Result<Option<facade::PollItem<'a>>, facade::Error> {
    use facade::PollItem as Item;
    let (kind, object) = (item.kind, item.object);
    if matches!(kind, POLL_RECEIVER..=POLL_DOMAIN) && object.is_null() {
        return Err(wrong("object is NULL"));
    }
    Ok(Some(match kind {
        0 => return Ok(None),
        // SAFETY: the caller's word, here and below: `kind` says what it is, and nobody else uses it during the call.
        POLL_RECEIVER => Item::receiver(unsafe { &mut (*object.cast::<Receiver>()).0 }),
        // SAFETY: as above.
        POLL_SENDER => Item::sender(unsafe { &mut (*object.cast::<Sender>()).0 }),
        // SAFETY: as above.
        POLL_LISTENER => Item::listener(unsafe { &(*object.cast::<Listener>()).0 }),
        // SAFETY: as above.
        POLL_DOMAIN => Item::domain(unsafe { &(*object.cast::<Domain>()).0 }),
        POLL_READABLE | POLL_WRITABLE => {
            let none = || wrong(format!("fd is {}, which is no descriptor", item.fd));
            match (kind, fd.ok_or_else(none)?) {
                (POLL_READABLE, fd) => Item::readable(fd),
                (_, fd) => Item::writable(fd),
            }
        }
        _ => return Err(wrong(format!("kind is {kind}: 1 to 6, or 0"))),
    }))
}
