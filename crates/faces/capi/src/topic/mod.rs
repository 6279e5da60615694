//! Topics: `include/tranship/topic.h`.

use crate::buf::{Buf, place};
use crate::domain::{self, Domain};
use crate::given::{bytes, limit, patience, text, there, wrong};
use crate::link::wait;
use crate::open::closed;
use crate::options::{Grows, flag, grown, no_more, own_pool, set, typed};
use crate::payload::{sent, within};
use crate::status::{Error, Status, border, making, quietly};
use facade::topic::{self, SubscriberOptions as Subscribing, TopicOptions as Publishing};
use facade::topic::{Topics as _, WhenBehind};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

/// The writing end of a topic. One thread at a time.
#[derive(Debug)]
pub struct Publisher(pub(crate) topic::Publisher);

/// The reading end of a topic. One thread at a time. What it received any thread may have.
#[derive(Debug)]
pub struct Subscriber(pub(crate) topic::Subscriber);

/// As `when_behind`, and the default: a publish overwrites the oldest message. No subscriber is reliable.
pub const BEHIND_OVERWRITE: u32 = 0;
/// As `when_behind`: a publish drops the new message where a reliable subscriber is behind (tranship_publisher_dropped).
pub const BEHIND_DROP_NEW: u32 = 1;
/// As `when_behind`: a publish waits for `wait_ns`. Subscribers that are still behind are then no longer reliable.
pub const BEHIND_WAIT: u32 = 2;

/// In `flags` of tranship_topic_options: publishers of other domains may have the name too, if all of them say this.
pub const TOPIC_SHARED: u32 = 1;

/// A topic to be published. Set `size` to `sizeof(struct tranship_topic_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TopicOptions {
    /// sizeof(struct tranship_topic_options)
    pub size: usize,
    /// Messages in the ring: a power of two, 2 to 65,536. 0: 16.
    pub depth: u32,
    /// Messages that a late subscriber gets, as far as the ring has them.
    pub history: u32,
    /// Buffers that a subscriber may keep beside 12. 0: 64.
    pub keep: u32,
    /// TRANSHIP_BEHIND_OVERWRITE, TRANSHIP_BEHIND_DROP_NEW, TRANSHIP_BEHIND_WAIT: what a publish does when a reliable subscriber is behind.
    pub when_behind: u32,
    /// With TRANSHIP_BEHIND_WAIT: how long, in nanoseconds.
    pub wait_ns: i64,
    /// The most bytes of the topic's own pool: addresses, memory comes as it is needed. 0: 1 GiB.
    pub max_bytes: u64,
    /// The most buffers of that pool. 0: 1024.
    pub slots: u32,
    /// TRANSHIP_TOPIC_SHARED, or 0.
    pub flags: u32,
    /// The type of the messages, as a text that both sides must have alike: NULL for bytes (see tranship_channel_options).
    pub message_type: *const c_char,
    /// The most pieces of an aggregate, up to 32. 0: 8.
    pub pieces: u32,
    /// 0.
    pub reserved: u32,
}

/// In `flags` of tranship_subscriber_options: asks the publisher not to overwrite what this subscriber has still to take.
pub const SUBSCRIBER_RELIABLE: u32 = 1;
/// In `flags` of tranship_subscriber_options: receives the newest message only; those before it count as missed.
pub const SUBSCRIBER_LATEST: u32 = 2;
/// In `flags` of tranship_subscriber_options: receives no message from before it joins.
pub const SUBSCRIBER_NO_HISTORY: u32 = 4;

/// A subscription. Set `size` to `sizeof(struct tranship_subscriber_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SubscriberOptions {
    /// sizeof(struct tranship_subscriber_options)
    pub size: usize,
    /// TRANSHIP_SUBSCRIBER_RELIABLE and others, or 0.
    pub flags: u32,
    /// TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how tranship_subscriber_recv waits. 0: the first.
    pub wait: u32,
    /// How often it looks before it sleeps. 0: 500.
    pub spins: u32,
    /// The most messages from before it joins. 0: as many as the topic gives.
    pub history: u32,
    /// The type of the messages, as a text that both sides must have alike: NULL for bytes.
    pub message_type: *const c_char,
}

