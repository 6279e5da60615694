//! The sending end of a channel.

mod alloc;
mod assign;
mod close;
mod collect;
mod facts;
mod forms;
mod inside;
mod many;
mod moves;
mod pace;
mod publish;
mod recv_back;
mod remove;
mod replies;
mod room;
mod seal;

use super::descriptor::{self};
use super::message::Message;
use super::shared::{Assignment, Gone, LinkShared};
use super::store::Store;
use crate::buffer::{Handle, Home, Tag};
use crate::domain::{Asked, Subject};
use crate::error::{Error, ErrorKind, SendError};
use crate::options::{ChannelOptions, Outcome, Patience, PoolOptions, Wait};
use crate::pool::{FEW, Pool};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Instant;
use tranship_ledger::Sent;
use tranship_proto::PoolId;
use tranship_region::layout::CountsRw;
use tranship_region::layout::trace::What;
use tranship_ring::{Lines, Producer};
use tranship_sync::DeferProducer;
use tranship_sys::ForkGuard;

/// Sends messages to one receiver. Everything sent before it is dropped can still be received: if the manager was killed meanwhile,
/// dropping it waits until another one, or the receiver, has all of it (at most 5 s; [`wait_taken`](Sender::wait_taken) as long as you like).
///
/// Blocking: only as [`WhenFull`] says, also for the first send from a pool, to which the receiver has to agree:
/// [`assign`](Sender::assign) and [`try_assign`](Sender::try_assign) ask it ahead of time. Crash-safe: whatever was published
/// before a `kill -9` arrives.
///
/// ```
/// # use tranship_core::{Domain, PoolOptions, Receiver, Sender};
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
/// let frame = pool.copy(b"a frame")?.freeze();
/// sender.send(frame.clone())?; // shared: both ends have it
/// sender.send((frame, 60))?; // with a number of the program's own
/// sender.send(b"a few bytes")?; // inside the line itself
/// sender.send(pool.copy(b"yours")?)?; // given away
/// # for what in [&b"a frame"[..], b"a frame", b"a few bytes", b"yours"] {
/// #     assert_eq!(receiver.recv()?.to_vec(), what);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sender {
    pub(super) link: Arc<LinkShared>,
    lines: Lines<'static>,
    producer: Producer,
    fork: ForkGuard,
    /// The assignments, most recently used first.
    outs: Vec<Out>,
    /// Pools whose assignment was asked for and that the receiver has not answered in time.
    unanswered: Vec<(PoolId, Asked)>,
    /// Time since when the receiver has no manager, as far as is known: it dies, or comes back.
    away_since: Option<Instant>,
    wait: Wait,
    patience: Patience,
    /// Bit of every line that lets the receiver skip its message: set while the channel drops the oldest.
    skippable: u64,
    pub(in crate::link) dropped: u64,
    /// Messages to a receiver of this process.
    store: Option<Arc<Store>>,
    /// Bytes of the longest message that the store takes.
    most_bytes: u64,
    /// Whether a drop waits until a carrier has brought everything to its place.
    lingers: bool,
    /// Number of messages that the receiver had taken at the last look.
    taken: u32,
    /// Mask for looks at dead buffers: a first send looks if its number has none of these bits.
    look_mask: u32,
    pace: pace::Pace,
    /// The channel's own pool, made when a buffer is first allocated from it.
    pool: Option<Pool>,
    /// The shape of the channel's own pool, if it is not the default.
    pool_options: Option<Box<PoolOptions>>,
    /// Message that a dropped future had still to send.
    pub(super) unsent: Option<Box<Message>>,
}

/// Place of the pool that was used last.
const FIRST: usize = 0;

/// A pool that can be sent from.
struct Out {
    /// The pool; null if an end has removed it, so that no send finds it.
    home: *const (),
    /// The first of `counts`.
    sent: NonNull<AtomicU32>,
    counts: Arc<CountsRw>,
    assignment: Arc<Assignment>,
    /// Queue of the buffers that this sender sent first of its own pool.
    defer: Option<DeferProducer>,
}

// SAFETY: `home` is only compared, never followed; `sent` points to atomics that `counts` beside it keeps.
unsafe impl Send for Out {}
// SAFETY: as above.
unsafe impl Sync for Out {}

impl Sender {
    pub(crate) fn link(&self) -> &LinkShared {
        &self.link
    }

    pub(crate) fn link_arc(&self) -> &Arc<LinkShared> {
        &self.link
    }

