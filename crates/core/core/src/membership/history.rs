//! The histories of buffers, out of what their domains have recorded.

use super::shell::Domain;
use crate::error::{self, Error};
use tranship_proto::{BufferId, ChannelId, DomainId, Event, PoolId, Request};
use tranship_region::layout::trace::What;
use tranship_region::layout::{TraceRo, Traced};

/// What one domain recorded of traced buffers: the latest 4096 events.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, PoolOptions};
///
/// let domain = Domain::embedded()?;
/// let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// domain.trace(pool.id(), true, true)?;
/// # domain.turn()?;
/// drop(pool.copy(b"a frame")?);
/// for trace in domain.traces()? {
///     for event in &trace.events {
///         println!("{}: {:?} of {:?}", trace.name, event.did, event.buffer);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    /// Whose.
    pub domain: DomainId,
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Whether it is still there.
    pub alive: bool,
    /// By time, as it says.
    pub events: Vec<TraceEvent>,
    /// Events before the last one that are not there any more, or not whole.
    pub lost: u64,
    /// Entries that make no sense: half written when it ended, or lies.
    pub torn: u32,
}

/// Something that a domain did with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// When, on the machine's clock (`CLOCK_MONOTONIC`), ns.
    pub at_ns: u64,
    /// Its number among this domain's events, from 1 on.
    pub number: u64,
    /// With which buffer.
    pub buffer: BufferId,
    /// What.
    pub did: Did,
    /// Its bytes.
    pub length: u64,
}

/// What a domain did with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// Allocated it.
    Allocated,
    /// Sent it.
    Sent {
        /// Over which channel.
        channel: ChannelId,
        /// To whom.
        to: DomainId,
        /// So that it is the other's alone.
        moved: bool,
    },
    /// Received it.
    Received {
        /// Over which channel.
        channel: ChannelId,
        /// From whom.
        from: DomainId,
        /// So that it is its alone.
        moved: bool,
    },
    /// Dropped a handle of it.
    Released,
}

impl Did {
    /// Its word.
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
    }
}

impl Domain {
    /// Has all who have a pool record what they do with its buffers, from the next that they allocate or receive on; or no longer. Each does when it next calls the
    /// library for anything slow, or [`turn`](Domain::turn)s. `while_here`: until this domain's connection ends. Says whether it is traced now: somebody else may
    /// want it, too.
    ///
    /// Cost, while it is on: an event is written for each step of each buffer, and the fast paths are not taken. While it is off: none.
    ///
    /// # Errors
    /// `Refused` for a pool that is not there, and for whoever is neither root, nor the manager's own user, nor that of the pool's writer.
    pub fn trace(&self, pool: PoolId, on: bool, while_here: bool) -> Result<bool, Error> {
        let make = |req| Request::Trace {
            req,
            pool,
            on,
            while_here,
        };
        match self.core().call(make, &[])?.0 {
            Event::Tracing { on, .. } => Ok(on),
            other => Err(error::unexpected(&other, "a trace was asked for")),
        }
    }

    /// What domains have recorded, those that have ended included, as far as this user may see it: root and the manager's own user all of it, others what
    /// their own domains did. It is what these domains say, whole entries of it: a liar can say anything of itself.
    ///
    /// # Errors
    /// `TimedOut` when the manager has not answered within the [`manager_timeout`](crate::DomainBuilder::manager_timeout).
    pub fn traces(&self) -> Result<Vec<Trace>, Error> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let make = |req| Request::NextTrace { req, after };
            let (answer, fds) = self.core().call(make, &[])?;
            let Event::TraceRing {
                number,
                domain,
                name,
                pid,
                alive,
                ..
            } = answer
            else {
                return Ok(all);
            };
            let Some(ring) = fds.first().filter(|_| number > after) else {
                return Err(error::protocol("a trace that does not come"));
            };
            after = number;
            let read = TraceRo::open(ring)?.read();
            let mut events: Vec<_> = read.events.into_iter().map(event).collect();
            events.sort_by_key(|e| (e.at_ns, e.number));
            all.push(Trace {
                domain,
                name,
                pid,
                alive,
                events,
                lost: read.lost,
                torn: read.torn,
            });
        }
    }
}