// SAFETY: of integers and a pointer, the size first.
unsafe impl Grows for TopicOptions {
    const NAME: &str = "tranship_topic_options";
}
// SAFETY: as above.
unsafe impl Grows for SubscriberOptions {
    const NAME: &str = "tranship_subscriber_options";
}

impl TopicOptions {
    fn topic(self, name: &str) -> Result<Publishing, facade::Error> {
        no_more("flags", self.flags, TOPIC_SHARED)?;
        no_more("reserved", self.reserved, 0)?;
        let when_behind = match self.when_behind {
            BEHIND_OVERWRITE => WhenBehind::Overwrite,
            BEHIND_DROP_NEW => WhenBehind::DropNew,
            BEHIND_WAIT => WhenBehind::Wait(limit(self.wait_ns)),
            other => return Err(wrong(format!("when_behind is {other}: 0 to 2"))),
        };
        let options = Publishing::new().history(self.history);
        let options = options.when_behind(when_behind);
        let options = options.pool(own_pool(name, self.max_bytes, self.slots));
        let options = typed(options, self.message_type, Publishing::message_type)?;
        let options = set(options, self.depth, Publishing::depth);
        let options = set(options, self.keep, Publishing::keep);
        let options = set(options, self.pieces, Publishing::pieces);
        let is_shared = self.flags & TOPIC_SHARED != 0;
        Ok(flag(options, is_shared, Publishing::shared))
    }
}

impl SubscriberOptions {
    fn subscriber(self) -> Result<Subscribing, facade::Error> {
        let known = SUBSCRIBER_RELIABLE | SUBSCRIBER_LATEST | SUBSCRIBER_NO_HISTORY;
        no_more("flags", self.flags, known)?;
        let has = |flag| self.flags & flag != 0;
        let options = Subscribing::new().wait(wait(self.wait, self.spins)?);
        let options = typed(options, self.message_type, Subscribing::message_type)?;
        let options = set(options, self.history, Subscribing::history);
        let forgets = |options: Subscribing| options.history(0);
        let options = flag(options, has(SUBSCRIBER_NO_HISTORY), forgets);
        let options = flag(options, has(SUBSCRIBER_RELIABLE), Subscribing::reliable);
        Ok(flag(options, has(SUBSCRIBER_LATEST), Subscribing::latest))
    }
}

/// Publishes a topic: each message goes to all its subscribers. `options` may be NULL. TRANSHIP_ERR_NAME_TAKEN if a channel or another topic
/// has the name.
///
/// Close it with tranship_publisher_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publish(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const TopicOptions,
    out: Option<&mut MaybeUninit<Option<Box<Publisher>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = grown(options)?.topic(name)?;
        Ok(Publisher(domain.publish_with(name, options)?))
    })
}

/// Ends the topic in order: subscribers take what the ring still has, and then get TRANSHIP_ERR_PEER_GONE. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_close(publisher: Option<Box<Publisher>>) {
    quietly((), || drop(closed(publisher, "tranship_publisher_close")));
}

/// A buffer of `len` bytes of the topic's own pool, in `buf`, which all subscribers can read, and which goes over this topic only. Where nothing is free
/// the oldest messages are withdrawn; then it waits for memory that subscribers hold, for `timeout_ns` as tranship_alloc does:
/// TRANSHIP_ERR_OUT_OF_MEMORY names the holders. `buf` need not be initialised. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_alloc(
    publisher: Option<&mut Publisher>,
    len: usize,
    timeout_ns: i64,
    buf: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = place(buf, "buf")?;
        let publisher = &mut there(publisher, "publisher")?.0;
        buf.put_exclusive(publisher.alloc_timeout(len, limit(timeout_ns))?);
        Ok(())
    })
}

