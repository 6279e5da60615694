//! The whole system at one moment, small enough to keep millions.

use tranship_ledger::generation;

use crate::config::{A, Config};

pub const D: usize = 4;
/// Threads: one a domain, and the writer's second one.
pub const T: usize = D + 1;
/// The writer's second thread.
pub const SECOND: u8 = 4;
/// The mark of [`State::word`]: queued for collection, or on its way there.
pub const QUEUED: u8 = 0x80;
pub const Q: usize = 4;
pub const S: usize = 2;
pub const CAP: usize = 2;
/// The manager's bit of [`State::alive`].
pub const MANAGER: u8 = 7;
/// A value that a normalised counter cannot have.
pub const NEVER: u8 = 0x80;

/// How far a counter that goes back can come while a collector looks: by what a thread of the writer has taken before, and by what the ring that leads back has
/// room for. Nothing more is taken from there meanwhile.
pub const BACK: u8 = 8;

/// Bits of [`State::queue`] and, the first group apart, of [`State::reader`].
pub mod status {
    /// The sink has shown its counters.
    pub const ACCEPTED: u8 = 1;
    /// The epoch was raised and the counters are queued to the writer.
    pub const RAISED: u8 = 2;
    /// The source may send, the sink may take.
    pub const ASSIGNED: u8 = 4;
    /// On the writer's reader set.
    pub const ON: u8 = 8;
    /// The source will send nothing more.
    pub const CLOSED: u8 = 16;
    /// The epoch was raised and the leaving is queued to the writer.
    pub const LEAVING: u8 = 32;
    /// Off the writer's reader set again.
    pub const GONE: u8 = 64;
    /// The counters are in the writer's socket (where the manager may die; otherwise that is part of `RAISED`).
    pub const TOLD: u8 = 128;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Use {
    #[default]
    Free,
    Filling,
    Sent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    /// A slot, or 2: an aggregate of slot 0 with slot 1 in it.
    pub kind: u8,
    pub generations: [u8; S],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    #[default]
    Idle,
    Receive,
    GiveUp,
    Send,
    /// Passes a buffer back.
    Pass,
    /// A handle goes.
    LetGo,
    /// Finds a buffer by its id.
    Find,
}

/// Where a domain's thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    pub op: Op,
    pub step: u8,
    pub queue: u8,
    pub kind: u8,
    /// Sending: bit by slot, set if this is its first send.
    pub first: u8,
    /// Values that the thread has loaded.
    pub seen: u8,
}

/// Where a collector is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Collector {
    pub active: bool,
    /// Whether the writer was the source of every queue when it began.
    pub direct: bool,
    pub slot: u8,
    pub step: u8,
    pub phase: u8,
    /// Words of this phase that are read, bit by word.
    pub read: u8,
    /// Queues of which `seen` holds a value.
    pub have: u8,
    pub seen: [u8; Q],
    /// The generation before the bump; 0: not bumped.
    pub even: u8,
    pub restoring: bool,
    /// Set if the writer's handles are modelled: the verdict is "alive", and the thread that queues the slot again is
    /// not decided.
    pub keeping: bool,
    /// And what it has seen of that, where that takes two steps.
    pub word: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub sent: [[u8; S]; Q],
    pub rcvd: [[u8; S]; Q],
    pub refs: [[u8; S]; D],
    /// References on which an honest thread relies now.
    pub held: [[u8; S]; T],
    pub generation: [u8; S],
    pub slot: [Use; S],
    pub ring: [[Message; CAP]; Q],
    pub length: [u8; Q],
    pub thread: [Thread; T],
    /// Where the writer's handles are modelled: how many, and [`QUEUED`].
    pub word: [u8; S],
    /// And whether the slot is in the queue for collection.
    pub listed: [bool; S],
    pub collector: [Collector; 2],
    pub queue: [u8; Q],
    pub reader: [u8; D],
    pub alive: u8,
    /// Domains that live and have lost their connection to the manager.
    pub hung_up: u8,
    pub deaths: u8,
    pub wrong: Option<&'static str>,
}

impl State {
    pub fn initial(config: &Config) -> Self {
        use status::{ACCEPTED, ASSIGNED, ON, RAISED};
        let mut state = Self {
            sent: [[0; S]; Q],
            rcvd: [[0; S]; Q],
            refs: [[0; S]; D],
            held: [[0; S]; T],
            generation: [1; S],
            slot: [Use::Free; S],
            ring: [[Message::default(); CAP]; Q],
            length: [0; Q],
            thread: [Thread::default(); T],
            word: [0; S],
            listed: [false; S],
            collector: [Collector::default(); 2],
            queue: [0; Q],
            reader: [0; D],
            alive: ((1 << config.domains) - 1) | (u8::from(config.manager_dies) << MANAGER),
            hung_up: 0,
            deaths: 0,
            wrong: None,
        };
        for (q, &(_, sink)) in config.channels.iter().enumerate() {
            if config.late & 1 << q == 0 {
                state.queue[q] = ACCEPTED | RAISED | ASSIGNED | ON;
                state.reader[usize::from(sink)] = ON;
            }
        }
        state
    }

