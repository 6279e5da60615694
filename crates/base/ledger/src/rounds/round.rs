//! The rounds of one pool.

use super::desks::{Desks, Outcome};
use super::ended::Ended;
use std::hash::{Hash, Hasher};
use tranship_ring::broadcast::{Limits, UNBEGUN, Win};

/// How much a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// Desks a step; 0: as many as the pool's size needs.
    pub desks: usize,
    /// Words of a table a step, at least. With many tables a step reads more words: a round ends before as many lines
    /// have ended as its batch has entries.
    pub table: usize,
    /// Entries that are swept a step.
    pub sweep: usize,
}

impl Pace {
    /// The pace of production.
    pub const PRODUCTION: Pace = Pace {
        desks: 0,
        table: 32,
        sweep: 8,
    };
}

/// Where a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Between two rounds.
    Rest,
    /// This desk is next.
    Look { desk: usize },
    /// The table behind a desk. The fields say which entry of which ring's batch is next, and how many of the table's
    /// words were not 0.
    Table {
        desk: usize,
        ring: usize,
        at: usize,
        found: u32,
    },
    /// This entry of this ring's batch is next.
    Sweep { ring: usize, at: usize },
}

/// A reader of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Desk {
    ring: usize,
    limits: Limits,
}

/// A slot, as the rounds know it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Lines that name it, and entries of ended ones that did.
    lines: u32,
    /// The desk in whose table it was found last, plus 1. It counts only if `mark` is of this round.
    table_of: u32,
    /// The round in which a reader was found to hold it, times 2; plus 1: one of its entries is in the next batch.
    mark: u64,
}

/// The rounds of one pool: one thread at a time, the pool's writer.
///
/// Two of them are equal if they judge alike: the numbers of rounds are not compared.
#[derive(Clone, Debug)]
pub struct Rounds {
    slots: Vec<Slot>,
    rings: Vec<Ended>,
    desks: Vec<Option<Desk>>,
    /// Hints: where the entries of a desk's window were found.
    hints: Vec<usize>,
    pace: Pace,
    phase: Phase,
    round: u64,
    /// Entries that wait for a round, and those in a batch.
    ended: usize,
    held: usize,
    /// Desks that have a table, as the last whole look found.
    tables: usize,
    tables_now: usize,
    /// Lines of all rings.
    lines: usize,
    /// Number of desks that a step looks at, and number of steps until all desks are looked at.
    desks_a_step: usize,
    look_steps: usize,
    /// Buffers found free so far.
    freed: u64,
}

impl Rounds {
    /// Makes the rounds of a pool of `slots` slots. No line names any of them yet.
    pub fn new(slots: u32, pace: Pace) -> Rounds {
        Rounds {
            slots: vec![Slot::default(); slots as usize],
            rings: Vec::new(),
            desks: Vec::new(),
            hints: Vec::new(),
            pace,
            phase: Phase::Rest,
            round: 0,
            ended: 0,
            held: 0,
            tables: 0,
            tables_now: 0,
            lines: 0,
            desks_a_step: 2,
            look_steps: 0,
            freed: 0,
        }
    }

    /// Adds a ring of `lines` lines. Returns its number.
    pub fn add_ring(&mut self, lines: u32) -> usize {
        self.lines += lines as usize;
        self.rings.push(Ended::default());
        self.rings.len() - 1
    }

    /// Adds a desk, at a place that is free or the next one. From now on a reader may claim lines that are not
    /// published yet, also if a round is under way: the lines of its batch have ended.
    pub fn join(&mut self, desk: usize, ring: usize, limits: Limits) {
        if desk >= self.desks.len() {
            self.desks.resize(desk + 1, None);
            self.hints.resize(desk + 1, 0);
        }
        self.desks[desk] = Some(Desk { ring, limits });
        self.set_steps();
    }

