//! All states of small configurations keep the model's invariants. `TRANSHIP_TORTURE=1` makes them larger.

use tranship_model::explore::{self, Case, explore};
use tranship_model::{Trust, Way};

fn all_states(case: &Case, least: usize) {
    let mut ways = 0;
    let states = explore(case.model(), &case.limits, &mut |_, _, _| ways += 1);
    println!("{case:?}: {states} states, {ways} ways");
    assert!(states > least, "only {states} states: the search is broken");
}

#[test]
fn two_domains_one_channel() {
    all_states(&explore::two_domains_one_channel(), 200);
}

#[test]
fn three_domains_in_a_circle() {
    all_states(&explore::three_domains_in_a_circle(), 200);
}

#[test]
fn two_channels_and_a_death() {
    all_states(&explore::two_channels_and_a_death(), 200);
}

#[test]
fn three_domains_in_a_row() {
    all_states(&explore::three_domains_in_a_row(), 200);
}

#[test]
fn copies_at_the_receiver() {
    all_states(&explore::copies_at_the_receiver(), 200);
}

#[test]
fn sealed_at_the_receiver() {
    all_states(&explore::sealed_at_the_receiver(), 200);
}

#[test]
fn a_pool_is_removed() {
    for way in [Way::Inside, Way::Shared] {
        all_states(&explore::a_pool_is_removed(way), 50);
    }
}

#[test]
fn receive_master() {
    for way in [Way::Inside, Way::Shared, Way::Carried] {
        for trust in Trust::ALL {
            all_states(&explore::receive_master(way, trust), 20);
        }
    }
}