    pub fn is_alive(&self, domain: u8) -> bool {
        self.alive & 1 << domain != 0
    }

    pub fn blame(&mut self, why: &'static str) {
        self.wrong.get_or_insert(why);
    }

    /// The domain of a thread.
    pub fn owner(thread: usize) -> usize {
        thread % usize::from(SECOND)
    }

    /// The threads of a domain.
    pub fn threads(domain: u8) -> impl Iterator<Item = usize> {
        (0..T).filter(move |&t| Self::owner(t) == usize::from(domain))
    }

    /// Facts that the domain's threads rely on.
    pub fn holds(&self, domain: u8, slot: usize) -> u8 {
        Self::threads(domain).map(|t| self.held[t][slot]).sum()
    }

    /// What an id says that a holder of the slot passes on: the collector may have it bumped for a moment.
    pub fn named(&self, slot: usize) -> u8 {
        self.generation[slot] & !1
    }

    pub fn pop(&mut self, queue: usize) {
        self.ring[queue].rotate_left(1);
        self.ring[queue][CAP - 1] = Message::default();
        self.length[queue] -= 1;
    }

    pub fn push(&mut self, queue: usize, message: Message) {
        self.ring[queue][usize::from(self.length[queue])] = message;
        self.length[queue] += 1;
    }

    pub fn publish_generation(&mut self, config: &Config, slot: usize) {
        let next =
            generation::published_in(config.generation_bits, u32::from(self.generation[slot]));
        self.generation[slot] = u8::try_from(next).expect("small");
    }

    pub fn free_generation(&mut self, config: &Config, slot: usize) {
        let next =
            generation::next_free_in(config.generation_bits, u32::from(self.generation[slot]));
        self.generation[slot] = u8::try_from(next).expect("small");
    }

    /// `sent++`, or `None` while that would be a whole turn since a collector looked.
    pub fn count_sent(mut self, config: &Config, queue: usize, slot: usize) -> Option<Self> {
        if !config.is_counted(queue, slot) {
            return Some(self);
        }
        let sent = config.wrap(self.sent[queue][slot].wrapping_add(1));
        let turned = self.collector.iter().any(|c| {
            c.active
                && usize::from(c.slot) == slot
                && c.have & 1 << queue != 0
                && c.seen[queue] == sent
        });
        if turned && !config.normalise && config.no_whole_turn {
            return None;
        }
        self.sent[queue][slot] = sent;
        self.check_that_sent_stays(config, queue, slot);
        Some(self)
    }

    /// After a direct pass has found none of the writer's handles.
    fn check_that_sent_stays(&mut self, config: &Config, queue: usize, slot: usize) {
        let passes = |c: &Collector| c.active && c.direct && usize::from(c.slot) == slot;
        let is_writers = config.channels[queue].0 == A;
        if is_writers && self.collector.iter().any(|c| passes(c) && c.phase > 0) {
            self.blame("what was sent changes during a direct pass");
        }
    }

    pub fn count_rcvd(&mut self, config: &Config, queue: usize, slot: usize) {
        if config.is_counted(queue, slot) {
            self.rcvd[queue][slot] = config.wrap(self.rcvd[queue][slot].wrapping_add(1));
        }
    }

    /// `rcvd--`.
    pub fn uncount_rcvd(&mut self, config: &Config, queue: usize, slot: usize) {
        if config.is_counted(queue, slot) {
            self.rcvd[queue][slot] = self.rcvd[queue][slot].wrapping_sub(1);
        }
    }

    /// `sent--`.
    pub fn uncount_sent(&mut self, config: &Config, queue: usize, slot: usize) {
        if config.is_counted(queue, slot) {
            self.sent[queue][slot] = self.sent[queue][slot].wrapping_sub(1);
            self.check_that_sent_stays(config, queue, slot);
        }
    }

    /// Shifts every queue's counters, and what a collector has seen of them, so that `rcvd` is 0. What was seen and
    /// is below `rcvd` now can never be equal to either counter again; where counters go back (`Config::backs`), what is [`BACK`] below.
    pub fn normalise(&mut self, config: &Config) {
        if !config.normalise {
            return;
        }
        for q in 0..config.channels.len() {
            for s in 0..S {
                let by = std::mem::take(&mut self.rcvd[q][s]);
                self.sent[q][s] = self.sent[q][s].wrapping_sub(by);
                for c in &mut self.collector {
                    let concerned = c.active && usize::from(c.slot) == s && c.have & 1 << q != 0;
                    if concerned && c.seen[q] != NEVER {
                        let seen = c.seen[q].wrapping_sub(by);
                        let back = if config.backs.is_empty() { 0 } else { BACK };
                        let never = seen.wrapping_add(back) >= NEVER;
                        c.seen[q] = if never { NEVER } else { seen };
                    }
                }
            }
        }
    }
}
