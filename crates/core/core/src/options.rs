//! Options of pools and channels.

use crate::domain::Offer;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tranship_proto::{
    ChannelId, Levels, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES, PoolId, PoolShape, SLOT_LIMIT, Trust,
};

/// Functions of a builder that set one field each: `name(arguments) => field = value`.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident($($arg:ident: $type:ty),+) => $field:ident = $value:expr;)+) => {
        $($(#[$meta])*
        pub fn $name(mut self, $($arg: $type),+) -> Self {
            self.$field = $value;
            self
        })+
    };
}

/// Options of a new pool.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, PoolOptions, Trust};
///
/// let domain = Domain::embedded()?;
/// let options = PoolOptions::new(64 << 20).name("frames").trust(Trust::Half).align(4096);
/// let pool = domain.create_pool(options)?;
/// assert_eq!((pool.trust(), pool.max_bytes()), (Trust::Half, 64 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Buffers may have any size. For a pool of equal buffers allocate the same number of bytes each time: buffers of one
/// size lie side by side, and each place fits the next buffer. With [`align`](PoolOptions::align) of a power of two,
/// smaller buffers have that size, too. [`slots`](PoolOptions::slots) limits the number of buffers.
///
/// ```
/// # use tranship_core::{Domain, ErrorKind, PoolOptions};
/// # let domain = Domain::embedded()?;
/// let frames = PoolOptions::new(1 << 20).align(4096).slots(256); // 256 of 4 KiB
/// let pool = domain.create_pool(frames)?;
/// let all: Vec<_> = (1..=256).map(|n| pool.alloc(16 * n)).collect::<Result<_, _>>()?;
/// assert_eq!(pool.try_alloc(1).unwrap_err().kind(), ErrorKind::OutOfMemory);
/// # drop(all);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub(crate) name: String,
    pub(crate) max_bytes: u64,
    pub(crate) slots: Option<u32>,
    pub(crate) chunk_bytes: Option<u64>,
    pub(crate) huge_pages: bool,
    pub(crate) keep_bytes: u64,
    pub(crate) preallocated_bytes: u64,
    pub(crate) trust: Trust,
    /// Slices although others can write.
    pub(crate) align_bytes: u64,
    /// Addresses for the pool in this process; `None`: any.
    pub(crate) addresses: Option<Range<usize>>,
    pub(crate) readers_forward: bool,
    /// The channel whose own pool it is.
    pub(crate) only_over: Option<ChannelId>,
    seal_from: Option<u64>,
}

/// Value of `only_over` for a topic's own pool. No channel has this id.
pub(crate) const TOPIC: ChannelId = ChannelId(0);

/// Bytes from which on a seal takes less time than a copy, if the kernel gives shared memory huge pages.
const SEAL_FROM: u64 = 4 << 20;
/// The smallest sealed buffer: smaller ones share pages.
const SEAL_LEAST: u64 = 4097;

