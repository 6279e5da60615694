//! Every rule taken away, one at a time: what goes wrong without it.

use tranship_ledger::order::{CollectStep, ReceiptStep, SendStep};

use crate::breaks;
use crate::config::{A, B, C, Config, E};
use crate::honest::CYCLE;
use crate::hostile::{lies, lies_early, lies_on, lies_to_the_writer};

pub const EARLY: [&str; 4] = [
    "a buffer is collected while an honest domain holds it",
    "a domain holds a buffer that the writer has again",
    "an honest reference was refused",
    "a domain holds another buffer than was named",
];

fn early(config: &Config) {
    let why = breaks(config);
    assert!(EARLY.contains(&why), "{why}");
}

fn triangle(name: &str) -> Config {
    Config::new(name, 3, &CYCLE[..3])
}

#[test]
fn two_collectors() {
    let why = breaks(&Config::new("two collectors", 2, &[(A, B)]).with(|c| {
        (c.collectors, c.always_twice) = (2, true);
    }));
    assert_eq!(why, "a buffer is handed out twice");
}

#[test]
fn a_forwarder_that_releases_before_it_sends() {
    early(&triangle("release before sending").with(|c| c.release_before_sending = true));
}

#[test]
fn publishing_before_counting() {
    // A sender that dies in between leaves a message that nobody counts.
    early(&triangle("publish, then sent++").with(|c| {
        (c.mortal, c.deaths) = (1 << B, 1);
        c.send_kept = vec![SendStep::Open, SendStep::Publish, SendStep::Count];
        c.send_again = vec![SendStep::Publish, SendStep::Count];
    }));
}

#[test]
fn publishing_before_the_generation_is_even() {
    early(&triangle("publish, then even").with(|c| {
        c.send_kept = vec![SendStep::Count, SendStep::Publish, SendStep::Open];
    }));
}

#[test]
fn counting_a_receipt_before_holding() {
    early(&Config::new("rcvd++, then ref++", 2, &[(A, B)]).with(|c| {
        c.direct = vec![ReceiptStep::Count, ReceiptStep::Hold];
    }));
}

#[test]
fn checking_the_generation_before_holding() {
    early(&lies("check, then ref++").with(|c| {
        c.forwarded = vec![ReceiptStep::Check, ReceiptStep::Hold, ReceiptStep::Count];
    }));
}

#[test]
fn no_check_of_the_generation() {
    early(&lies("no check").with(|c| c.forwarded = vec![ReceiptStep::Hold, ReceiptStep::Count]));
}

/// Of a buffer that nobody has sent: it is being filled.
#[test]
fn an_odd_generation_that_is_believed() {
    early(&lies("odd ids").with(|c| c.believe_odd_ids = true));
    early(&lies_to_the_writer("odd ids, to the writer").with(|c| {
        (c.writers, c.believe_odd_ids) = (2, true);
    }));
}

#[test]
fn no_second_look() {
    early(&lies("no second look").with(|c| c.collection.retain(|s| *s != CollectStep::LookAgain)));
}

#[test]
fn a_second_look_without_the_bump() {
    early(&lies("no bump").with(|c| c.collection.retain(|s| *s != CollectStep::Bump)));
}

/// The writer itself gets its buffer back from a liar, sends it anew and releases it, all between the two looks.
#[test]
fn a_second_look_at_the_references_alone() {
    early(&lies_to_the_writer("refs alone").with(|c| {
        c.generation_bits = 2;
        c.look_again_at_references_only = true;
    }));
}

#[test]
fn sums_over_all_queues() {
    // A queue with too many receipts, which the liar makes, pays for a message that is on its way.
    early(&lies("sums").with(|c| (c.sums, c.normalise) = (true, false)));
}

#[test]
fn a_generation_that_is_even_from_the_allocation() {
    early(&lies("even at alloc").with(|c| {
        c.even_at_alloc = true;
        c.send_kept = vec![SendStep::Count, SendStep::Publish];
    }));
}

#[test]
fn no_look_at_the_epoch() {
    early(&triangle("no epoch").with(|c| {
        c.late = 0b110;
        c.collection.retain(|s| *s != CollectStep::CheckEpoch);
    }));
}

#[test]
fn collecting_alone_before_the_end_was_read() {
    early(&triangle("alone before the end").with(|c| {
        (c.late, c.manager_dies, c.alone_before_the_end) = (0b110, true, true);
    }));
}

#[test]
fn a_go_ahead_before_the_writer_was_told() {
    early(&triangle("assigned before told").with(|c| {
        (c.late, c.manager_dies, c.assigned_before_told) = (0b110, true, true);
    }));
}

