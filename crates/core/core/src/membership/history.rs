//! Histories of buffers, out of the records of domains.

use crate::error::Error;
use std::os::fd::OwnedFd;
use tranship_proto::{BufferId, ChannelId, DomainId};
use tranship_region::layout::trace::What;
use tranship_region::layout::{TraceRo, Traced};

/// One domain's record of traced buffers: the latest 4096 events.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// domain.admin().trace(pool.id(), true, true)?;
/// # domain.turn()?;
/// drop(pool.copy(b"a frame")?);
/// for trace in domain.admin().traces()? {
///     for event in &trace.events {
///         println!("{}: {:?} of {:?}", trace.name, event.did, event.buffer);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    /// Id of the domain.
    pub domain: DomainId,
    /// Name of the domain.
    pub name: String,
    /// Number of the domain's process.
    pub pid: u32,
    /// Whether the domain is still there.
    pub alive: bool,
    /// The events, in the order of their times.
    pub events: Vec<TraceEvent>,
    /// Number of events before the last one that are overwritten, or not whole.
    pub lost: u64,
    /// Number of invalid entries: half written when the domain ended, or lies.
    pub torn: u32,
}

/// An operation of a domain on a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// Time on the machine's clock (`CLOCK_MONOTONIC`), ns.
    pub at_ns: u64,
    /// Number of the event among this domain's, from 1 on.
    pub number: u64,
    /// The buffer.
    pub buffer: BufferId,
    /// The operation.
    pub did: Did,
    /// Bytes of the buffer.
    pub length: u64,
    /// Of a sent or received buffer: the low 32 bits of the message's word. Components that pass a word on show the
    /// path of a request by it.
    pub word: u32,
}

/// A domain's operation on a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Allocated it.
    Allocated,
    /// Sent it.
    Sent {
        /// Over which channel.
        channel: ChannelId,
        /// Receiving domain.
        to: DomainId,
        /// Whether it was moved: then it is the other domain's alone.
        moved: bool,
    },
    /// Received it.
    Received {
        /// Over which channel.
        channel: ChannelId,
        /// Sending domain.
        from: DomainId,
        /// Whether it was moved: then it is the receiver's alone.
        moved: bool,
    },
    /// Dropped a handle of it.
    Released,
}

impl Did {
    /// Returns the word for it, as `tranship trace` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Did::Allocated => "allocated",
            Did::Sent { moved: false, .. } => "sent",
            Did::Sent { .. } => "moved away",
            Did::Received { moved: false, .. } => "received",
            Did::Received { .. } => "moved here",
            Did::Released => "released",
        }
    }
}

fn event((number, e): (u64, Traced)) -> TraceEvent {
    let (channel, peer, moved) = (ChannelId(e.channel), DomainId(e.peer), e.moved);
    TraceEvent {
        at_ns: e.at_ns,
        number,
        buffer: BufferId(e.buffer),
        did: match e.what {
            What::Allocated => Did::Allocated,
            What::Sent => Did::Sent {
                channel,
                to: peer,
                moved,
            },
            What::Received => Did::Received {
                channel,
                from: peer,
                moved,
            },
            What::Released => Did::Released,
        },
        length: e.length,
        word: e.word,
    }
}

impl Trace {
    /// Reads a ring of records. The manager names its domain.
    pub(super) fn read(ring: &OwnedFd) -> Result<Trace, Error> {
        let read = TraceRo::open(ring)?.read();
        let mut events: Vec<_> = read.events.into_iter().map(event).collect();
        events.sort_by_key(|e| (e.at_ns, e.number));
        Ok(Trace {
            domain: DomainId(0),
            name: String::new(),
            pid: 0,
            alive: false,
            events,
            lost: read.lost,
            torn: read.torn,
        })
    }
}