impl PoolOptions {
    /// Options of a pool of at most this many bytes (rounded up to whole chunks).
    pub fn new(max_bytes: u64) -> PoolOptions {
        PoolOptions {
            name: "pool".into(),
            max_bytes,
            slots: None,
            chunk_bytes: None,
            huge_pages: false,
            keep_bytes: 0,
            preallocated_bytes: 0,
            trust: Trust::default(),
            align_bytes: 1,
            addresses: None,
            readers_forward: false,
            only_over: None,
            seal_from: None,
        }
    }
    setters! {
        /// Sets the name that `tranship ls` shows: 1 to 64 bytes.
        name(name: &str) => name = name.into();

        /// Sets how many buffers may exist at once. Default: maximum / 4 KiB, at least 1024 (at level
        /// [`Half`](Trust::Half), where each has pages and may need a mapping of its own, at most 4096); at most
        /// 1,048,576.
        slots(slots: u32) => slots = Some(slots);

        /// Sets the unit in which memory is granted and given back: a power of two from 64 KiB to 64 MiB. Default:
        /// maximum / 256 within those limits.
        chunk_bytes(bytes: u64) => chunk_bytes = Some(bytes);

        /// Asks the kernel for huge pages (needs the shmem setting that `tranship doctor` shows).
        huge_pages(yes: bool) => huge_pages = yes;

        /// Keeps up to `bytes` bytes of memory while they are not needed. By default, memory that was not needed at any
        /// moment of the last second goes back. If the manager needs memory for others, it gets kept memory, too.
        keep(bytes: u64) => keep_bytes = bytes;
    }
    /// Makes the pool with `bytes` bytes of memory, or not at all, and [`keep`](PoolOptions::keep)s them. An allocation
    /// within them needs no manager.
    pub fn preallocate(mut self, bytes: u64) -> Self {
        self.preallocated_bytes = bytes;
        self.keep_bytes = self.keep_bytes.max(bytes);
        self
    }
    setters! {
        /// Makes all buffers begin at multiples of `bytes` bytes, a power of two up to the chunk size: for vector
        /// instructions, DMA, or pages of their own (4096). By default buffers begin at multiples of 64, or of the
        /// largest power of two that divides their size class. Sizes are rounded up to it.
        ///
        /// This holds for addresses in this process and for offsets in the pool; up to 2 MiB also for addresses in
        /// readers. A copy (level [`None`](Trust::None), or carried) is aligned as its own pool says.
        align(bytes: u64) => align_bytes = bytes;

        /// Maps all of the pool, at its largest size, within these addresses: for devices that reach only some, or
        /// pointers that are stored in fewer bits. Existing mappings are not replaced: without a free place the pool is
        /// not made ([`NoAddresses`](crate::error::NoAddresses)).
        ///
        /// This holds in the writer's process only. Each reader maps the pool at other addresses: store offsets in it,
        /// not addresses.
        address_range(range: Range<usize>) => addresses = Some(range);

        /// Gives the right to forward: every domain that receives buffers of this pool may send them on. By default no
        /// domain may, until [`Pool::allow_forward`](crate::Pool::allow_forward) gives it the right (or the manager's
        /// rules, `forward = "readers"`, give it to all). Without the right a send of a received buffer is
        /// [`Refused`](crate::ErrorKind::Refused), and gives the buffer back.
        ///
        /// A domain that forwards decides which domains get buffers. Each of these can read all of the pool from then
        /// on.
        allow_forward(yes: bool) => readers_forward = yes;

        /// Sets which other domains can write the pool's bytes. Default: [`Trust::Producer`], none. The level is fixed
        /// when the pool is made; a receiver takes the pool if its [`accept_trust`](ChannelOptions::accept_trust) says
        /// so.
        ///
        /// At [`None`](Trust::None) a send shows the pool to one domain only;
        /// [`Sender::assign`](crate::Sender::assign) shows it to others.
        ///
        /// At `Full` and `Half` every domain that has the pool can also punch holes into its memory. A reader that
        /// touches a hole reads zeros, and its own cgroup pays for the page. Receivers refuse buffers of several chunks
        /// that have holes; they cannot tell of others.
        trust(trust: Trust) => trust = trust;

        /// At level [`None`](Trust::None): sets the size (4097 bytes or more) from which on receivers do not copy
        /// buffers. Each such buffer lies in chunks of its own. At its send the kernel makes it unchangeable for all
        /// domains, this one included. Receivers check this, and read the same memory as a slice. When no domain holds
        /// the buffer, the memory goes back to the kernel: the next buffer is new memory.
        ///
        /// Default: 4 MiB if the kernel gives shared memory huge pages (`tranship doctor` shows it), else never: from 4
        /// MiB on this takes less time than a copy. A lower value saves the memory of a copy for each receiver.
        /// [`u64::MAX`]: never.
        ///
        /// A receiver that sends such a buffer on needs the right
        /// ([`Pool::allow_forward`](crate::Pool::allow_forward)), as at other levels. Without
        /// [`chunk_bytes`](PoolOptions::chunk_bytes) the chunks are as large as such a buffer, at most a sixteenth of
        /// the pool.
        seal_from(bytes: u64) => seal_from = Some(bytes);
    }
    /// Returns the fewest bytes of a sealed buffer. [`u64::MAX`]: none is sealed.
    pub(crate) fn seals_from(&self) -> u64 {
        if self.trust != Trust::None {
            return u64::MAX;
        }
        let bytes =
            self.seal_from.unwrap_or_else(|| {
                match tranship_sys::limits::shmem_huge_pages(self.huge_pages) {
                    true => SEAL_FROM,
                    false => u64::MAX,
                }
            });
        bytes.max(SEAL_LEAST)
    }
    /// Returns the pool's shape, not checked.
    pub(crate) fn shape(&self) -> PoolShape {
        let chunk_bytes = self.chunk();
        let max_bytes = self.max_bytes.checked_next_multiple_of(chunk_bytes);
        PoolShape {
            max_bytes: max_bytes.unwrap_or(u64::MAX),
            slots: self.slot_count(),
            chunk_bytes,
            trust: self.trust,
        }
    }
    pub(crate) fn chunk(&self) -> u64 {
        self.chunk_bytes.unwrap_or_else(|| {
            let least = (self.max_bytes / 256).max(1);
            let least = least.checked_next_power_of_two().unwrap_or(MAX_CHUNK_BYTES);
            least
                .max(self.large_chunk())
                .clamp(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
        })
    }
    /// Returns the size of a chunk for the smallest sealed buffer, at most a sixteenth of the pool.
    fn large_chunk(&self) -> u64 {
        match self.seals_from() {
            u64::MAX => 1,
            bytes => {
                let most = (self.max_bytes / 16).max(1);
                bytes.min(most).checked_ilog2().map_or(1, |log| 1 << log)
            }
        }
    }
    fn slot_count(&self) -> u32 {
        self.slots.unwrap_or_else(|| {
            let range = match self.trust {
                // Each may need a mapping of its own.
                Trust::Half => 1..=4096,
                _ => 1024..=u64::from(SLOT_LIMIT),
            };
            let slots = (self.max_bytes / 4096).clamp(*range.start(), *range.end());
            u32::try_from(slots).unwrap_or(SLOT_LIMIT)
        })
    }
}

/// Options of a new heap.
#[derive(Clone, Debug)]
pub struct HeapOptions {
    pub(crate) name: String,
    pub(crate) max_bytes: u64,
}

impl HeapOptions {
    /// Options of a heap of at most this many bytes.
    pub fn new(max_bytes: u64) -> HeapOptions {
        HeapOptions {
            name: "heap".into(),
            max_bytes,
        }
    }
    /// Sets the name that `tranship stat` shows: 1 to 64 bytes.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }
}

/// Way in which an operation waits for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look again and again: the lowest latency, for one core. The sender is told, and publishes without a locked
    /// instruction. A receiver that sleeps after all, because it is polled or awaited, first makes every processor of
    /// the machine fence. This blocks once for milliseconds.
    Spin,
    /// Look that many times, then sleep until woken.
    SpinThenSleep(u32),
    /// Sleep at once when nothing is there.
    Sleep,
}

