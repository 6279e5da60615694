//! Reader sets on which the writer is the source of every queue: one pass is enough; and what breaks without each part of it.

use tranship_ledger::order::CollectStep::{Bump, CheckEpoch, Pass};
use tranship_ledger::order::Phase::{Own, Received, References};

use crate::broken::EARLY;
use crate::config::{A, B, C, Config};
use crate::hostile::{lies, lies_early};
use crate::{breaks, holds, torture};

fn early(config: &Config) {
    let why = breaks(config);
    assert!(EARLY.contains(&why), "{why}");
}

/// A sends to B and to C.
fn fan(name: &str) -> Config {
    Config::new(name, 3, &[(A, B), (A, C)])
}

/// A sends to B, which passes back.
fn passes(name: &str, writers: u8) -> Config {
    Config::new(name, 2, &[(A, B), (B, A)]).with(|c| {
        (c.writers, c.finds, c.backs) = (writers, writers > 1, vec![(1, 0)]);
    })
}

/// The writer, with threads, and B, which lies to it over a queue that it gets.
fn lies_late_to_the_writer(name: &str) -> Config {
    Config::new(name, 3, &[(A, C), (B, A), (A, B)]).with(|c| {
        (c.writers, c.finds, c.liar, c.late) = (1, false, Some(B), 0b010);
    })
}

#[test]
fn readers_of_a_writer() {
    holds(&fan("fan"));
    holds(&fan("fan, two messages and two references each").with(|c| (c.ring, c.holds) = (2, 2)));
    holds(&fan("fan, two threads of A").with(|c| c.writers = 2));
    holds(&fan("fan, deaths and ends").with(|c| {
        (c.mortal, c.deaths, c.closable) = (1 << B | 1 << C, 2, 3);
    }));
    let wraps = |c: &mut Config| (c.normalise, c.counter_bits, c.ring) = (false, 2, 2);
    holds(&Config::new("one reader, counters wrap around", 2, &[(A, B)]).with(wraps));
}

#[test]
fn queues_that_come_meanwhile() {
    holds(&fan("fan, assignments at run time").with(|c| c.late = 0b10));
    let chain = || Config::new("chain, the second link at run time", 3, &[(A, B), (B, C)]);
    holds(&chain().with(|c| c.late = 0b10));
    holds(&chain().with(|c| (c.late, c.manager_dies) = (0b10, true)));
    holds(&chain().with(|c| (c.late, c.closable) = (0b10, 0b11)));
}

/// Lists with a piece each, of which every part is counted; also where B's link to C comes at run time, and two passes are needed from then on.
#[test]
fn aggregates() {
    let aggregate = |c: &mut Config| (c.aggregates, c.slots) = (true, 2);
    holds(&fan("fan, aggregates").with(aggregate));
    holds(&fan("fan, aggregates, deaths and ends").with(|c| {
        aggregate(c);
        (c.mortal, c.deaths, c.closable) = (1 << B, 1, 3);
    }));
    let chain = || {
        Config::new(
            "aggregates, the second link at run time",
            3,
            &[(A, B), (B, C)],
        )
    };
    holds(&chain().with(|c| {
        aggregate(c);
        c.late = 0b10;
    }));
    holds(&chain().with(|c| {
        aggregate(c);
        (c.late, c.manager_dies) = (0b10, true);
    }));
    let wraps = |c: &mut Config| (c.normalise, c.counter_bits, c.generation_bits) = (false, 2, 3);
    holds(
        &Config::new("one reader, aggregates, counters wrap around", 2, &[(A, B)]).with(|c| {
            aggregate(c);
            wraps(c);
        }),
    );
    if torture() {
        holds(
            &fan("fan, aggregates, deep rings, a death and ends").with(|c| {
                aggregate(c);
                (c.mortal, c.deaths, c.closable, c.ring) = (1 << B, 1, 3, 2);
            }),
        );
    }
    early(&fan("fan, the list alone is counted").with(|c| {
        aggregate(c);
        c.count_the_list_only = true;
    }));
    let why = breaks(&chain().with(|c| {
        aggregate(c);
        c.late = 0b10;
        c.collection_direct.remove(2);
    }));
    assert_eq!(why, "an honest reference was refused");
}

#[test]
fn what_is_passed_back() {
    holds(&passes("passes over the only queue", 1).with(|c| (c.ring, c.holds) = (2, 2)));
    if torture() {
        holds(&passes("passes, two threads", 2).with(|c| (c.ring, c.holds) = (2, 2)));
    }
}

#[test]
fn a_liar_that_gets_a_queue() {
    holds(&lies_early("a liar gets a queue to C"));
    holds(&lies_late_to_the_writer("a liar gets a queue to A"));
}

#[test]
fn one_pass_where_a_reader_sends_on() {
    early(&lies("direct, though a liar sends").with(|c| c.always_direct = true));
    early(
        &Config::new("direct, though a reader sends", 3, &[(A, B), (B, C)])
            .with(|c| c.always_direct = true),
    );
}

#[test]
fn without_the_fence() {
    // The epoch is looked at before the odd generation is seen.
    early(&lies_early("no fence").with(|c| {
        c.collection_direct = vec![CheckEpoch, Pass, CheckEpoch, CheckEpoch, Bump];
    }));
}

#[test]
fn without_the_last_look_at_the_epoch() {
    early(&lies_early("epoch before the bump alone").with(|c| {
        c.collection_direct.pop();
    }));
}

#[test]
fn without_the_look_at_the_epoch_before_the_bump() {
    let chain = Config::new("epoch before and at the end", 3, &[(A, B), (B, C)]);
    let why = breaks(&chain.with(|c| {
        c.late = 0b10;
        c.collection_direct.remove(2);
    }));
    assert_eq!(why, "an honest reference was refused");
}

#[test]
fn references_before_receipts() {
    early(&fan("ref, rcvd").with(|c| c.pass_direct = vec![Own, References, Received]));
}

#[test]
fn receipts_before_references_alone() {
    let one = passes("rcvd once", 1).with(|c| c.pass_direct = vec![Own, Received, References]);
    assert_eq!(breaks(&one), "an honest reference was refused");
}

#[test]
fn handles_after_what_was_sent() {
    let late = fan("handles last").with(|c| {
        c.pass_direct = vec![Received, References, Received, Own];
    });
    let why = breaks(&late);
    let unsteady = "what was sent changes during a direct pass";
    assert!(why == unsteady || EARLY.contains(&why), "{why}");
}
