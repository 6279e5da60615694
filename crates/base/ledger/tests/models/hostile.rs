//! A liar: no honest domain ever holds a buffer that the writer has again.

use crate::config::{A, B, C, Config, E};
use crate::{holds, torture};

fn liar(c: &mut Config, who: u8) {
    (c.liar, c.generation_bits) = (Some(who), 3);
}

/// B lies to C, which the writer also sends to.
pub fn lies(name: &str) -> Config {
    Config::new(name, 3, &[(A, B), (B, C), (A, C)]).with(|c| liar(c, B))
}

/// B lies to C, which passes on to E in good faith.
pub fn lies_on(name: &str) -> Config {
    Config::new(name, 4, &[(A, B), (B, C), (C, E)]).with(|c| liar(c, B))
}

/// B lies to C and to the writer itself; C sends back to the writer in good faith.
pub fn lies_to_the_writer(name: &str) -> Config {
    Config::new(name, 3, &[(A, C), (B, A), (C, A)]).with(|c| liar(c, B))
}

/// B lies to C, which becomes a reader at run time.
pub fn lies_early(name: &str) -> Config {
    Config::new(name, 3, &[(A, B), (B, C)]).with(|c| {
        liar(c, B);
        c.late = 2;
    })
}

#[test]
fn a_liar_that_forwards() {
    holds(&lies("liar"));
}

#[test]
fn a_liar_behind_an_honest_forwarder() {
    holds(&lies_on("liar behind a forwarder").with(|c| c.generation_bits = 2));
    if torture() {
        holds(&lies_on("liar behind a forwarder, wide generations"));
    }
}

#[test]
fn a_liar_towards_the_writer() {
    holds(&lies_to_the_writer("liar towards the writer").with(|c| c.generation_bits = 2));
    if torture() {
        holds(&lies_to_the_writer(
            "liar towards the writer, wide generations",
        ));
    }
}

#[test]
fn a_liar_during_an_assignment() {
    holds(&lies_early("liar during an assignment").with(|c| c.always_twice = true));
}

#[test]
fn a_liar_and_deaths() {
    holds(&lies("liar and deaths").with(|c| {
        (c.mortal, c.deaths, c.generation_bits) = (1 << B | 1 << C, 1, 2);
    }));
    if torture() {
        holds(&lies("liar and deaths, deep rings").with(|c| {
            (c.mortal, c.deaths, c.ring, c.generation_bits) = (1 << B | 1 << C, 2, 2, 2);
        }));
    }
}
