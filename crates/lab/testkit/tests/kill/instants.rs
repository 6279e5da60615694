//! Kills at random instants.

use std::time::{Duration, Instant};

use tranship_testkit::{Random, Watchdog};

use crate::stage::{ROLES, Role, Stage};

/// Kills of one run.
pub fn kills() -> u64 {
    tranship_testkit::kills(40, 2000)
}

#[test]
fn at_random_instants() {
    let dog = Watchdog::new();
    let mut random = Random::printed("at_random_instants");
    let mut stage = Stage::new(&mut random);
    for n in 0..kills() {
        dog.step(format_args!("{n} kills"));
        let victim = ROLES[usize::try_from(random.below(4)).unwrap_or(0)];
        let began = Instant::now();
        random.instant(Duration::from_millis(3));
        // The line is printed before the kill, because the other processes print their reactions after it.
        eprintln!("{n}: {victim:?} is killed");
        stage.kill(victim);
        // The manager's absence is felt, and half of the others' too, before there is a new one.
        if victim == Role::Manager || random.one_in(2) {
            stage.pair_goes_on();
        }
        while random.one_in(4) {
            stage.stillborn(victim, &mut random, Duration::from_millis(8));
        }
        stage.replace(victim);
        if random.one_in(2) {
            stage.flows();
        }
        if random.one_in(4) {
            stage.whole_quota();
        }
        stage.pair_goes_on();
        eprintln!("{n}: went on after {:?}", began.elapsed());
    }
    dog.step("all kills");
    stage.flows();
    stage.whole_quota();
    stage.ends();
}

#[test]
fn nobody_killed() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("nobody_killed");
    let stage = Stage::new(&mut random);
    stage.flows();
    stage.whole_quota();
    stage.pair_goes_on();
    stage.ends();
}

/// Memory that came back to a new manager is as good as memory that was made under it.
#[test]
fn after_a_new_manager() {
    let _dog = Watchdog::new();
    let mut random = Random::printed("after_a_new_manager");
    let mut stage = Stage::new(&mut random);
    for victim in [Role::Writer, Role::Forwarder, Role::Receiver] {
        for all_are_back in [true, false] {
            stage.kill(Role::Manager);
            stage.replace(Role::Manager);
            if all_are_back {
                for role in [Role::Writer, Role::Forwarder, Role::Receiver] {
                    assert!(stage.is_managed(role), "{role:?}");
                }
            }
            stage.kill(victim);
            stage.replace(victim);
            stage.flows();
            stage.whole_quota();
            stage.pair_goes_on();
        }
    }
    stage.ends();
}

/// A manager that stands still, at any instant, holds up its clients, and only until it goes on.
#[test]
fn a_manager_stands_still() {
    let dog = Watchdog::new();
    let mut random = Random::printed("a_manager_stands_still");
    let mut stage = Stage::new(&mut random);
    for n in 0..kills() / 2 {
        dog.step(format_args!("{n} times"));
        let newcomer = ROLES[usize::try_from(random.below(4)).unwrap_or(0)];
        stage.kill(newcomer);
        if newcomer == Role::Manager {
            stage.replace(Role::Manager);
        } else {
            stage.replace_doomed(newcomer, "nowhere");
        }
        random.instant(Duration::from_millis(6));
        stage.of(Role::Manager).stop();
        random.instant(Duration::from_millis(6));
        stage.of(Role::Manager).resume();
        if newcomer != Role::Manager {
            stage.joins(newcomer);
        }
        stage.flows();
        stage.whole_quota();
        stage.pair_goes_on();
    }
    dog.step("all");
    stage.ends();
}
