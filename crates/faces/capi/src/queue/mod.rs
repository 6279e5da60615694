//! Queues: `include/tranship/queue.h`.

use crate::buf::{Buf, place};
use crate::domain::{self, Domain};
use crate::given::{bytes, limit, patience, text, there};
use crate::link::wait;
use crate::open::closed;
use crate::options::{Grows, flag, grown, no_more, own_pool, set, typed};
use crate::payload::{sent, within};
use crate::status::{Error, Status, border, making, quietly};
use facade::queue::{self, ConsumerOptions as Consuming, QueueOptions as Producing};
use facade::queue::{Enqueue, Queues as _, WhenLost};
use facade::{Message, SendError};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

/// A writing end of a queue. One thread at a time.
#[derive(Debug)]
pub struct Producer(pub(crate) queue::Producer);

/// A reading end of a queue. One thread at a time.
#[derive(Debug)]
pub struct Consumer(pub(crate) queue::Consumer);

/// An item that a consumer has taken. Any thread may have it.
#[derive(Debug)]
pub struct Item(queue::Item);

/// In `flags` of tranship_queue_options: an item whose consumer ended without acknowledging it is reported (tranship_producer_take_lost). Without this
/// it goes back to the queue.
pub const QUEUE_REPORT_LOST: u32 = 1;
/// In `flags` of tranship_queue_options: no other producer may have the name. All producers must say the same.
pub const QUEUE_EXCLUSIVE: u32 = 2;

/// A producer's part of a queue. Set `size` to `sizeof(struct tranship_queue_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// sizeof(struct tranship_queue_options)
    pub size: usize,
    /// Items of this producer that may wait: a power of two, 2 to 65,536. 0: 64.
    pub depth: u32,
    /// Buffers that a consumer may keep beside 12. 0: 64.
    pub keep: u32,
    /// TRANSHIP_QUEUE_REPORT_LOST, TRANSHIP_QUEUE_EXCLUSIVE, both, or 0.
    pub flags: u32,
    /// The most buffers of the producer's own pool. 0: 1024.
    pub slots: u32,
    /// The most bytes of that pool: addresses, memory comes as it is needed. 0: 1 GiB.
    pub max_bytes: u64,
    /// The type of the items, as a text that both sides must have alike: NULL for bytes (see tranship_channel_options).
    pub message_type: *const c_char,
    /// The most pieces of an aggregate, up to 32. 0: 8.
    pub pieces: u32,
    /// 0.
    pub reserved: u32,
}

/// In `flags` of tranship_consumer_options: items are done when they are received.
pub const CONSUMER_AUTO_ACK: u32 = 1;

/// A consumer's part of a queue. Set `size` to `sizeof(struct tranship_consumer_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConsumerOptions {
    /// sizeof(struct tranship_consumer_options)
    pub size: usize,
    /// TRANSHIP_CONSUMER_AUTO_ACK, or 0.
    pub flags: u32,
    /// Items of one producer that may be taken and not acknowledged, 1 to 64. 0: the library's default.
    pub unacknowledged: u32,
    /// TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how it waits. 0: the first.
    pub wait: u32,
    /// How often it looks before it sleeps. 0: 500.
    pub spins: u32,
    /// The type of the items, as a text that both sides must have alike: NULL for bytes.
    pub message_type: *const c_char,
}

// SAFETY: of integers and a pointer, the size first.
unsafe impl Grows for QueueOptions {
    const NAME: &str = "tranship_queue_options";
}
// SAFETY: as above.
unsafe impl Grows for ConsumerOptions {
    const NAME: &str = "tranship_consumer_options";
}

impl QueueOptions {
    fn queue(self, name: &str) -> Result<Producing, facade::Error> {
        no_more("flags", self.flags, QUEUE_REPORT_LOST | QUEUE_EXCLUSIVE)?;
        no_more("reserved", self.reserved, 0)?;
        let has = |flag| self.flags & flag != 0;
        let options = Producing::new().pool(own_pool(name, self.max_bytes, self.slots));
        let options = typed(options, self.message_type, Producing::message_type)?;
        let options = set(options, self.pieces, Producing::pieces);
        let options = set(options, self.depth, Producing::depth);
        let options = set(options, self.keep, Producing::keep);
        let reports = |options: Producing| options.when_lost(WhenLost::Report);
        let options = flag(options, has(QUEUE_REPORT_LOST), reports);
        Ok(flag(options, has(QUEUE_EXCLUSIVE), Producing::exclusive))
    }
}

impl ConsumerOptions {
    fn consumer(self) -> Result<Consuming, facade::Error> {
        no_more("flags", self.flags, CONSUMER_AUTO_ACK)?;
        let options = Consuming::new().wait(wait(self.wait, self.spins)?);
        let options = typed(options, self.message_type, Consuming::message_type)?;
        let open = self.unacknowledged as usize;
        let options = set(options, open, Consuming::unacknowledged);
        let acks = self.flags & CONSUMER_AUTO_ACK != 0;
        Ok(flag(options, acks, Consuming::auto_ack))
    }
}

/// Joins a queue as a producer: each of its items goes to one consumer. `options` may be NULL.
///
/// Close it with tranship_producer_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_produce(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const QueueOptions,
    out: Option<&mut MaybeUninit<Option<Box<Producer>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = grown(options)?.queue(name)?;
        Ok(Producer(domain.produce_with(name, options)?))
    })
}

/// Closes it. Items that wait go with it: tranship_producer_wait_done waits for them. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_close(producer: Option<Box<Producer>>) {
    quietly((), || drop(closed(producer, "tranship_producer_close")));
}

