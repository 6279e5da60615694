//! Waiting for many things at once.

use crate::domain::Domain;
use crate::given::{patience, wrong};
use crate::listener::{Either, Listener};
use crate::options::no_more;
use crate::queue::Consumer;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::status::{Error, Status, border};
use crate::topic::Subscriber;
use std::collections::HashSet;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// As `kind`: `object` is a tranship_receiver: ready when there is a message, or the end.
pub const POLL_RECEIVER: u32 = 1;
/// As `kind`: `object` is a tranship_sender: ready when there is room for a message, or the receiver is gone.
pub const POLL_SENDER: u32 = 2;
/// As `kind`: `object` is a tranship_listener: ready when another domain has connected.
pub const POLL_LISTENER: u32 = 3;
/// As `kind`: `object` is a tranship_domain: ready when the manager had news, which were taken.
pub const POLL_DOMAIN: u32 = 4;
/// As `kind`: `fd` is a descriptor of any kind: ready when it can be read, hangs up or has an error.
pub const POLL_READABLE: u32 = 5;
/// As `kind`: `fd` is a descriptor of any kind: ready when it can be written, hangs up or has an error.
pub const POLL_WRITABLE: u32 = 6;
/// As `kind`: `object` is a tranship_subscriber (tranship/topic.h): ready when there is a message or an error.
pub const POLL_SUBSCRIBER: u32 = 7;
/// As `kind`: `object` is a tranship_consumer (tranship/queue.h): ready when there is an item or an error. A poll that
/// finds an item has taken it: tranship_consumer_recv gives it.
pub const POLL_CONSUMER: u32 = 8;

/// One thing to wait for.
#[repr(C)]
#[derive(Debug)]
pub struct PollItem {
    /// TRANSHIP_POLL_RECEIVER, ..., TRANSHIP_POLL_CONSUMER. 0: nothing, which is never ready.
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

/// Waits for `timeout_ns`, as tranship_alloc does, until at least one of `count` items is ready; sets `ready` of each,
/// and `*ready` to the number of ready items: 0 when the time is over. Takes the manager's news meanwhile. A handle may
/// be in one item only.
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
        let (each, most) = (size_of::<PollItem>(), isize::MAX.unsigned_abs());
        if count > most / each {
            return Err(wrong(format!(
                "count is {count}: there cannot be more than {} items of {each} bytes",
                most / each
            )));
        }
        let items = match count {
            0 => &mut [][..],
            // SAFETY: the caller's word: so many are there, and nobody else uses them during the call.
            _ => unsafe { std::slice::from_raw_parts_mut(items, count) },
        };
        let means = |(at, item): (usize, &PollItem)| {
            means(item).map_err(|e| e.context(format!("item {at}")))
        };
        let all: Result<Vec<_>, _> = items.iter().enumerate().map(means).collect();
        let all = all?;
        let mut seen = HashSet::new();
        let (mut waited_for, mut places) = (Vec::new(), Vec::new());
        for (at, (item, means)) in items.iter_mut().zip(&all).enumerate() {
            item.ready = 0;
            let is_once = matches!(
                means,
                Means::Receiver(_) | Means::Sender(_) | Means::Subscriber(_) | Means::Consumer(_)
            );
            if is_once && !seen.insert(item.object) {
                return Err(wrong(format!("item {at} is there twice")));
            }
            let Some(what) = means.what() else {
                continue;
            };
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

/// Object that an item names. An object that other threads may close is held as long as the call takes.
enum Means<'a> {
    Nothing,
    Receiver(*mut Receiver),
    Sender(*mut Sender),
    Listener(Arc<Either>),
    Domain(facade::Domain),
    Readable(BorrowedFd<'a>),
    Writable(BorrowedFd<'a>),
    Subscriber(*mut Subscriber),
    Consumer(*mut Consumer),
}

fn means<'a>(item: &PollItem) -> Result<Means<'a>, facade::Error> {
    let (kind, object) = (item.kind, item.object);
    if kind == 0 {
        return Ok(Means::Nothing);
    }
    no_more("reserved", item.reserved, 0)?;
    let is_descriptor = matches!(kind, POLL_READABLE | POLL_WRITABLE);
    if !is_descriptor && kind <= POLL_CONSUMER && object.is_null() {
        return Err(wrong("object is NULL"));
    }
    Ok(match kind {
        POLL_RECEIVER => Means::Receiver(object.cast()),
        POLL_SENDER => Means::Sender(object.cast()),
        // SAFETY: the caller's word: `kind` says what it is.
        POLL_LISTENER => Means::Listener(Arc::clone(unsafe { &(*object.cast::<Listener>()).0 })),
        // SAFETY: as above.
        POLL_DOMAIN => Means::Domain(unsafe { &(*object.cast::<Domain>()).0 }.clone()),
        POLL_READABLE => Means::Readable(descriptor(item.fd)?),
        POLL_WRITABLE => Means::Writable(descriptor(item.fd)?),
        POLL_SUBSCRIBER => Means::Subscriber(object.cast()),
        POLL_CONSUMER => Means::Consumer(object.cast()),
        _ => return Err(wrong(format!("kind is {kind}: 1 to 8, or 0"))),
    })
}

fn descriptor<'a>(fd: i32) -> Result<BorrowedFd<'a>, facade::Error> {
    if fd < 0 {
        return Err(wrong(format!("fd is {fd}, which is no descriptor")));
    }
    // SAFETY: the caller's word: it stays open during the call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

impl Means<'_> {
    fn what(&self) -> Option<facade::PollItem<'_>> {
        use facade::PollItem as Item;
        Some(match self {
            Means::Nothing => return None,
            // SAFETY: the caller's word: it is one, and nobody else uses it during the call; none of them is there twice.
            Means::Receiver(receiver) => Item::receiver(unsafe { &mut (**receiver).0 }),
            // SAFETY: as above.
            Means::Sender(sender) => Item::sender(unsafe { &mut (**sender).0 }),
            Means::Listener(listener) => match &**listener {
                Either::Sender(listener) => Item::listener(listener),
                Either::Receiver(listener) => Item::listener(listener),
            },
            Means::Domain(domain) => Item::domain(domain),
            Means::Readable(fd) => Item::readable(fd),
            Means::Writable(fd) => Item::writable(fd),
            // SAFETY: as above.
            Means::Subscriber(subscriber) => unsafe { &mut (**subscriber).0 }.poll_item(),
            // SAFETY: as above.
            Means::Consumer(consumer) => unsafe { &mut (**consumer).0 }.poll_item(),
        })
    }
}
