//! All states of small configurations keep the model's invariants.

use crate::states::{self, Case, explore};

fn all_states(case: &Case) {
    let states = explore(case.model(), &case.limits, |_, _, _| {}).len();
    println!("{states} states");
    assert!(states > 1000, "only {states} states: the search is broken");
}

#[test]
fn two_domains_one_channel_from_nothing() {
    all_states(&states::two_domains_one_channel_from_nothing());
}

#[test]
fn three_domains_in_a_circle() {
    all_states(&states::three_domains_in_a_circle());
}

#[test]
fn two_channels_between_two_domains_and_a_death() {
    all_states(&states::two_channels_between_two_domains_and_a_death());
}

#[test]
fn three_domains_in_a_row_that_close_and_remove() {
    all_states(&states::three_domains_in_a_row_that_close_and_remove());
}
