//! A writer with two threads: one sends, lets go and collects, another finds the same buffers by their ids, or takes them
//! back. Nothing is reused early, queued twice, or lost; and what breaks without each rule.

use tranship_ledger::order::SendStep;

use crate::broken::EARLY;
use crate::config::{A, B, C, Config};
use crate::{breaks, holds, torture};

/// A sends to B, which sends back; and one rule more or less.
fn back(name: &str, change: impl FnOnce(&mut Config)) -> Config {
    Config::new(name, 2, &[(A, B), (B, A)]).with(|c| {
        c.writers = 2;
        change(c);
    })
}

#[test]
fn two_threads_and_a_buffer_that_comes_back() {
    holds(&back("two threads", |_| {}));
    holds(&back("two threads, two handles each", |c| c.holds = 2));
}

#[test]
fn two_threads_and_two_ways() {
    let ways = |c: &mut Config| c.writers = 2;
    holds(&Config::new("two threads, two ways", 3, &[(A, B), (A, C)]).with(ways));
    if torture() {
        let all = &[(A, B), (A, C), (B, A), (B, C)];
        holds(&Config::new("two threads, four ways", 3, all).with(ways));
        holds(&back("two threads, two buffers", |c| c.slots = 2));
    }
}

#[test]
fn two_threads_and_a_liar() {
    let liar = |c: &mut Config| (c.writers, c.liar) = (2, Some(B));
    let all = &[(A, C), (B, A), (C, A)];
    holds(&Config::new("two threads and a liar", 3, all).with(liar));
    if torture() {
        let wide = |c: &mut Config| (c.holds, c.generation_bits) = (2, 3);
        let config = Config::new("two threads and a liar, two handles each", 3, all).with(liar);
        holds(&config.with(wide));
    }
}

#[test]
fn two_threads_and_deaths() {
    let mortal = |c: &mut Config| (c.mortal, c.deaths) = (1 << B, 1);
    holds(&back("two threads, a death", mortal));
}

fn goes_wrong(config: &Config, how: &[&str]) {
    let why = breaks(config);
    assert!(how.contains(&why), "{why}");
}

const LOST: &[&str] = &[
    "a buffer is collected while an honest domain holds it",
    "a domain holds a buffer that the writer has again",
    "a handle goes that was not counted",
    "a buffer leaks",
];

/// The plain store that gives the handle away undoes one that was counted since the generation was even.
#[test]
fn an_even_generation_before_the_handle_goes() {
    use SendStep::{Count, LetGo, Open, Publish, Queue};
    let order = |order: [SendStep; 5]| move |c: &mut Config| c.send_first = order.to_vec();
    for order in [
        order([Open, LetGo, Count, Publish, Queue]),
        order([Open, Count, LetGo, Publish, Queue]),
        order([Open, Count, Publish, LetGo, Queue]),
    ] {
        goes_wrong(&back("even, then the handle", order), LOST);
    }
    // It comes back from a domain that guesses the id, too.
    let lies = Config::new("even, then the handle, liar", 3, &[(A, C), (B, A)]);
    let lies = lies.with(|c| {
        (c.writers, c.finds, c.liar) = (2, false, Some(B));
        order([Open, LetGo, Count, Publish, Queue])(c);
    });
    goes_wrong(&lies, LOST);
}

#[test]
fn queueing_before_counting() {
    use SendStep::{Count, LetGo, Open, Publish, Queue};
    for order in [
        [LetGo, Open, Queue, Count, Publish],
        [LetGo, Queue, Open, Count, Publish],
    ] {
        let early = back("queue, then sent++", |c| c.send_first = order.to_vec());
        goes_wrong(&early, &[EARLY[0], "a buffer is handed out twice"]);
    }
}

#[test]
fn finding_without_the_lock() {
    let config = back("find without the lock", |c| c.find_without_lock = true);
    goes_wrong(&config, LOST);
}

#[test]
fn taking_back_without_the_lock() {
    let lies = Config::new("take back without the lock", 3, &[(A, C), (B, A)]).with(|c| {
        (c.writers, c.liar) = (1, Some(B));
        c.take_back_without_lock = true;
    });
    goes_wrong(&lies, LOST);
}

#[test]
fn a_handle_that_goes_in_two_steps() {
    let config = back("two steps to let go", |c| c.let_go_in_two_steps = true);
    goes_wrong(&config, &["a buffer is queued twice"]);
}

#[test]
fn a_collector_that_keeps_in_two_steps() {
    let config = back("two steps to keep", |c| c.keep_in_two_steps = true);
    goes_wrong(&config, LOST);
}

#[test]
fn a_collector_that_drops_what_is_alive() {
    let config = back("dropped", |c| c.drop_what_is_alive = true);
    goes_wrong(&config, &["a buffer leaks"]);
}