#[test]
fn a_look_at_the_epoch_only_before_the_pass() {
    early(&triangle("epoch before the pass").with(|c| {
        c.late = 0b110;
        c.collection = vec![
            CollectStep::CheckEpoch,
            CollectStep::Pass,
            CollectStep::Bump,
            CollectStep::LookAgain,
        ];
    }));
}

#[test]
fn no_look_at_the_epoch_between_the_pass_and_the_bump() {
    let why = breaks(&triangle("epoch before and at the end").with(|c| {
        c.late = 0b110;
        c.collection.remove(2);
    }));
    assert_eq!(why, "an honest reference was refused");
}

#[test]
fn no_look_at_the_epoch_at_the_end() {
    early(&lies_early("epoch before the bump").with(|c| {
        c.collection.pop();
        c.always_twice = true;
    }));
}

#[test]
fn a_sink_that_takes_references_before_the_manager_confirms() {
    early(&lies_early("early sink").with(|c| c.sink_takes_early = true));
}

#[test]
fn a_source_that_sends_before_it_is_told() {
    early(&triangle("early source").with(|c| {
        c.late = 0b110;
        (c.source_sends_early, c.sink_takes_early) = (true, true);
    }));
}

#[test]
fn a_queue_that_leaves_before_it_is_drained() {
    early(&triangle("undrained").with(|c| (c.closable, c.leave_undrained) = (7, true)));
}

#[test]
fn a_dead_source_whose_queue_never_leaves() {
    // It died between counting and publishing.
    let why = breaks(&triangle("a dead source stays").with(|c| {
        (c.mortal, c.deaths) = (1 << B, 1);
        c.dead_source_stays = true;
    }));
    assert_eq!(why, "a buffer leaks");
}

/// Pieces are not covered by the list that names them: it is given back as soon as it is read.
#[test]
fn an_aggregate_of_which_only_the_list_is_counted() {
    early(&Config::new("list only", 3, &[(A, B), (B, C)]).with(|c| {
        (c.aggregates, c.slots) = (true, 2);
        c.count_the_list_only = true;
    }));
}

#[test]
fn a_reader_set_that_changes_during_a_pass() {
    early(&triangle("a new queue during a pass").with(|c| {
        (c.late, c.edit_during_a_pass) = (0b110, true);
    }));
    early(&triangle("a queue leaves during a pass").with(|c| {
        (c.closable, c.edit_during_a_pass) = (7, true);
    }));
}

/// A zombie: its connection is lost, and it goes on holding and sending.
#[test]
fn a_hang_up_that_is_taken_for_a_death() {
    early(&triangle("a hang-up is a death").with(|c| {
        (c.hangs_up, c.hang_up_is_death) = (1 << B, true);
    }));
}

#[test]
fn private_references_looked_at_before_the_pass() {
    early(&triangle("own references first").with(|c| c.own_before_the_pass = true));
    early(&lies_to_the_writer("own references first, liar").with(|c| c.own_before_the_pass = true));
}

/// 2^bits messages on their way look like none: why the counters are 32 bits wide and a ring is shorter.
#[test]
fn counters_narrower_than_the_ring() {
    early(&Config::new("1-bit counters", 2, &[(A, B)]).with(|c| {
        (
            c.normalise,
            c.no_whole_turn,
            c.counter_bits,
            c.ring,
            c.holds,
        ) = (false, false, 1, 2, 2);
    }));
}

/// What 32 bits leave open: exactly 2^32 sends of one buffer over one queue while a pass looks at it. (The second
/// look makes that twice in a row.)
#[test]
fn a_whole_turn_of_a_counter_within_one_pass() {
    early(&Config::new("a whole turn", 2, &[(A, B)]).with(|c| {
        (c.normalise, c.no_whole_turn, c.counter_bits) = (false, false, 2);
        c.always_twice = true;
        c.collection.retain(|s| *s != CollectStep::LookAgain);
    }));
}

/// Not a danger to memory: a liar can have an honest domain's forward refused. A receiver therefore does not take
/// a stale reference for a proof that its sender lied.
#[test]
fn a_liar_can_have_an_honest_forward_refused() {
    let config = lies_on("refused in good faith");
    assert_eq!(config.channels[2], (C, E));
    let why = breaks(&config.with(|c| c.blame_refusals_on = Some(2)));
    assert_eq!(why, "an honest reference was refused");
}

#[test]
fn a_buffer_is_used_after_it_was_moved() {
    let config = Config::new("moved and used", 3, &[(A, B), (B, C)]);
    let why = breaks(&config.with(|c| (c.moves, c.uses_what_it_moved) = (true, true)));
    assert_eq!(why, "two domains have a moved buffer");
}