    /// Removes the desk of a reader that is gone: it said goodbye, or its process has ended.
    pub fn leave(&mut self, desk: usize) {
        if let Some(place) = self.desks.get_mut(desk) {
            *place = None;
        }
        if matches!(self.phase, Phase::Table { desk: at, .. } if at == desk) {
            self.go_on(desk + 1);
        }
    }

    /// Notes that a line is about to name a buffer.
    #[inline(always)]
    pub fn name(&mut self, slot: u32) {
        self.slots[slot as usize].lines += 1;
    }

    /// Says whether a line names the buffer, or did and it is not known to be free.
    pub fn is_named(&self, slot: u32) -> bool {
        self.slots[slot as usize].lines != 0
    }

    /// Notes that a line that named a buffer has ended: it was overwritten, withdrawn, or passed by its only reader.
    #[inline(always)]
    pub fn retire(&mut self, ring: usize, position: u64, slot: u32) {
        self.rings[ring].retire(position, slot);
        self.ended += 1;
    }

    /// Says whether a round is under way.
    pub fn is_under_way(&self) -> bool {
        self.phase != Phase::Rest
    }

    /// Does a bounded piece of a round, after a publish. `available` is how many buffers can be had without one.
    #[inline(always)]
    pub fn step<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        available: usize,
        outcome: &mut impl Outcome,
    ) -> Result<(), D::Stop> {
        if matches!(self.phase, Phase::Rest) && !self.is_due(available) {
            return Ok(());
        }
        self.step_on(desks, outcome)
    }

    /// Whether what is available only just lasts until a round is over that begins now.
    #[inline(always)]
    fn is_due(&self, available: usize) -> bool {
        if self.ended < 8 {
            return false;
        }
        let entries = self.ended + self.held;
        let tables = match self.tables {
            0 => 0,
            tables => tables * entries / self.table_words(),
        };
        let steps = self.look_steps + entries / 8 + tables;
        available <= steps + 12 || self.ended > self.slots.len()
    }

    fn step_on<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        outcome: &mut impl Outcome,
    ) -> Result<(), D::Stop> {
        match self.phase {
            Phase::Rest => {
                self.begin(desks)?;
                self.prefetch(desks, 0);
            }
            Phase::Look { desk } => {
                let end = (desk + self.desks_a_step).min(self.desks.len());
                for desk in desk..end {
                    if self.look_at(desks, desk, outcome)? {
                        return Ok(());
                    }
                }
                self.go_on(end);
                self.prefetch(desks, end);
            }
            Phase::Table { .. } => {
                for _ in 0..self.table_words() {
                    self.look_at_table(desks, outcome)?;
                }
            }
            Phase::Sweep { mut ring, mut at } => {
                for _ in 0..self.pace.sweep {
                    if !self.sweep_at(&mut ring, &mut at, outcome) {
                        self.phase = Phase::Rest;
                        return Ok(());
                    }
                }
                self.phase = Phase::Sweep { ring, at };
            }
        }
        Ok(())
    }

    /// Returns how many words of tables a step reads. A round reads a word of each table for each entry of its batch.
    /// With two words a table, half as many entries come meanwhile as the batch has.
    fn table_words(&self) -> usize {
        self.pace.table.max(2 * self.tables.max(self.tables_now))
    }

    /// Returns how many entries wait for the verdict of a round.
    pub fn waiting(&self) -> usize {
        self.ended + self.held
    }

    /// Returns how many entries have come since the last round began.
    #[inline(always)]
    pub fn ended(&self) -> usize {
        self.ended
    }

    fn prefetch<D: Desks + ?Sized>(&self, desks: &D, from: usize) {
        let end = (from + self.desks_a_step).min(self.desks.len());
        for desk in from..end {
            desks.prefetch(desk);
        }
    }

    /// Does all of the round that is under way, or else a whole new one; and one more, if that gave nothing. Returns how
    /// many buffers are free now.
    pub fn collect<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        outcome: &mut impl Outcome,
    ) -> Result<u64, D::Stop> {
        let before = self.freed;
        for _ in 0..2 {
            if self.phase == Phase::Rest {
                if self.ended + self.held == 0 {
                    break;
                }
                self.begin(desks)?;
            }
            while self.phase != Phase::Rest {
                self.step_on(desks, outcome)?;
            }
            if self.freed != before {
                break;
            }
        }
        Ok(self.freed.wrapping_sub(before))
    }

    /// Begins a round, if none is under way.
    pub fn begin<D: Desks + ?Sized>(&mut self, desks: &D) -> Result<(), D::Stop> {
        if self.is_under_way() {
            return Ok(());
        }
        self.round += 1;
        self.set_steps();
        for ring in &mut self.rings {
            ring.fix();
        }
        self.held += std::mem::take(&mut self.ended);
        self.tables_now = 0;
        self.phase = Phase::Look { desk: 0 };
        // Ordering: partner: the fence of `Reader::claim`. The lines of the batch ended before it, the desks are read
        // after it.
        desks.fence_full()?;
        if self.desks.is_empty() {
            self.phase = Phase::Sweep { ring: 0, at: 0 };
        }
        Ok(())
    }

    /// Chooses how many desks a step looks at, so that a round ends before half of the spare buffers are used.
    fn set_steps(&mut self) {
        let count = self.desks.len();
        let held = self.lines + self.held;
        let spare = (self.slots.len().saturating_sub(held) / 2).saturating_sub(8);
        self.desks_a_step = match (self.pace.desks, spare) {
            (0, 0) => count.max(2),
            (0, _) => (2 * (8 * count).div_ceil(7 * spare)).max(2),
            (desks, _) => desks,
        };
        self.look_steps = count.div_ceil(self.desks_a_step);
    }

    /// Looks at one desk.
    pub fn look<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        outcome: &mut impl Outcome,
    ) -> Result<(), D::Stop> {
        if let Phase::Look { desk } = self.phase
            && !self.look_at(desks, desk, outcome)?
        {
            self.go_on(desk + 1);
        }
        Ok(())
    }

    /// Looks at a desk. True if there is a table to look at, too: then the round goes on there.
    #[inline(always)]
    fn look_at<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        desk: usize,
        outcome: &mut impl Outcome,
    ) -> Result<bool, D::Stop> {
        let word = desks.win(desk)?;
        if word == UNBEGUN {
            return Ok(false);
        }
        let win = Win::unpack(word);
        outcome.seen(desk, win.low);
        if win.len == 0 && win.entries == 0 {
            return Ok(false);
        }
        self.look_closer(desks, desk, win)
    }

    /// Marks what a desk says that its reader may hold.
    #[inline(never)]
    fn look_closer<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        desk: usize,
        win: Win,
    ) -> Result<bool, D::Stop> {
        let Some(Some(Desk { ring, limits })) = self.desks.get(desk).copied() else {
            return Ok(false);
        };
        if win.len != 0 {
            // A liar claims no more than what was agreed.
            let len = win.len.min(limits.window);
            self.rings[ring].cover(win.low, len.into(), &mut self.hints[desk]);
        }
        let entries = win.entries.min(limits.entries);
        if win.entries == 0 || !self.look_at_holds(desks, desk, entries)? {
            return Ok(false);
        }
        self.tables_now += 1;
        self.phase = Phase::Table {
            desk,
            ring: 0,
            at: 0,
            found: 0,
        };
        Ok(true)
    }

    /// Marks what a desk keeps. True if there is a table to look at, too.
    fn look_at_holds<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        desk: usize,
        entries: u8,
    ) -> Result<bool, D::Stop> {
        for entry in 0..entries {
            if let Some(slot) = desks.kept(desk, entry)?.checked_sub(1) {
                self.mark(slot, 0);
            }
        }
        Ok(desks.more(desk)? != 0)
    }

    /// Marks a slot, if the slot exists. `table_of` is the number of the desk, plus 1, if its table has the slot.
    /// Returns true if the round did not yet know that this desk's table has the slot.
    #[inline(always)]
    fn mark(&mut self, slot: u32, table_of: u32) -> bool {
        let Some(slot) = self.slots.get_mut(slot as usize) else {
            return false;
        };
        let now = self.round << 1;
        let is_new = slot.mark != now || slot.table_of != table_of;
        if slot.mark != now || table_of != 0 {
            slot.table_of = table_of;
        }
        slot.mark = now;
        is_new
    }

    /// Looks at one word of a table: that of the next buffer of the batch.
    pub fn look_at_table<D: Desks + ?Sized>(
        &mut self,
        desks: &D,
        outcome: &mut impl Outcome,
    ) -> Result<(), D::Stop> {
        let Phase::Table {
            desk,
            ring,
            at,
            mut found,
        } = self.phase
        else {
            return Ok(());
        };
        let Some(ended) = self.rings.get(ring) else {
            if let Some(Some(place)) = self.desks.get(desk)
                && found > place.limits.most_found()
            {
                outcome.exceeded(desk);
            }
            self.go_on(desk + 1);
            return Ok(());
        };
        let (ring, at) = match ended.get(at) {
            Some(entry) => {
                #[allow(clippy::cast_possible_truncation, reason = "fewer than 2^32 readers")]
                let by = desk as u32 + 1;
                if desks.table(desk, entry.slot)? != 0 && self.mark(entry.slot, by) {
                    found += 1;
                }
                (ring, at + 1)
            }
            None => (ring + 1, 0),
        };
        self.phase = Phase::Table {
            desk,
            ring,
            at,
            found,
        };
        Ok(())
    }

    /// Goes on at a desk, or, after the last one, sweeps.
    #[inline(always)]
    fn go_on(&mut self, desk: usize) {
        self.phase = if desk < self.desks.len() {
            Phase::Look { desk }
        } else {
            self.tables = self.tables_now;
            Phase::Sweep { ring: 0, at: 0 }
        };
    }

    /// Sweeps one entry of the batch.
    pub fn sweep(&mut self, outcome: &mut impl Outcome) {
        if let Phase::Sweep { mut ring, mut at } = self.phase {
            self.phase = match self.sweep_at(&mut ring, &mut at, outcome) {
                true => Phase::Sweep { ring, at },
                false => Phase::Rest,
            };
        }
    }

    /// Sweeps an entry of the batch, if there is one in this ring, or goes on to the next ring. False if that was the
    /// last one.
    #[inline(always)]
    fn sweep_at(&mut self, ring: &mut usize, at: &mut usize, outcome: &mut impl Outcome) -> bool {
        let Some(ended) = self.rings.get_mut(*ring) else {
            return false;
        };
        let Some(entry) = ended.take(*at) else {
            ended.turn();
            (*ring, *at) = (*ring + 1, 0);
            return true;
        };
        *at += 1;
        let slot = &mut self.slots[entry.slot as usize];
        if entry.covered {
            ended.keep(entry);
        } else if slot.mark == self.round << 1 {
            // A reader holds the buffer, and none by this line any more: one entry stands for all such lines.
            slot.mark |= 1;
            ended.keep(entry);
        } else {
            self.held -= 1;
            slot.lines -= 1;
            if slot.lines == 0 {
                self.freed = self.freed.wrapping_add(1);
                outcome.free(entry.slot);
            }
        }
        true
    }

    /// The state that decides: everything but the numbers of rounds and hints.
    fn key(&self) -> impl PartialEq + Hash {
        let slots = self.slots.iter().map(|slot| {
            let now = slot.mark >> 1 == self.round && self.phase != Phase::Rest;
            (slot.lines, now.then_some((slot.mark & 1, slot.table_of)))
        });
        (
            slots.collect::<Vec<_>>(),
            self.rings.clone(),
            self.desks.clone(),
            self.phase,
            self.ended,
            self.held,
        )
    }
}

impl PartialEq for Rounds {
    fn eq(&self, other: &Rounds) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Rounds {}

impl Hash for Rounds {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
