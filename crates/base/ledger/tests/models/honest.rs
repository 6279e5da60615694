//! Honest domains: nothing is reused early, nothing is refused, nothing leaks.

use crate::config::{A, B, C, Config};
use crate::{holds, torture};

/// A cycle, forwarding through a third domain, and a second way to it.
pub const CYCLE: &[(u8, u8)] = &[(A, B), (B, C), (C, A), (A, C)];
const TRIANGLE: &[(u8, u8)] = &[(A, B), (B, C), (A, C)];

#[test]
fn forwarding_in_a_cycle() {
    holds(&Config::new("cycle", 3, &CYCLE[..3]).with(|c| c.any_order = true));
    if torture() {
        holds(&Config::new("cycle and a second way", 3, CYCLE));
        holds(
            &Config::new("cycle and a second way, any order", 3, CYCLE)
                .with(|c| c.any_order = true),
        );
    }
}

#[test]
fn several_messages_and_references_at_once() {
    holds(&Config::new("deep rings", 3, &[(A, B), (B, C)]).with(|c| (c.ring, c.holds) = (2, 2)));
    if torture() {
        holds(
            &Config::new("deep rings, triangle", 3, TRIANGLE).with(|c| (c.ring, c.holds) = (2, 2)),
        );
    }
}

#[test]
fn deaths_between_every_two_steps() {
    let mortal = |c: &mut Config| (c.mortal, c.deaths) = (1 << B | 1 << C, 2);
    holds(&Config::new("deaths", 3, TRIANGLE).with(mortal));
    if torture() {
        holds(&Config::new("deaths, cycle", 3, CYCLE).with(mortal));
        holds(
            &Config::new("deaths, deep rings", 3, &[(A, B), (B, C)]).with(|c| {
                mortal(c);
                (c.ring, c.holds) = (2, 2);
            }),
        );
    }
}

#[test]
fn hang_ups_between_every_two_steps() {
    let hangs_up = |c: &mut Config| c.hangs_up = 1 << B | 1 << C;
    holds(&Config::new("hang-ups", 3, &CYCLE[..3]).with(hangs_up));
}

#[test]
fn the_writer_dies_and_the_manager_gives_the_verdict() {
    let orphan = |c: &mut Config| {
        (c.mortal, c.deaths, c.orphan) = (1 << A | 1 << B | 1 << C, 2, true);
        c.collection = vec![tranship_ledger::CollectStep::Pass];
    };
    holds(&Config::new("orphan", 3, TRIANGLE).with(orphan));
    if torture() {
        holds(&Config::new("orphan, cycle", 3, CYCLE).with(orphan));
    }
}

#[test]
fn the_manager_dies_between_every_two_steps() {
    let dies = |c: &mut Config| (c.late, c.manager_dies) = (0b110, true);
    holds(&Config::new("no manager", 3, &CYCLE[..3]).with(dies));
    if torture() {
        holds(&Config::new("no manager, deaths", 3, TRIANGLE).with(|c| {
            dies(c);
            (c.mortal, c.deaths) = (1 << B | 1 << C, 2);
        }));
    }
}

#[test]
fn queues_leave() {
    holds(&Config::new("teardown", 3, TRIANGLE).with(|c| c.closable = 7));
    if torture() {
        holds(
            &Config::new("teardown and deaths, cycle", 3, CYCLE).with(|c| {
                (c.closable, c.mortal, c.deaths) = (15, 1 << B | 1 << C, 1);
            }),
        );
    }
}

#[test]
fn assignments_while_the_collector_runs() {
    // C becomes a reader at run time, first through B.
    holds(&Config::new("late reader", 3, TRIANGLE).with(|c| c.late = 0b110));
    if torture() {
        holds(
            &Config::new("late readers, cycle, deaths", 3, CYCLE).with(|c| {
                (c.late, c.mortal, c.deaths) = (0b1110, 1 << B | 1 << C, 1);
            }),
        );
        holds(
            &Config::new("late readers, teardown", 3, TRIANGLE)
                .with(|c| (c.late, c.closable) = (0b111, 7)),
        );
    }
}

#[test]
fn aggregates_count_every_piece() {
    let aggregate = |c: &mut Config| (c.aggregates, c.slots) = (true, 2);
    holds(&Config::new("aggregate", 3, &[(A, B), (B, C)]).with(aggregate));
    if torture() {
        holds(&Config::new("aggregate, triangle", 3, TRIANGLE).with(aggregate));
        holds(
            &Config::new("aggregate, deaths", 3, &[(A, B), (B, C)]).with(|c| {
                aggregate(c);
                (c.mortal, c.deaths) = (1 << B | 1 << C, 2);
            }),
        );
    }
}

#[test]
fn what_is_moved_has_one_holder() {
    let moves = |c: &mut Config| c.moves = true;
    holds(&Config::new("moves in a cycle", 3, &CYCLE[..3]).with(|c| {
        moves(c);
        c.ring = 2;
    }));
    holds(&Config::new("moves and deaths", 3, TRIANGLE).with(|c| {
        moves(c);
        (c.mortal, c.deaths) = (1 << B | 1 << C, 2);
    }));
    if torture() {
        holds(
            &Config::new("moves of two buffers, deaths, cycle", 3, CYCLE).with(|c| {
                moves(c);
                (c.slots, c.mortal, c.deaths) = (2, 1 << B | 1 << C, 1);
            }),
        );
    }
}

#[test]
fn counters_and_generations_wrap_around() {
    let wrap = |c: &mut Config| (c.normalise, c.counter_bits, c.generation_bits) = (false, 2, 3);
    holds(&Config::new("wrap", 3, &[(A, B), (B, C)]).with(wrap));
    if torture() {
        holds(&Config::new("wrap, triangle", 3, TRIANGLE).with(wrap));
    }
}
