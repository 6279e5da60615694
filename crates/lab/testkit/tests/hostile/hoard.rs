//! Waiters without number on each futex word that the attacker can see and a victim wakes: how many of them one wake-up
//! reaches is how far the victim walks.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use tranship_proto::{BufferId, Event, Role};
use tranship_region::layout::RefsRo;
use tranship_sys::map;
use tranship_testkit::hostile::Hoard;
use tranship_testkit::hostile::raw::{Raw, SLOTS};
use tranship_testkit::{Control, child, skipped};

use crate::cast::{Answer, Ask};
use crate::stage::Stage;

/// Number of waiters that no honest domain has, and that is no burden for the machine.
const WAITERS: usize = 20_000;
/// More sleepers on a word than an honest domain has at once, and few for the thread that wakes them.
const MOST: usize = 16;
/// Buffers that the receiver is sent in turn.
const BUFFERS: u32 = 32;
/// Offset of the word in a control page (docs/format.md).
const WAKE: usize = 64;
/// Wake-ups that are looked at, at least.
const WAKES: usize = 20;

#[derive(Debug, Serialize, Deserialize)]
enum Seen {
    /// Of all these wake-ups so many waiters were reached.
    Walked { wakes: usize, reached: usize },
    /// There are no such waiters here.
    Impossible(String),
}

/// Puts waiters on a word, and wakes them. `harry` makes the victim wake, once or more often, and comes back when it
/// has.
fn hoard(word: &AtomicU32, mut harry: impl FnMut()) -> Seen {
    let now = || word.load(Ordering::SeqCst);
    let mut hoard = match Hoard::new() {
        Ok(hoard) => hoard,
        Err(error) => return Seen::Impossible(format!("io_uring: {error}")),
    };
    // The word may change meanwhile, if the victim is busy.
    while hoard.waiting() < WAITERS {
        let left = WAITERS - hoard.waiting();
        match hoard.wait_on(word, now(), left) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(error) => return Seen::Impossible(format!("FUTEX_WAIT: {error}")),
        }
    }
    hoard.woken().unwrap();
    let first = now();
    let (mut reached, mut wakes) = (0, 0);
    while wakes < WAKES || reached == 0 {
        harry();
        reached += hoard.woken().unwrap();
        wakes = now().wrapping_sub(first) as usize;
    }
    Seen::Walked { wakes, reached }
}

/// A word that somebody else writes.
fn word<'a>(at: *const AtomicU32) -> &'a AtomicU32 {
    // SAFETY: in a mapping that the attacker keeps; only loaded, and waited on.
    unsafe { &*at }
}

child!(
    fn hoarder(ctl: Control) {
        // The manager's answers to a client: its control page.
        let mut raw = Raw::join("hoarder");
        let page = map::map_shared(&raw.kept[0], map::Access::Read, 4096, 0).unwrap();
        // SAFETY: in the mapping that was just made.
        let page = unsafe { page.as_ptr().add(WAKE) }.cast_const();
        // The wake-up comes after the message: that of the last one but one has come with the last.
        let seen = hoard(word(page.cast()), || {
            for _ in 0..4 {
                raw.sync();
            }
        });
        ctl.send(&seen).unwrap();

        // A source that sends to a sink that says that it sleeps: the word in its half.
        let mut channel = raw.connect("feed", Role::Sink);
        raw.take_offer(&mut channel);
        let at = channel.theirs.wake().as_ptr();
        let mut position = 0;
        let seen = hoard(word(at), || {
            for _ in 0..64 {
                let flag = word(at).load(Ordering::SeqCst) << 2 | 1;
                channel.own.asleep().store(flag, Ordering::SeqCst);
                let prey = raw.prey.as_ref().unwrap();
                let id = BufferId(channel.take(position, prey)[2]);
                prey.release(id);
                position += 1;
            }
        });
        ctl.send(&seen).unwrap();
        raw.close(channel);

        // A reader that lets go of a buffer whose writer wants to hear of it: the word beside its counters.
        let bait = raw.create_pool("bait");
        // More buffers than the receiver holds at once.
        for n in 0..BUFFERS {
            let slot = bait.table.slot(n).unwrap();
            slot.offset.store(u64::from(n) * 1024, Ordering::SeqCst);
            slot.length.store(1024, Ordering::SeqCst);
            slot.generation.store(2, Ordering::SeqCst);
        }
        bait.table.relinquish().store(1, Ordering::SeqCst);
        let mut channel = raw.connect("sink", Role::Source);
        raw.assign(&mut channel, bait.id, SLOTS);
        let of_new_reader = |e: &Event| match e {
            Event::QueueJoined { new_reader, .. } => new_reader.then_some(()),
            _ => None,
        };
        let ((), fds) = raw.wait(of_new_reader);
        let refs = fds.iter().find_map(|fd| RefsRo::open(fd, SLOTS).ok());
        let refs = refs.unwrap();
        let line = |n| {
            let (id, offset) = (BufferId::new(bait.id, n, 2), u64::from(n) * 1024);
            [2 << 32, 0, id.0, offset, 64, 1, 0, 0]
        };
        let seen = hoard(word(refs.wake_ptr()), || {
            for n in 0..BUFFERS {
                assert!(raw.room(&channel), "the receiver has left");
                channel.push(line(n));
            }
        });
        ctl.send(&seen).unwrap();
        raw.close(channel);
        let _ = ctl.recv::<()>();
    }
);

pub fn play(stage: &Stage) {
    let attacker = stage.attacker(hoarder());
    let mut walks = Vec::new();
    for what in [
        "the manager's answer",
        "a source's message",
        "a reader's release",
    ] {
        match attacker.expect::<Seen>() {
            Seen::Impossible(why) => return skipped(why),
            Seen::Walked { wakes, reached } => {
                eprintln!("{what}: {reached} waiters of {WAITERS} in {wakes} wake-ups");
                if reached > wakes * MOST {
                    walks.push(format!(
                        "{what}: {wakes} wake-ups reached {reached} waiters"
                    ));
                }
            }
        }
    }
    assert!(
        walks.is_empty(),
        "at most {MOST} each are to be: {walks:#?}"
    );
    let Answer::End(_) = stage.writer.ask(&Ask::End) else {
        panic!("the channel that was harried did not end");
    };
    stage.still_serving("waiters without number");
}
