//! Sleepers on a word of an untrusted peer's, which can move them to another word.

use std::sync::atomic::AtomicU32;

use tranship_core::{ChannelOptions, Domain, Receiver, Wait};
use tranship_proto::Role;
use tranship_testkit::{Control, child};

use crate::stage::{Stage, path};
use tranship_testkit::hostile::raw::Raw;

// Takes the messages that come until no sender is left. Its helper thread runs.
child!(
    fn sleeps(ctl: Control) {
        let builder = Domain::builder().name("sleeps").socket(path());
        let domain = builder.helper_thread(true).connect().unwrap();
        let options = ChannelOptions::new().wait(Wait::Sleep);
        let listener = domain.listen_with::<Receiver>("bed", options).unwrap();
        ctl.send(&()).unwrap();
        let mut receiver = listener.accept().unwrap();
        let mut taken = 0;
        while receiver.recv().is_ok() {
            taken += 1;
        }
        ctl.send(&taken).unwrap();
    }
);

/// Moves a sleeper on a word to another word.
fn moved(from: &AtomicU32, to: &AtomicU32) -> bool {
    let (from, to) = (from.as_ptr(), to.as_ptr());
    // SAFETY: both words are mapped; nothing is written.
    unsafe { libc::syscall(libc::SYS_futex, from, libc::FUTEX_REQUEUE, 0, 1, to, 0) == 1 }
}

child!(
    fn takes_sleepers_away(ctl: Control) {
        let mut raw = Raw::join("taker");
        let mut channel = raw.connect("bed", Role::Source);
        // No thread sleeps long before the first message has come.
        let hello = [(1 << 32) | (5 << 40), 0, 0, 0, 0, 0, 0, 0];
        channel.push(hello);
        let nowhere = AtomicU32::new(0);
        for _ in 0..5 {
            while !moved(channel.own.wake(), &nowhere) {
                std::thread::yield_now();
            }
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

#[test]
fn who_was_taken_away_wakes_all_the_same() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let victim = stage.honest(sleeps());
    victim.expect::<()>();
    let taker = stage.attacker(takes_sleepers_away());
    taker.expect::<()>();
    taker.kill();
    assert_eq!(victim.expect::<u32>(), 1);
}
