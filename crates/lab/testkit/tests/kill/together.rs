//! A manager that dies between two of its messages, and another one with it.

use std::time::Duration;

use tranship_testkit::{Exit, Random, Watchdog};

use crate::instants::kills;
use crate::stage::{Role, Stage};

const OTHERS: [Role; 3] = [Role::Writer, Role::Forwarder, Role::Receiver];

fn one_of(random: &mut Random) -> Role {
    OTHERS[usize::try_from(random.below(3)).unwrap_or(0)]
}

#[test]
fn with_the_manager() {
    let dog = Watchdog::new();
    let mut random = Random::printed("with_the_manager");
    let mut stage = Stage::new(&mut random);
    for n in 0..kills() / 2 {
        dog.step(format_args!("{n} times two kills"));
        // A newcomer that assigns pools makes the manager talk, and so do all domains that come back to it.
        let newcomer = one_of(&mut random);
        let victim = one_of(&mut random);
        let nth = 1 + random.below(120);
        eprintln!(
            "{n}: the manager at its message {nth}, {victim:?} after it, while {newcomer:?} is new"
        );
        stage.kill(Role::Manager);
        stage.kill(newcomer);
        stage.replace_doomed(Role::Manager, &format!("manager.before_send:{nth}"));
        stage.replace_doomed(newcomer, "nowhere");
        let mut patience = 100;
        while !stage.of(Role::Manager).has_ended() && patience > 0 {
            random.instant(Duration::from_millis(2));
            patience -= 1;
        }
        let exit = stage.of(Role::Manager).kill();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL), "the manager");
        random.instant(Duration::from_millis(3));
        stage.kill(victim);
        stage.replace(Role::Manager);
        if newcomer != victim {
            stage.joins(newcomer);
        }
        stage.replace(victim);
        stage.flows();
        stage.whole_quota();
        stage.pair_goes_on();
    }
    dog.step("all kills");
    stage.ends();
}
