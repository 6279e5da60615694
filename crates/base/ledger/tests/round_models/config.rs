//! Which systems are modelled, and which rule a broken variant leaves out.

/// Lines of a ring.
pub const D: usize = 2;
/// Slots, entries of `kept`, readers with a desk, rings: at most.
pub const SLOTS: usize = 6;
pub const KEPT: usize = 3;
pub const READERS: usize = 2;
pub const RINGS: usize = 2;

/// Sequences in a desk have 48 bits.
pub const SEQUENCE: u64 = (1 << 48) - 1;

/// One rule taken away, or turned round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    Nothing,
    /// The fence between a claim and the look at the line.
    ReadersFence,
    /// The fence between the overwriting of a batch and the look at the desks.
    WritersFence,
    /// Lines that are not overwritten yet are in the batch; they are freed if they are when the round ends.
    OverwritingFirst,
    /// A line is read, then claimed.
    ClaimingFirst,
    /// A window moves on while its message is held.
    DroppingFirst,
    /// The window moves on, then the entry in `kept` is written.
    KeptFirst,
    /// The writer reads `kept`, then the window.
    WindowFirst,
    /// Lines that are overwritten during a round are in its batch.
    FixedBatch,
    /// The last word of a line is not compared.
    WholeLines,
    /// A reader takes lines before the writer knows its desk.
    GoAhead,
    /// An entry of `kept` is copied to a lower one, then cleared.
    FixedEntries,
    /// An entry of `kept` is never cleared.
    Clearing,
    /// A reader that lives leaves the scan.
    DeathFirst,
    /// A dead reader stays in the scan.
    Removal,
    /// Pieces of an aggregate but the first are not kept.
    EveryPiece,
    /// An entry counts as free when the other thread says so, and that thread says so first.
    ClearingFirst,
    /// `more` and the window, then the table.
    TableFirst,
    /// The table is not read.
    Table,
    /// The desks of one ring alone are asked.
    EveryDesk,
    /// A slot is retired when the first of its lines ends.
    LastLine,
    /// The line of a buffer that the writer found by its id is not counted.
    CountingFound,
    /// Withdrawn lines are freed without a look at the desks.
    LookAfterWithdrawing,
    /// A line is withdrawn that a reliable reader has still to take.
    ReliableFirst,
    /// A window's sequences are compared as numbers, not modulo 2^48.
    Modulo,
    /// A desk of zeros is a window that begins at 0.
    Unbegun,
    /// A reader that leaves does not have the table count what it holds.
    CountingHolds,
    /// A reader that has left is removed while its table has holds.
    EmptyTable,
    /// Receipt on a channel moves the window, then writes `kept`.
    KeptBeforeLow,
    /// A channel's lines end when they are taken, and are reused without a look at `kept`.
    LookAtKept,
    /// A channel's line ends when the next is published, not when it was taken.
    TakenFirst,
    /// A forwarder's entry is cleared, then the send is counted.
    CountingFirst,
    /// The passes come first, then the desks.
    DesksFirst,
    /// The desks alone are asked.
    Passes,
    /// The generation stays even.
    Odd,
    /// No fence after the generation is odd.
    OddFence,
    /// No second pass.
    SecondPass,
    /// A receiver of forwarded buffers does not compare the generation.
    Check,
}

/// One system. [`Config::new`] is the system as built: one ring, two readers, one message held at a time.
#[derive(Clone, Debug)]
pub struct Config {
    pub name: &'static str,
    pub slots: usize,
    /// Messages a ring.
    pub messages: u64,
    /// The first sequence.
    pub first: u64,
    pub window: u64,
    /// Messages that a reader holds in its window at once.
    pub holds: usize,
    /// Entries of `kept` that are used, and what the table may hold.
    pub kept: usize,
    pub table: u32,
    /// Readers say when they claim nothing.
    pub rests: bool,
    /// Readers leave in order.
    pub leaves: bool,
    /// The words of a line are separate steps.
    pub lines: bool,
    /// The readers that keep, bit by reader.
    pub keepers: u8,
    /// Slots in a line.
    pub pieces: u32,
    /// The ring that each reader reads.
    pub readers: Vec<usize>,
    /// Readers, bit by reader: that join at run time; that must miss nothing; that lie.
    pub late: u8,
    pub reliable: u8,
    pub liar: u8,
    /// Rings, bit by ring: those that are channels.
    pub channels: u8,
    /// Whether one buffer is published in both rings.
    pub both: bool,
    /// A second thread of the first reader lets go of what the first has kept.
    pub helper: bool,
    pub withdraws: bool,
    pub finds: bool,
    /// The first reader forwards to a domain without a desk.
    pub forwards: bool,
    pub deaths: u8,
    /// Messages of a liar that forwards.
    pub lies: u8,
    /// Stores that wait, in a reader and in the writer, at most.
    pub buffer: u8,
    pub writers_buffer: u8,
    pub without: Without,
}

impl Config {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            slots: 4,
            messages: 3,
            first: 0,
            window: 1,
            holds: 1,
            kept: 1,
            table: 0,
            rests: false,
            leaves: false,
            lines: false,
            keepers: 3,
            pieces: 1,
            readers: vec![0, 0],
            late: 0,
            reliable: 0,
            liar: 0,
            channels: 0,
            both: false,
            helper: false,
            withdraws: false,
            finds: false,
            forwards: false,
            deaths: 0,
            lies: 2,
            buffer: 2,
            writers_buffer: 4,
            without: Without::Nothing,
        }
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn is(&self, without: Without) -> bool {
        self.without == without
    }

    pub fn is_channel(&self, ring: usize) -> bool {
        self.channels & 1 << ring != 0
    }

    pub fn rings(&self) -> usize {
        1 + self.readers.iter().max().expect("a reader")
    }
}
