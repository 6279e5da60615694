//! Through a ring, as a sink: cursors, counters, flags and control lines that are wrong, and waiting on
//! words that others sleep on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tranship_proto::{BufferId, Role};
use tranship_sys::futex;
use tranship_testkit::{Control, Random, child};

use crate::cast::{Answer, Ask};
use crate::stage::Stage;
use tranship_testkit::hostile::raw::{Channel, LINES, Raw};

struct Lie {
    name: &'static str,
    reason: &'static str,
    tell: fn(&mut Raw, &mut Channel, &mut Random),
}

const GONE: &str = "is gone";
const CURSOR: &str = "its ring cursor went to";

/// Takes lines honestly, up to a position.
fn take(raw: &Raw, channel: &Channel, from: u64, to: u64) {
    let prey = raw.prey.as_ref().unwrap();
    for position in from..to {
        let id = BufferId(channel.take(position, prey)[2]);
        prey.release(id);
    }
}

fn control(words: [u64; 8]) -> fn(&mut Raw, &mut Channel, &mut Random) {
    // One function per line is not needed: only the first word differs.
    match words[0] >> 32 & 0xff {
        2 => |_, c, _| c.push([2 << 32, 0, 0, 0, 0, 0, 0, 0]),
        77 => |_, c, _| c.push([77 << 32, 0, 0, 0, 0, 0, 0, 0]),
        _ => |_, c, _| c.push([1 << 32 | 60 << 40, 0, 0, 0, 0, 0, 0, 0]),
    }
}

fn lies() -> Vec<Lie> {
    let lie = |name, reason, tell| Lie { name, reason, tell };
    let word = |operation: u64| [operation << 32, 0, 0, 0, 0, 0, 0, 0];
    vec![
        lie("cursor_max", CURSOR, |_, c, _| {
            c.own.head().store(u64::MAX, Ordering::SeqCst)
        }),
        lie("cursor_one_past_the_end", CURSOR, |_, c, _| {
            c.own.head().store(u64::from(LINES) + 1, Ordering::SeqCst);
        }),
        lie(
            "cursor_runs_backwards",
            "its ring cursor went to 2",
            |raw, c, _| {
                take(raw, c, 0, 3);
                // The sender's position shows that the writer has read 3.
                c.line(u64::from(LINES) + 2);
                c.own.head().store(2, Ordering::SeqCst);
            },
        ),
        lie(
            "control_names_a_buffer",
            "control: operation 2",
            control(word(2)),
        ),
        lie(
            "control_of_no_operation",
            "control: operation 77",
            control(word(77)),
        ),
        lie(
            "control_too_long",
            "control: 60 inline bytes",
            control(word(1)),
        ),
        lie("flags_are_garbage", GONE, |raw, c, random| {
            for position in 0..500 {
                c.own.asleep().store(random.next() as u32, Ordering::SeqCst);
                c.own.wake().store(random.next() as u32, Ordering::SeqCst);
                take(raw, c, position, position + 1);
            }
        }),
        lie("counters_are_garbage", GONE, |raw, c, random| {
            let prey = raw.prey.as_ref().unwrap();
            for position in 0..100 {
                let id = BufferId(c.line(position)[2]).slot() as usize;
                c.counts[0].1.counts()[id].store(random.next() as u32, Ordering::SeqCst);
                prey.refs.refs()[id].store(random.next() as u32 & 1, Ordering::SeqCst);
                c.own.head().store(position + 1, Ordering::SeqCst);
            }
            for word in prey.refs.refs() {
                word.store(0, Ordering::SeqCst);
            }
        }),
        lie("says_received_before_it_was_sent", GONE, |raw, c, _| {
            // Only lines that are in the ring already: no slot with such a count is reused until the channel has left.
            c.line(u64::from(LINES) - 1);
            for word in c.counts[0].1.counts() {
                word.store(1, Ordering::SeqCst);
            }
            c.own.head().store(u64::from(LINES), Ordering::SeqCst);
            let _ = raw;
        }),
        lie("takes_and_counts_nothing", GONE, |_, c, _| {
            for position in 0..100 {
                c.line(position);
                c.own.head().store(position + 1, Ordering::SeqCst);
            }
        }),
        lie("closed_is_garbage", GONE, |raw, c, _| {
            c.own.closed().store(0xdead_beef, Ordering::SeqCst);
            let _ = raw;
        }),
        lie("waits_on_all_words", GONE, |raw, c, _| steal(raw, c)),
    ]
}

/// Many threads wait on every futex word that the attacker can see, so that wake-ups go to them.
fn steal(raw: &Raw, channel: &Channel) {
    let prey = raw.prey.as_ref().unwrap();
    let done = AtomicBool::new(false);
    let words = [
        channel.theirs.wake().as_ptr(),
        prey.table.relinquish().as_ptr(),
        channel.theirs.asleep().as_ptr(),
    ];
    std::thread::scope(|scope| {
        for word in words {
            // SAFETY: in mappings that outlive the scope; only loaded and waited on.
            let word = unsafe { &*word };
            for _ in 0..8 {
                let done = &done;
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let _ = futex::wait(
                            word,
                            word.load(Ordering::Relaxed),
                            Some(Duration::from_millis(1)),
                        );
                    }
                });
            }
        }
        take(raw, channel, 0, 300);
        done.store(true, Ordering::Relaxed);
    });
}

child!(
    fn wrong_sink(ctl: Control) {
        let mut raw = Raw::join("wrong-sink");
        let mut random = Random::printed("wrong-sink");
        while let Some(index) = ctl.recv::<usize>().unwrap() {
            let mut channel = raw.connect("feed", Role::Sink);
            raw.take_offer(&mut channel);
            let lie = &lies()[index];
            (lie.tell)(&mut raw, &mut channel, &mut random);
            if lie.reason == GONE {
                raw.close(channel);
                ctl.send(&()).unwrap();
                let Some(()) = ctl.recv().unwrap() else {
                    return;
                };
            } else {
                ctl.send(&()).unwrap();
                let Some(()) = ctl.recv().unwrap() else {
                    return;
                };
                raw.close(channel);
            }
        }
    }
);

pub fn play(stage: &Stage) {
    let attacker = stage.attacker(wrong_sink());
    for (index, lie) in lies().iter().enumerate() {
        attacker.send(&index).unwrap();
        let Answer::End(reason) = stage.writer.ask(&Ask::End) else {
            panic!("{}", lie.name)
        };
        eprintln!("{:40} {reason}", lie.name);
        assert!(
            reason.contains(lie.reason),
            "{}: {reason:?} instead of {:?}\n{}",
            lie.name,
            lie.reason,
            attacker.stderr()
        );
        attacker.expect::<()>();
        attacker.send(&()).unwrap();
        stage.still_serving(lie.name);
    }
}
