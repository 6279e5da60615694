//! Buffers that their receivers pass back to the writer: nothing is reused early, refused, or lost; and what breaks without each rule.

use tranship_ledger::order::{PassStep, ReturnStep};

use crate::broken::EARLY;
use crate::config::{A, B, C, Config};
use crate::{breaks, holds, torture};

/// A sends to B, which passes back; and one rule more or less.
fn passes(name: &str, change: impl FnOnce(&mut Config)) -> Config {
    Config::new(name, 2, &[(A, B), (B, A)]).with(|c| {
        (c.writers, c.finds, c.backs) = (1, false, vec![(1, 0)]);
        change(c);
    })
}

#[test]
fn what_is_passed_back_is_the_writers_when_it_takes_it() {
    // Of what a direct verdict leaves undecided there is the other one.
    for twice in [false, true] {
        holds(&passes("passes", |c| c.always_twice = twice));
        holds(&passes("passes, two handles each", |c| {
            (c.holds, c.always_twice) = (2, twice);
        }));
        holds(&passes("passes, two threads that look for ids", |c| {
            (c.writers, c.finds, c.always_twice) = (2, true, twice);
        }));
    }
    if torture() {
        let deep = |c: &mut Config| (c.writers, c.ring, c.holds, c.slots) = (2, 2, 2, 2);
        holds(&passes("passes, deep rings", deep));
    }
}

/// C gets it directly, or through B; it passes back to the writer, B passes on.
#[test]
fn passes_of_what_was_forwarded() {
    let ways = &[(A, B), (B, C), (A, C), (C, A)];
    let forwards = |c: &mut Config| (c.writers, c.finds, c.backs) = (1, false, vec![(3, 2)]);
    holds(&Config::new("passes of what was forwarded", 3, ways).with(forwards));
}

#[test]
fn passes_and_deaths() {
    let mortal = |c: &mut Config| (c.mortal, c.deaths) = (1 << B, 1);
    for twice in [false, true] {
        holds(&passes("passes and a death", |c| {
            mortal(c);
            c.always_twice = twice;
        }));
        holds(&passes("passes and a death, two threads", |c| {
            mortal(c);
            (c.writers, c.always_twice) = (2, twice);
        }));
    }
    let undrained = breaks(&passes("a queue that leaves before its returns", |c| {
        mortal(c);
        c.leave_with_returns = true;
    }));
    assert_eq!(undrained, "an honest reference was refused");
}

/// B lies, also about what it passes back, and sends to C, which passes back in good faith.
fn lies(name: &str) -> Config {
    Config::new(name, 3, &[(A, C), (C, A), (B, A), (B, C)]).with(|c| {
        (c.writers, c.finds, c.liar) = (1, false, Some(B));
        c.backs = vec![(1, 0)];
    })
}

/// The same where the writer sends to the liar, which passes back what it has passed on.
fn lies_back(name: &str) -> Config {
    Config::new(name, 3, &[(A, B), (B, A), (B, C)]).with(|c| {
        (c.writers, c.finds, c.liar) = (1, false, Some(B));
        c.backs = vec![(1, 0)];
    })
}

#[test]
fn passes_and_a_liar() {
    holds(&lies("passes beside a liar"));
    holds(&lies_back("passes of a liar"));
}

/// It has passed on uncounted what it passes back.
#[test]
fn what_is_passed_back_is_not_exclusive() {
    let why =
        breaks(&lies_back("exclusive when it is back").with(|c| c.exclusive_at_return = true));
    assert!(EARLY.contains(&why), "{why}");
}

#[test]
fn a_reference_that_goes_before_the_receipt_is_taken_back() {
    use PassStep::{Publish, Release, Uncount};
    for order in [
        [Release, Uncount, Publish],
        [Release, Publish, Uncount],
        [Publish, Release, Uncount],
    ] {
        let why = breaks(&passes("the reference first", |c| {
            c.pass_back = order.to_vec()
        }));
        assert_eq!(why, "an honest reference was refused", "{order:?}");
    }
}

#[test]
fn a_return_that_is_not_on_its_way_before_it_is_held() {
    let why = breaks(&passes("sent-- before the handle", |c| {
        c.returned = vec![ReturnStep::Uncount, ReturnStep::Hold];
        c.always_twice = true;
    }));
    assert_eq!(why, "an honest reference was refused");
}

#[test]
fn one_look_is_not_enough() {
    use tranship_ledger::order::CollectStep::{Bump, LookAgain};
    let why = breaks(&passes("one look", |c| {
        c.always_twice = true;
        c.collection
            .retain(|step| !matches!(step, Bump | LookAgain));
    }));
    assert_eq!(why, "an honest reference was refused");
}
