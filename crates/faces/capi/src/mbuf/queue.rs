//! Queues of packets, which programs have by value.

use super::{Mbuf, given, owned};
use crate::status::quietly;
use facade::mbuf::PacketQueue;
use std::mem::{align_of, size_of};
use std::ptr::{NonNull, null_mut};

/// A queue of packets (mbufq), linked through the packets themselves. All zeros, with a limit in `mq_maxlen`, is an
/// empty one. One thread at a time uses it.
#[repr(C)]
#[derive(Debug)]
pub struct Mbufq {
    /// The first packet.
    pub mq_first: *mut Mbuf,
    /// The last packet.
    pub mq_last: *mut Mbuf,
    /// The number of packets.
    pub mq_len: usize,
    /// The most packets.
    pub mq_maxlen: usize,
}

const _: () = assert!(size_of::<Mbufq>() == size_of::<PacketQueue>());
const _: () = assert!(align_of::<Mbufq>() == align_of::<PacketQueue>());

fn queue<'a>(mq: *mut Mbufq) -> Option<&'a mut PacketQueue> {
    // SAFETY: the caller promises: a queue, which no other thread uses. Both structs have the same four words.
    unsafe { mq.cast::<PacketQueue>().as_mut() }
}

const ENOBUFS: i32 = 105;

/// Puts a packet at the end (mbufq_enqueue). 0, or ENOBUFS: the queue is full, and the packet stays the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufq_enqueue(mq: *mut Mbufq, m: *mut Mbuf) -> i32 {
    let Some(queue) = queue(mq) else {
        return super::EINVAL;
    };
    quietly(ENOBUFS, || match owned(m).map(|m| queue.enqueue(m)) {
        Some(Ok(())) => 0,
        Some(Err(back)) => {
            given(back);
            ENOBUFS
        }
        None => super::EINVAL,
    })
}

/// Takes the first packet out (mbufq_dequeue). NULL: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufq_dequeue(mq: *mut Mbufq) -> *mut Mbuf {
    let taken = queue(mq).and_then(PacketQueue::dequeue);
    taken.map_or(null_mut(), given)
}

/// Puts a packet in front, even if the queue is full (mbufq_prepend).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufq_prepend(mq: *mut Mbufq, m: *mut Mbuf) {
    if let (Some(queue), Some(m)) = (queue(mq), owned(m)) {
        queue.prepend(m);
    }
}

/// Moves all packets of `from` behind those of `mq`, even above its limit (mbufq_concat).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufq_concat(mq: *mut Mbufq, from: *mut Mbufq) {
    if std::ptr::eq(mq, from) {
        return;
    }
    if let (Some(queue), Some(from)) = (queue(mq), queue(from)) {
        queue.concat(from);
    }
}

/// Takes all packets out, as a list by tranship_m_nextpkt; returns the first one (mbufq_flush).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufq_flush(mq: *mut Mbufq) -> *mut Mbuf {
    let first = queue(mq).and_then(PacketQueue::into_raw);
    first.map_or(null_mut(), |first| first.as_ptr().cast())
}

/// Frees all packets (mbufq_drain).
#[unsafe(no_mangle)]
pub extern "C" fn tranship_mbufq_drain(mq: *mut Mbufq) {
    if let Some(queue) = queue(mq) {
        quietly((), || queue.drain());
    }
}

/// The packet behind it in a queue, or in the list of tranship_mbufq_flush (m_nextpkt). NULL: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_m_nextpkt(m: *const Mbuf) -> *mut Mbuf {
    let next = NonNull::new(m.cast_mut()).and_then(|m| {
        // SAFETY: the caller promises: a packet.
        unsafe { PacketQueue::next_raw(m.cast()) }
    });
    next.map_or(null_mut(), |next| next.as_ptr().cast())
}
