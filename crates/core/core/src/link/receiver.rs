//! The receiving end of a channel.

mod ahead;
mod direct;
mod forms;
mod guess;
mod inside;
mod missing;
mod over;
mod pass;
mod pending;
mod pools;
mod recv;
mod release;
mod remove;
mod snapshot;
mod take;
mod topic;

pub use self::ahead::Due;
use self::ahead::{Ahead, Resync};
pub(super) use self::forms::goes_later;
use self::guess::Guess;
pub(super) use self::pools::arrivals;
use self::pools::{AtHand, In};
pub use self::topic::Taken;
use super::driver::Driver;
use super::shared::LinkShared;
use super::store::Store;
use crate::domain::DomainCore;
use crate::error::Error;
use crate::options::{ChannelOptions, Wait};
use crate::pool::Pool;
use std::sync::Arc;
use tranship_proto::{PoolId, Role};
use tranship_ring::{Consumer, Lines, Producer};
use tranship_sys::ForkGuard;

/// Receives messages from one sender.
///
/// Crash-safe: a sender's death loses nothing that it had sent. Only
/// [`ErrorKind::PeerGone`](crate::ErrorKind::PeerGone) means that the sender closed the channel, by dropping its end,
/// after all its messages. A death is [`ErrorKind::PeerDied`](crate::ErrorKind::PeerDied).
///
/// ```
/// # use tranship_core::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
/// sender.send((pool.copy(b"a frame")?.freeze(), 60))?;
/// let message = receiver.recv()?; // `try_recv`, `recv_timeout` and `recv_async` are its other forms
/// assert_eq!((message.word, message.to_vec()), (60, b"a frame".to_vec()));
/// drop(message); // the writer has its memory again
/// drop(sender);
/// assert_eq!(receiver.recv().unwrap_err().kind(), ErrorKind::PeerGone); // the end, in order
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Receiver {
    pub(crate) link: Arc<LinkShared>,
    lines: Lines<'static>,
    control_lines: Lines<'static>,
    pub(super) consumer: Consumer,
    control: Producer,
    ins: Vec<In>,
    /// The first pool of `ins`, if it is another domain's.
    at_hand: Option<AtHand>,
    /// The pool of the last buffer that took the long way.
    long_way: PoolId,
    guess: Guess,
    fork: ForkGuard,
    version: u32,
    ahead: Ahead,
    resync: Option<Resync>,
    pub(super) wait: Wait,
    trusted: bool,
    /// Word of the message that is being taken, for its trace.
    word: u64,
    pub(in crate::link) skipped: u64,
    /// Pool for copies of buffers of level `none`.
    snapshots: Option<Pool>,
    /// Messages from a sender of this process.
    store: Option<Arc<Store>>,
    /// The carrier, if it brings the messages.
    pub(super) driver: Option<Arc<dyn Driver>>,
}

impl Receiver {
    pub(super) fn new(link: Arc<LinkShared>, options: &ChannelOptions) -> Result<Receiver, Error> {
        let snapshots = pools::arrivals(&link.domain, options, None)?;
        let receiver = Receiver::with(link, options, snapshots);
        receiver.say_spinning();
        Ok(receiver)
    }

    /// Makes a receiver that copies buffers of level `none` into `snapshots`.
    fn with(link: Arc<LinkShared>, options: &ChannelOptions, snapshots: Option<Pool>) -> Receiver {
        let lines = link.their_lines();
        let control_lines = link.own_lines();
        Receiver {
            lines,
            control_lines,
            consumer: Consumer::new(),
            control: Producer::new(),
            ins: Vec::new(),
            at_hand: None,
            long_way: PoolId(u32::MAX),
            guess: Guess::default(),
            fork: link.domain.fork,
            version: 0,
            ahead: Ahead::Nothing,
            resync: None,
            wait: options.wait,
            trusted: false,
            word: 0,
            skipped: 0,
            snapshots,
            store: None,
            driver: None,
            link,
        }
    }

    /// Tells the sender if this end does not sleep. A sleep withdraws this.
    fn say_spinning(&self) {
        if self.wait == Wait::Spin && self.link.inside.is_none() && !self.fork.is_child() {
            self.link.ring.spin();
        }
    }

    /// Checks, before the first connection, that the pool exists that a listener's options name.
    pub(crate) fn check(
        domain: &DomainCore,
        role: Role,
        options: &ChannelOptions,
    ) -> Result<(), Error> {
        match role {
            Role::Sink => pools::snapshots(domain, options).map(drop),
            Role::Source => Ok(()),
        }
    }

    /// Lets buffers received from now on be read as plain slices.
    ///
    /// # Safety
    /// No domain that can write a pool assigned to this channel may change a buffer after it was sent. These domains
    /// are the pool's writer and, at the levels `half` and `full`, every domain that has the pool. No domain may have,
    /// or get, a buffer that was moved here. Isolation does not enforce this: as with a memory-mapped file, a write
    /// changes a slice while the reader uses it.
    pub unsafe fn trust_writer(&mut self) {
        self.trusted = true;
    }
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("link", &self.link)
            .field("taken", &self.consumer.head())
            .finish_non_exhaustive()
    }
}