/// A buffer of `len` bytes of the producer's own pool, in `buf`, which all consumers can read, and which goes over this queue only. Waits for memory that
/// items and consumers hold, for `timeout_ns`. `buf` need not be initialised. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_alloc(
    producer: Option<&mut Producer>,
    len: usize,
    timeout_ns: i64,
    buf: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = place(buf, "buf")?;
        let producer = &mut there(producer, "producer")?.0;
        buf.put_exclusive(producer.alloc_timeout(len, limit(timeout_ns))?);
        Ok(())
    })
}

fn put<P: Enqueue>(
    producer: &mut queue::Producer,
    payload: P,
    timeout_ns: i64,
) -> Result<(), SendError<P::Unsent>> {
    let ways = (queue::Producer::try_send, queue::Producer::send_timeout);
    within(producer, payload, timeout_ns, ways)
}

/// Puts the contents of `buf` into the queue, with the word `buf->word`: a buffer of tranship_producer_alloc, an aggregate of such, or inline bytes. It is shared, and `buf`
/// then holds nothing. Waits for room for `timeout_ns`: TRANSHIP_ERR_FULL, TRANSHIP_ERR_TIMED_OUT. On failure `buf` is as before, but shared.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_send(
    producer: Option<&mut Producer>,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let producer = &mut there(producer, "producer")?.0;
        sent(there(buf, "buf")?, |payload| {
            put(producer, payload, timeout_ns)
        })
    })
}

/// Puts up to TRANSHIP_INLINE_BYTES bytes into the queue, with a word. Waits as tranship_producer_send does.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_send_bytes(
    producer: Option<&mut Producer>,
    data: *const c_void,
    len: usize,
    word: u64,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let producer = &mut there(producer, "producer")?.0;
        let sent = put(producer, (bytes(data, len, "data")?, word), timeout_ns);
        sent.map_err(|failed| failed.error)
    })
}

/// Takes new consumers in, and gives back what consumers that ended had not acknowledged. A send does so now and then; a producer that is idle calls this.
/// It does not block.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_tend(
    producer: Option<&mut Producer>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || there(producer, "producer")?.0.tend())
}

/// Waits until at least `consumers` of them have joined, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_wait_for(
    producer: Option<&mut Producer>,
    consumers: usize,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let producer = &mut there(producer, "producer")?.0;
        producer.wait_for(consumers, patience(timeout_ns))
    })
}

/// Waits until all items are taken, and acknowledged, lost or rejected, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_wait_done(
    producer: Option<&mut Producer>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        there(producer, "producer")?
            .0
            .wait_done(patience(timeout_ns))
    })
}

/// An item that was lost with its consumer (TRANSHIP_QUEUE_REPORT_LOST) or rejected, in `out`; kind TRANSHIP_BUF_NONE if there is none. `consumer_pid`, if it is
/// not NULL, is the consumer's process, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_producer_take_lost(
    producer: Option<&mut Producer>,
    out: Option<&mut MaybeUninit<Buf>>,
    consumer_pid: Option<&mut MaybeUninit<u32>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let lost = there(producer, "producer")?.0.take_lost();
        let pid = lost
            .as_ref()
            .and_then(|lost| lost.consumer)
            .map_or(0, |(_, pid)| pid);
        if let Some(to) = consumer_pid {
            to.write(pid);
        }
        if let Some(lost) = lost {
            out.put_message(lost.message);
        }
        Ok(())
    })
}

/// Joins a queue as a consumer, and returns at once: it joins while it receives. `options` may be NULL.
///
/// Close it with tranship_consumer_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_consume(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const ConsumerOptions,
    out: Option<&mut MaybeUninit<Option<Box<Consumer>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = grown(options)?.consumer()?;
        Ok(Consumer(domain.consume_with(name, options)?))
    })
}

/// Closes it. Items that were not acknowledged go back to the queue; what was received stays. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_consumer_close(consumer: Option<Box<Consumer>>) {
    quietly((), || drop(closed(consumer, "tranship_consumer_close")));
}

/// The next item: what was sent, in `out` as of tranship_recv, and the item itself, in `*item`. Waits for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
/// End the item with tranship_item_ack, tranship_item_requeue or tranship_item_reject, and `out` with tranship_release, in any order.
///
/// `out` need not be initialised. On failure it holds nothing, and `*item` is NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_consumer_recv(
    consumer: Option<&mut Consumer>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Buf>>,
    item: Option<&mut MaybeUninit<Option<Box<Item>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(item, error, || {
        let out = place(out, "out")?;
        let consumer = &mut there(consumer, "consumer")?.0;
        let item = match consumer.try_recv()? {
            Some(item) => item,
            None => consumer.recv_timeout(limit(timeout_ns))?,
        };
        if let Some(body) = item.body.share() {
            out.put_message(Message {
                word: item.word,
                body,
            });
        }
        Ok(Item(item))
    })
}

/// 1 if the item was taken before, by a consumer that gave it back or died, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_item_redelivered(item: Option<&Item>) -> i32 {
    quietly(0, || item.is_some_and(|item| item.0.redelivered()).into())
}

/// Acknowledges an item: it is done, and no other consumer gets it. The item is closed. TRANSHIP_ERR_PEER_GONE: its producer had ended, or ended this
/// connection, before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_item_ack(
    item: Option<Box<Item>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let item = there(closed(item, "tranship_item_ack"), "item")?;
        item.0.ack().map(drop)
    })
}

/// Gives an item back to its queue, where another consumer may take it. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_item_requeue(item: Option<Box<Item>>) {
    quietly((), || {
        if let Some(item) = closed(item, "tranship_item_requeue") {
            item.0.requeue();
        }
    });
}

/// Rejects an item: its producer gets it from tranship_producer_take_lost. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_item_reject(item: Option<Box<Item>>) {
    quietly((), || {
        if let Some(item) = closed(item, "tranship_item_reject") {
            item.0.reject();
        }
    });
}