impl Default for Wait {
    fn default() -> Self {
        Wait::SpinThenSleep(500)
    }
}

/// Action of [`Sender::send`](crate::Sender::send) while the receiver is behind. [`try_send`](crate::Sender::try_send)
/// and [`send_timeout`](crate::Sender::send_timeout) fail instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Wait, for ever.
    #[default]
    Wait,
    /// Drop the new message, and count it. The send still waits for the receiver's consent to a new pool.
    DropNew,
    /// Drop older messages: the receiver skips each message behind which a newer one waits
    /// ([`Status::dropped`](crate::Status::dropped)). If the ring is full, the new message is dropped, as with
    /// [`DropNew`](WhenFull::DropNew). Give the ring as many lines as messages may come between two looks of the
    /// receiver, so that its last message is the newest. Over a carrier this is `DropNew`.
    DropOldest,
}

/// Time that a send waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As the channel's options say.
    Channel(WhenFull),
    /// At most this time, for this send alone, which drops nothing.
    AtMost(Duration),
}

impl Patience {
    /// Whether a message that finds no room is dropped.
    pub(crate) fn drops(self) -> bool {
        matches!(
            self,
            Patience::Channel(WhenFull::DropNew | WhenFull::DropOldest)
        )
    }
}

/// Result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message is in the channel.
    Sent,
    /// The receiver was behind, and the message was dropped, as the channel's [`WhenFull`] says.
    Dropped,
}

/// A receiver's answer to offers.
#[derive(Clone)]
pub(crate) struct Consent(Arc<dyn Fn(&Offer) -> bool + Send + Sync>);

impl Consent {
    pub(crate) fn to(&self, offer: &Offer) -> bool {
        (self.0)(offer)
    }
}

impl std::fmt::Debug for Consent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Consent")
    }
}

/// Options of a new channel.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{ChannelOptions, Domain, ErrorKind, Receiver, Sender};
///
/// let domain = Domain::embedded()?;
/// let listener = domain.listen::<Receiver>("local:video")?;
/// let options = ChannelOptions::new().lines(16);
/// let mut sender = domain.open_with::<Sender>("local:video", options)?;
/// let receiver = listener.accept()?;
/// let full = (0..).find_map(|frame| sender.try_send((b"a frame", frame)).err());
/// assert_eq!(full.unwrap().kind(), ErrorKind::Full); // instead of waiting for the receiver
/// drop(receiver);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    pub(crate) lines: u32,
    pub(crate) wait: Wait,
    pub(crate) when_full: WhenFull,
    pub(crate) timeout: Option<Duration>,
    pub(crate) consent: Option<Consent>,
    levels: Levels,
    pub(crate) snapshots: Option<PoolId>,
    pub(crate) arrivals: Option<PoolOptions>,
    pub(crate) pool: Option<Box<PoolOptions>>,
    /// Objects of a topic, or of a name that several domains have.
    pub(crate) beside: Option<crate::link::Beside>,
    pub(crate) message_type: Option<Arc<str>>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions {
            lines: 256,
            wait: Wait::default(),
            when_full: WhenFull::default(),
            timeout: None,
            consent: None,
            levels: Levels::ALL,
            snapshots: None,
            arrivals: None,
            pool: None,
            beside: None,
            message_type: None,
        }
    }
}

