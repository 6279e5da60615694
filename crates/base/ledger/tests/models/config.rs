//! What is modelled, and which rules hold in it.

use tranship_ledger::order::{
    COLLECTION, COLLECTION_DIRECT, CollectStep, PASS_BACK, PASS_DIRECT, PASS_ORDER, PassStep,
    Phase, RECEIPT_DIRECT, RECEIPT_FORWARDED, RETURN, ReceiptStep, ReturnStep, SEND_AGAIN,
    SEND_FIRST, SEND_KEPT, SendStep,
};

use crate::state::{CAP, D, Q, S};

/// The pool's writer.
pub const A: u8 = 0;
pub const B: u8 = 1;
pub const C: u8 = 2;
pub const E: u8 = 3;

/// One system. [`Config::new`] is the system as built; everything else takes a rule away or adds trouble.
#[derive(Clone, Debug)]
pub struct Config {
    pub name: String,
    pub domains: u8,
    /// (source, sink)
    pub channels: Vec<(u8, u8)>,
    pub slots: u8,
    pub ring: u8,
    /// References that one domain takes of one buffer at most.
    pub holds: u8,
    pub counter_bits: u32,
    pub generation_bits: u32,
    /// Counters without bound, kept as differences: exact, since only equality is ever asked. Otherwise they are
    /// `counter_bits` wide and wrap around.
    pub normalise: bool,
    /// A wrapping counter does not make a whole turn while one pass looks.
    pub no_whole_turn: bool,
    /// The words of one phase are read in every order, not only by index.
    pub any_order: bool,
    /// Buffers travel as an aggregate: slot 0 is the list, slot 1 its piece.
    pub aggregates: bool,
    /// Every send is a move: from the publication on its sender has nothing to do with the buffer.
    pub moves: bool,
    /// Channels that lead back, and of which one: the sink of that passes buffers to its source, the writer, over them. They count nothing.
    pub backs: Vec<(usize, usize)>,
    /// The domains that may die, bit by domain, and how many of them in one run.
    pub mortal: u8,
    pub deaths: u8,
    /// Channels that sources may close, bit by channel.
    pub closable: u8,
    /// Channels to which the pool is assigned at run time, bit by channel.
    pub late: u8,
    pub liar: Option<u8>,
    /// The manager may die, and is not missed by the writer's collector.
    pub manager_dies: bool,
    /// The writer is dead from some moment on and the manager gives the verdict.
    pub orphan: bool,
    /// Threads of the writer whose handles are modelled word by word (1 or 2), with the queue for collection and the
    /// collector's lock. 0: the writer has one, and its reference is a word like any domain's.
    pub writers: u8,
    /// They look for buffers by their ids.
    pub finds: bool,

    pub pass: Vec<Phase>,
    pub collection: Vec<CollectStep>,
    /// The same where the writer is the source of every queue on the reader set,
    pub pass_direct: Vec<Phase>,
    pub collection_direct: Vec<CollectStep>,
    /// unless none of that.
    pub always_twice: bool,
    /// Or as if it always were.
    pub always_direct: bool,
    pub direct: Vec<ReceiptStep>,
    pub forwarded: Vec<ReceiptStep>,
    pub send_first: Vec<SendStep>,
    pub send_kept: Vec<SendStep>,
    pub send_again: Vec<SendStep>,
    pub pass_back: Vec<PassStep>,
    pub returned: Vec<ReturnStep>,

    // Rules that can be taken away.
    pub collectors: u8,
    pub sums: bool,
    pub own_before_the_pass: bool,
    pub look_again_at_references_only: bool,
    pub even_at_alloc: bool,
    pub release_before_sending: bool,
    pub uses_what_it_moved: bool,
    pub leave_undrained: bool,
    pub leave_with_returns: bool,
    pub exclusive_at_return: bool,
    pub sink_takes_early: bool,
    pub source_sends_early: bool,
    pub assigned_before_told: bool,
    pub alone_before_the_end: bool,
    pub find_without_lock: bool,
    pub take_back_without_lock: bool,
    pub let_go_in_two_steps: bool,
    pub keep_in_two_steps: bool,
    pub drop_what_is_alive: bool,
    pub count_the_list_only: bool,
    pub dead_source_stays: bool,
    pub believe_odd_ids: bool,
    pub edit_during_a_pass: bool,
    /// The domains that may lose their connection and go on, bit by domain; and whether the manager takes that for
    /// their death.
    pub hangs_up: u8,
    pub hang_up_is_death: bool,
    /// Refusals on this channel count as wrong although there is a liar.
    pub blame_refusals_on: Option<u8>,
}

fn without_fence(steps: &[CollectStep]) -> Vec<CollectStep> {
    let steps = steps.iter().copied();
    steps.filter(|s| *s != CollectStep::Fence).collect()
}