    pub(super) fn new(link: Arc<LinkShared>, options: &ChannelOptions) -> Result<Sender, Error> {
        // The lines are in this end's half, which `link` keeps mapped as long as this Sender lives.
        let lines = link.own_lines();
        Ok(Sender {
            lines,
            producer: Producer::new(),
            fork: link.domain.fork,
            outs: Vec::new(),
            unanswered: Vec::new(),
            away_since: None,
            wait: options.wait,
            patience: Patience::Channel(options.when_full),
            skippable: descriptor::skippable(options.when_full),
            dropped: 0,
            store: None,
            most_bytes: u64::MAX,
            lingers: false,
            taken: 0,
            look_mask: FEW - 1,
            pace: pace::Pace::default(),
            pool: None,
            pool_options: options.pool.clone(),
            unsent: None,
            link,
        })
    }

    fn not_sent<T>(&mut self, error: Error, unsent: T) -> Result<Outcome, SendError<T>> {
        match self.drops(&error) {
            true => Ok(Outcome::Dropped),
            false => Err(SendError::new(error, unsent)),
        }
    }

    /// Whether a message with this error is dropped and counted, as the channel's options say: the receiver is behind,
    /// or no manager is there to join the two ends.
    pub(super) fn drops(&mut self, error: &Error) -> bool {
        let behind = matches!(error.kind(), ErrorKind::Full | ErrorKind::ManagerAway);
        let drops = behind && self.patience.drops();
        self.dropped += u64::from(drops);
        drops
    }

    #[cold]
    pub(super) fn peer_gone(&self) -> Error {
        if let Some(why) = self.link.why() {
            return why;
        }
        let channel = self.link.channel;
        let text = format!("the receiver of channel {channel} is gone");
        Error::new(ErrorKind::PeerGone, text)
    }

    #[inline(always)]
    fn alive(&self) -> Result<(), Error> {
        if self.link.domain.fork.is_child() {
            return Err(ErrorKind::Forked.into());
        }
        self.link.domain.catch_up();
        match self.link.gone() {
            Gone::No => Ok(()),
            _ => Err(self.peer_gone()),
        }
    }

    /// Gives back the assignments of pools that are gone. No handle of a buffer of such a pool is left.
    #[inline]
    fn give_back_assignments(&mut self) {
        if self.link.drop_over() {
            self.outs.retain(|out| !out.assignment.is_over());
        }
    }

    /// Returns the place of an assigned pool among `outs`.
    fn place_of(&self, home: *const ()) -> Option<usize> {
        self.outs.iter().position(|out| out.home == home)
    }

    /// Returns the words that count a sent buffer, if its pool is assigned.
    fn words_of(&self, buf: Handle) -> Option<Sent<'_>> {
        words_of(&self.outs, buf)
    }

    /// Records that a buffer is sent, if it is traced.
    #[inline]
    fn note(&self, handle: Handle, moved: bool, word: u64) {
        if handle.tag.has(Tag::TRACED) {
            let of = Subject {
                id: handle.wire_id(),
                offset: handle.place().0,
                length: handle.len as u64,
            };
            let over = (self.link.channel, self.link.peer);
            self.link
                .domain
                .note_on(What::Sent, of, over, (moved, word));
        }
    }

    #[inline(always)]
    fn wake(&self) {
        self.link.notify();
    }

    fn fence_and_wake(&self) {
        self.link.fence_then_notify();
    }
}

/// Returns the words that count a sent buffer, if its pool is among these.
#[inline(always)]
fn words_of(outs: &[Out], buf: Handle) -> Option<Sent<'_>> {
    let key = buf.home_key();
    let out = outs.iter().find(|out| out.home == key)?;
    let generation = match buf.home() {
        // SAFETY: pools outlive their outstanding slots, and the assignment keeps this one.
        Home::Own(pool) => Some(unsafe { pool.as_ref() }.generation_word(buf.slot())),
        Home::Foreign(_) => None,
    };
    // The only writer of this counter is the Sender.
    let sent = &out.counts.counts()[buf.slot() as usize];
    Some(Sent { generation, sent })
}

#[cold]
fn others_buffer() -> Error {
    let text =
        "the buffer belongs to another domain of this process, and only that one may send it";
    Error::new(ErrorKind::BufferNotOwned, text)
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("link", &self.link)
            .field("sent", &self.producer.tail())
            .finish_non_exhaustive()
    }
}