/// Publishes the contents of `buf`, with the word `buf->word`: a buffer of tranship_publisher_alloc, an aggregate of such, or inline bytes. It is shared:
/// keep a handle by tranship_buf_clone if it is still needed. `buf` then holds nothing; on failure it is as before, but shared.
/// TRANSHIP_ERR_TOO_LARGE for an aggregate of more pieces than the topic's messages may have.
///
/// Waits only for reliable subscribers, as `when_behind` says. A message that is dropped is no failure: tranship_publisher_dropped counts.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_send(
    publisher: Option<&mut Publisher>,
    buf: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let publisher = &mut there(publisher, "publisher")?.0;
        sent(there(buf, "buf")?, |payload| publisher.send(payload)).map(drop)
    })
}

/// Publishes as tranship_publisher_send does, but waits for reliable subscribers for `timeout_ns`, whatever `when_behind`
/// says, and drops no message. TRANSHIP_ERR_TIMED_OUT, or TRANSHIP_ERR_FULL with TRANSHIP_NOW, names the subscriber that
/// is behind.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_send_timeout(
    publisher: Option<&mut Publisher>,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let publisher = &mut there(publisher, "publisher")?.0;
        let ways = (topic::Publisher::try_send, topic::Publisher::send_timeout);
        let send = |payload| within(publisher, payload, timeout_ns, ways);
        sent(there(buf, "buf")?, send).map(drop)
    })
}

/// Publishes up to TRANSHIP_INLINE_BYTES bytes inside the message itself, with a word.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_send_bytes(
    publisher: Option<&mut Publisher>,
    data: *const c_void,
    len: usize,
    word: u64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let publisher = &mut there(publisher, "publisher")?.0;
        let sent = publisher.send((bytes(data, len, "data")?, word));
        sent.map(drop).map_err(|failed| failed.error)
    })
}

/// Takes new subscribers in, and removes those that are gone. A publish does this from time to time; an idle publisher
/// calls this function. It does not block.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_tend(
    publisher: Option<&mut Publisher>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || there(publisher, "publisher")?.0.tend())
}

/// Waits until at least `subscribers` of them have joined, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_wait_for(
    publisher: Option<&mut Publisher>,
    subscribers: usize,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let publisher = &mut there(publisher, "publisher")?.0;
        publisher.wait_for(subscribers, patience(timeout_ns))
    })
}

/// How many subscribers have joined and not left. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_subscribers(publisher: Option<&Publisher>) -> usize {
    quietly(0, || {
        publisher.map_or(0, |publisher| publisher.0.subscribers())
    })
}

/// How many messages were dropped because a reliable subscriber was behind. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_publisher_dropped(publisher: Option<&Publisher>) -> u64 {
    quietly(0, || {
        publisher.map_or(0, |publisher| publisher.0.status().dropped)
    })
}

/// Subscribes to a topic, and returns at once: it joins while it receives. `options` may be NULL.
///
/// Close it with tranship_subscriber_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_subscribe(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const SubscriberOptions,
    out: Option<&mut MaybeUninit<Option<Box<Subscriber>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = grown(options)?.subscriber()?;
        Ok(Subscriber(domain.subscribe_with(name, options)?))
    })
}

/// Closes it. What was received stays. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_subscriber_close(subscriber: Option<Box<Subscriber>>) {
    quietly((), || drop(closed(subscriber, "tranship_subscriber_close")));
}

/// The next message, in `out`, as of tranship_recv. Waits for a publisher and for its next message, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
/// TRANSHIP_ERR_PEER_GONE when the publisher has ended the topic, TRANSHIP_ERR_PEER_DIED when it died, each once: the next call waits for another
/// publisher. TRANSHIP_ERR_CHANNEL_BIND when the publisher's messages have another type. TRANSHIP_ERR_LIMIT when this subscriber keeps as many buffers as it may; the message stays the next one.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_subscriber_recv(
    subscriber: Option<&mut Subscriber>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let subscriber = &mut there(subscriber, "subscriber")?.0;
        out.put_message(match subscriber.try_recv()? {
            Some(message) => message,
            None => subscriber.recv_timeout(limit(timeout_ns))?,
        });
        Ok(())
    })
}

/// How many messages were overwritten before they were taken, or skipped by TRANSHIP_SUBSCRIBER_LATEST. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_subscriber_missed(subscriber: Option<&Subscriber>) -> u64 {
    quietly(0, || {
        subscriber.map_or(0, |subscriber| subscriber.0.missed())
    })
}