impl ChannelOptions {
    /// The default options: 256 lines; a wait that spins briefly and then sleeps; a send that waits while the ring is
    /// full.
    pub fn new() -> ChannelOptions {
        ChannelOptions::default()
    }
    setters! {
        /// Sets the depth of the ring: a power of two, 2 to 65,536.
        lines(lines: u32) => lines = lines;

        /// Sets how this end waits.
        wait(wait: Wait) => wait = wait;

        /// Sets the action of `send` when the ring is full.
        when_full(when_full: WhenFull) => when_full = when_full;
    }
    /// Lets other domains listen at the name too, if all of them ask for it. Each connection goes to one of them.
    /// `local:` and carried addresses are never shared.
    pub fn shared(mut self) -> Self {
        self.beside = Some(crate::link::Beside::Shared);
        self
    }
    setters! {
        /// Opens to a domain that is none of these, if several listen at a [shared](ChannelOptions::shared) name. It
        /// waits until there is one.
        #[doc(hidden)]
        besides(connected: &[crate::DomainId]) => beside = Some(crate::link::Beside::Others(connected.to_vec()));

        /// Sets how long opening waits for the name; default: for ever.
        timeout(timeout: Duration) => timeout = Some(timeout);

        /// Sets the levels of trust whose pools a receiver takes. Default: all; [`None`](Trust::None) only with
        /// [`snapshots`](ChannelOptions::snapshots). A pool of another level fails at the sender with
        /// [`ErrorKind::ChannelTrust`](crate::ErrorKind::ChannelTrust), whose text has the accepted levels.
        accept_trust(levels: impl IntoIterator<Item = Trust>) => levels = levels.into_iter().collect();

        /// Sets the pool, of its own domain, into which a receiver copies buffers out of pools of level
        /// [`None`](Trust::None). Each is copied at its receipt; the sender cannot change the copy. A shared buffer
        /// becomes a [`Buffer`](crate::Buffer) that no other domain has, a moved one a [`BufferMut`](crate::BufferMut).
        /// A message without room for its copy stays the next one. A shared buffer that its sender has
        /// [sealed](PoolOptions::seal_from) is not copied.
        snapshots(pool: PoolId) => snapshots = Some(pool);

        /// Sets the type of this end's messages, as a text of at most 3,576 bytes: a line for the type, then a line for
        /// each field. Both ends compare the texts when the channel opens. If they differ, both ends fail with
        /// `ChannelBind`, and [`TypeMismatch`](crate::error::TypeMismatch) has the first lines that differ. Default: no
        /// type, which fits an end without a type alone.
        ///
        /// The module `typed` makes this text from a Rust struct. The channel itself carries bytes. Only `shm:` and
        /// `local:` addresses take a type.
        message_type(text: &str) => message_type = Some(text.into());

        /// Sets the shape of the pool from which this end's sender allocates ([`Sender::alloc`](crate::Sender::alloc)):
        /// its size, its level of trust. Default: at most 1 GiB of addresses and 1024 buffers, at level
        /// [`Producer`](crate::Trust::Producer).
        pool(pool: PoolOptions) => pool = Some(Box::new(pool));

        /// Copies received buffers into a new pool for each channel ([`snapshots`](ChannelOptions::snapshots) names one
        /// for all). A domain that gets a buffer of it sees no data of another channel, and a program that keeps
        /// buffers holds up no other channel. Carried bytes go there, too.
        arrivals(pool: PoolOptions) => arrivals = Some(pool);
    }
    /// Returns the levels that are accepted.
    pub(crate) fn levels(&self) -> Levels {
        match self.snapshots.is_some() || self.arrivals.is_some() {
            true => self.levels,
            false => self.levels.without(Trust::None),
        }
    }
    /// Sets the rule by which a receiver takes pools; default: all. A refused pool fails at the sender with
    /// [`Refused`](crate::ErrorKind::Refused) and `PeerGone`. `wanted` is called while the domain takes the manager's
    /// news, and at a `local:` address while the sender sends. It decides by the offer alone, and must not call into
    /// the domain. It is not called for carried channels: no pool of the sender's comes there.
    pub fn accept_pools(mut self, wanted: impl Fn(&Offer) -> bool + Send + Sync + 'static) -> Self {
        self.consent = Some(Consent(Arc::new(wanted)));
        self
    }
}