impl Config {
    pub fn new(name: &str, domains: u8, channels: &[(u8, u8)]) -> Self {
        assert!(usize::from(domains) <= D && channels.len() <= Q);
        Self {
            name: name.into(),
            domains,
            channels: channels.to_vec(),
            slots: 1,
            ring: 1,
            holds: 1,
            counter_bits: 8,
            generation_bits: 2,
            normalise: true,
            no_whole_turn: true,
            any_order: false,
            aggregates: false,
            moves: false,
            backs: Vec::new(),
            mortal: 0,
            deaths: 0,
            closable: 0,
            late: 0,
            liar: None,
            manager_dies: false,
            orphan: false,
            writers: 0,
            finds: true,
            pass: PASS_ORDER.to_vec(),
            // A model takes its steps one after the other: fences are in every gap.
            collection: without_fence(&COLLECTION),
            pass_direct: PASS_DIRECT.to_vec(),
            collection_direct: without_fence(&COLLECTION_DIRECT),
            always_twice: false,
            always_direct: false,
            direct: RECEIPT_DIRECT.to_vec(),
            forwarded: RECEIPT_FORWARDED
                .into_iter()
                .filter(|s| *s != ReceiptStep::Fence)
                .collect(),
            send_first: SEND_FIRST.to_vec(),
            send_kept: SEND_KEPT.to_vec(),
            send_again: SEND_AGAIN.to_vec(),
            pass_back: PASS_BACK.to_vec(),
            returned: RETURN.to_vec(),
            collectors: 1,
            sums: false,
            own_before_the_pass: false,
            look_again_at_references_only: false,
            even_at_alloc: false,
            release_before_sending: false,
            uses_what_it_moved: false,
            leave_undrained: false,
            leave_with_returns: false,
            exclusive_at_return: false,
            sink_takes_early: false,
            source_sends_early: false,
            assigned_before_told: false,
            alone_before_the_end: false,
            find_without_lock: false,
            take_back_without_lock: false,
            let_go_in_two_steps: false,
            keep_in_two_steps: false,
            drop_what_is_alive: false,
            count_the_list_only: false,
            dead_source_stays: false,
            believe_odd_ids: false,
            edit_during_a_pass: false,
            hangs_up: 0,
            hang_up_is_death: false,
            blame_refusals_on: None,
        }
    }

    /// Configuration with some fields changed.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        assert!(usize::from(self.ring) <= CAP && usize::from(self.slots) <= S);
        assert!(
            !(self.sums && self.normalise),
            "sums are not invariant under a shift"
        );
        assert!(
            self.backs.is_empty() || (self.writers > 0 && self.normalise),
            "what is passed back is taken under the collector's lock"
        );
        self
    }

    /// The channel from which buffers are passed back over this one.
    pub fn back_of(&self, queue: usize) -> Option<usize> {
        let found = self.backs.iter().find(|(back, _)| *back == queue);
        found.map(|(_, of)| *of)
    }

    pub fn receipt(&self, queue: usize) -> &[ReceiptStep] {
        if self.channels[queue].0 == A {
            &self.direct
        } else {
            &self.forwarded
        }
    }

    /// The step of a receipt after which the receiver relies on the buffer.
    pub fn relies_after(&self, queue: usize) -> usize {
        let steps = self.receipt(queue);
        steps
            .iter()
            .rposition(|s| matches!(s, ReceiptStep::Hold | ReceiptStep::Check))
            .expect("a receipt holds")
    }

    /// The slots of which a message of this kind carries references.
    pub fn parts(&self, kind: u8) -> &'static [usize] {
        match kind {
            0 => &[0],
            1 => &[1],
            _ => &[0, 1],
        }
    }

    /// The kinds of messages that honest domains send.
    pub fn kinds(&self) -> std::ops::Range<u8> {
        if self.aggregates { 2..3 } else { 0..self.slots }
    }

    pub fn is_honest(&self, domain: u8) -> bool {
        self.liar != Some(domain)
    }

    /// Whether one of the queue's counters is a liar's. The collector may then read anything, so nothing is kept.
    pub fn is_a_liars(&self, queue: usize) -> bool {
        let (source, sink) = self.channels[queue];
        !self.is_honest(source) || !self.is_honest(sink)
    }

    /// Whether this slot's counters of that queue are kept.
    pub fn is_counted(&self, queue: usize, slot: usize) -> bool {
        let is_left_out = self.count_the_list_only && slot != 0;
        !is_left_out && !self.is_a_liars(queue) && self.back_of(queue).is_none()
    }

    /// Whether an id of that generation names the buffer of a slot at this one.
    pub fn names(&self, named: u8, now: u8) -> bool {
        named == now && (named & 1 == 0 || self.believe_odd_ids)
    }

    pub fn wrap(&self, counter: u8) -> u8 {
        counter & 0xff >> (8 - self.counter_bits)
    }
}
