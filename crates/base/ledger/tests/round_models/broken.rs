//! Every rule taken away, one at a time: what goes wrong without it.

use crate::breaks;
use crate::config::{Config, Without};

const EARLY: &[&str] = &[
    "a buffer is reused while it is held",
    "accepts another buffer than was named",
];

const REFUSED: &[&str] = &[EARLY[0], EARLY[1], "an honest reference was refused"];

/// A row of the table: what is left out, in which system, what goes wrong.
type Row = (Without, fn(&mut Config), &'static [&'static str]);

fn one(c: &mut Config) {
    (c.readers, c.keepers) = (vec![0], 1);
}

fn late(c: &mut Config) {
    one(c);
    c.late = 1;
}

fn channel(c: &mut Config) {
    one(c);
    (c.channels, c.keepers, c.slots) = (1, 0, 2);
}

fn forwards(c: &mut Config) {
    one(c);
    (c.forwards, c.slots) = (true, 3);
}

fn liar_forwards(c: &mut Config) {
    forwards(c);
    c.liar = 1;
}

fn both(c: &mut Config) {
    (c.readers, c.both, c.keepers, c.kept) = (vec![0, 1], true, 0, 0);
    c.writers_buffer = 6;
}

const ROWS: &[Row] = &[
    // What the scheme rests on.
    (Without::ReadersFence, one, EARLY),
    (Without::WritersFence, one, EARLY),
    (Without::OverwritingFirst, one, EARLY),
    (Without::ClaimingFirst, one, EARLY),
    (Without::DroppingFirst, one, EARLY),
    (Without::KeptFirst, one, EARLY),
    (Without::WindowFirst, one, EARLY),
    (Without::FixedBatch, one, EARLY),
    (
        Without::WholeLines,
        |c| {
            one(c);
            c.lines = true
        },
        EARLY,
    ),
    (Without::GoAhead, late, EARLY),
    (
        Without::FixedEntries,
        |c| {
            one(c);
            (c.kept, c.slots, c.messages) = (2, 5, 4)
        },
        EARLY,
    ),
    (Without::DeathFirst, one, EARLY),
    (
        Without::Removal,
        |c| {
            one(c);
            c.deaths = 1
        },
        &["a buffer leaks"],
    ),
    (Without::Clearing, one, &["a buffer leaks"]),
    (
        Without::Removal,
        |c| {
            one(c);
            (c.kept, c.table, c.deaths) = (0, 1, 1)
        },
        &["a buffer leaks"],
    ),
    // What one slot is counted by.
    (
        Without::EveryPiece,
        |c| {
            one(c);
            (c.pieces, c.kept, c.slots, c.buffer) = (2, 2, 6, 3)
        },
        EARLY,
    ),
    (Without::EveryDesk, both, EARLY),
    (
        Without::EveryDesk,
        |c| {
            both(c);
            (c.slots, c.liar) = (3, 2)
        },
        EARLY,
    ),
    (
        Without::EveryPiece,
        |c| {
            one(c);
            (c.pieces, c.kept, c.table, c.slots, c.buffer) = (2, 1, 1, 6, 3)
        },
        EARLY,
    ),
    (
        Without::LastLine,
        both,
        &[EARLY[0], EARLY[1], "a line's buffer is free"],
    ),
    (
        Without::CountingFound,
        |c| {
            one(c);
            (c.finds, c.messages) = (true, 4)
        },
        &[EARLY[0], EARLY[1], "a line's buffer is free"],
    ),
    // Threads and tables.
    (
        Without::ClearingFirst,
        |c| {
            one(c);
            (c.helper, c.messages) = (true, 4)
        },
        EARLY,
    ),
    (
        Without::TableFirst,
        |c| {
            one(c);
            (c.kept, c.table) = (0, 1)
        },
        EARLY,
    ),
    (
        Without::Table,
        |c| {
            one(c);
            (c.kept, c.table) = (0, 1)
        },
        EARLY,
    ),
    // Withdrawn lines, reliable readers, sequences.
    (
        Without::LookAfterWithdrawing,
        |c| {
            one(c);
            c.withdraws = true
        },
        EARLY,
    ),
    (
        Without::ReliableFirst,
        |c| {
            one(c);
            (c.withdraws, c.reliable) = (true, 1)
        },
        &["a reliable reader missed a message"],
    ),
    (
        Without::Modulo,
        |c| {
            one(c);
            (c.first, c.messages) = ((1 << 48) - 1, 4)
        },
        EARLY,
    ),
    (
        Without::Unbegun,
        |c| {
            late(c);
            (c.reliable, c.first, c.messages) = (1, 1 << 47, 4)
        },
        &["a reliable reader missed a message"],
    ),
    // Readers that leave.
    (
        Without::CountingHolds,
        |c| {
            one(c);
            (c.leaves, c.buffer) = (true, 3)
        },
        EARLY,
    ),
    (
        Without::EmptyTable,
        |c| {
            one(c);
            (c.leaves, c.buffer, c.kept, c.table) = (true, 3, 0, 1)
        },
        EARLY,
    ),
    // Channels.
    (Without::KeptBeforeLow, channel, EARLY),
    (Without::LookAtKept, channel, EARLY),
    (Without::TakenFirst, channel, EARLY),
    // Forwarding.
    (Without::CountingFirst, forwards, REFUSED),
    (Without::DesksFirst, forwards, REFUSED),
    (Without::Passes, forwards, REFUSED),
    (Without::Odd, liar_forwards, EARLY),
    (Without::OddFence, liar_forwards, EARLY),
    (Without::SecondPass, liar_forwards, EARLY),
    (Without::Check, liar_forwards, EARLY),
];

fn check(rows: &[Row]) {
    for &(without, change, how) in rows {
        let config = Config::new("broken").with(change);
        let why = breaks(config.with(|c| c.without = without));
        assert!(how.contains(&why), "{without:?}: {why}");
    }
}

#[test]
fn every_rule_of_a_topic() {
    check(&ROWS[..15]);
}

#[test]
fn every_rule_of_all_else() {
    check(&ROWS[15..]);
}

/// Each rule is taken away somewhere in the table.
#[test]
fn the_table_has_every_rule() {
    let last = Without::Check;
    let all: Vec<_> = ROWS.iter().map(|(without, ..)| *without as usize).collect();
    assert!((1..=last as usize).all(|rule| all.contains(&rule)));
}
