//! The behaviours that total store order allows and forbids, by the common litmus tests: the explorer has neither too
//! many nor too few.

use tranship_sync::atomic::{AtomicU32, Ordering, fence, yield_now};
use tranship_sync::light_fence;
use tranship_tso::{self as tso, Model};

#[derive(Default)]
struct Words {
    x: AtomicU32,
    y: AtomicU32,
    z: AtomicU32,
    seen: [AtomicU32; 4],
}

impl Words {
    fn see(&self, at: usize, word: &AtomicU32) {
        self.seen[at].store(1 + word.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// Returns the values that were seen, in the order of their places; a default for a place that no thread looked at.
    fn saw<const N: usize>(&self) -> [u32; N] {
        std::array::from_fn(|at| self.seen[at].load(Ordering::Relaxed).wrapping_sub(1))
    }
}

fn set(word: &AtomicU32) {
    word.store(1, Ordering::Release);
}

/// Says whether a system can end like that.
fn can<const N: usize>(threads: &[fn(&Words)], end: [u32; N]) -> bool {
    let mut model = Model::new(Words::default);
    for thread in threads {
        model = model.thread("one", *thread);
    }
    let model = model.at_end(move |words| assert_ne!(words.saw(), end));
    let wrong = model.explore().wrong;
    assert!(
        wrong
            .as_ref()
            .is_none_or(|(why, _)| why.contains("left != right"))
    );
    wrong.is_some()
}

/// Runs a store, an operation and a load, and in the other thread the same with the two words exchanged.
fn buffering(first: fn(), second: fn()) -> bool {
    let mut model = Model::new(Words::default);
    model = model.thread("x", move |words| {
        set(&words.x);
        first();
        words.see(0, &words.y);
    });
    model = model.thread("y", move |words| {
        set(&words.y);
        second();
        words.see(1, &words.x);
    });
    let model = model.at_end(|words| assert_ne!(words.saw(), [0, 0]));
    model.explore().wrong.is_some()
}

#[test]
fn a_load_overtakes_a_store_unless_a_fence_is_between() {
    let full = || fence(Ordering::SeqCst);
    assert!(buffering(|| {}, || {}));
    assert!(buffering(full, || {}));
    assert!(buffering(full, light_fence), "nobody pays for it");
    assert!(buffering(full, || fence(Ordering::AcqRel)));
    assert!(!buffering(full, full));
}

#[test]
fn who_has_everybody_fence_pays_for_the_others() {
    assert!(!buffering(tso::fence_everybody, light_fence));
    assert!(!buffering(tso::fence_everybody, tso::fence_everybody));
}

#[test]
fn a_locked_instruction_is_a_fence() {
    let by = |change: fn(&AtomicU32)| {
        let mut model = Model::new(Words::default);
        model = model.thread("x", move |words| {
            change(&words.x);
            words.see(0, &words.y);
        });
        model = model.thread("y", move |words| {
            change(&words.y);
            words.see(1, &words.x);
        });
        let model = model.at_end(|words| assert_ne!(words.saw(), [0, 0]));
        model.explore().wrong.is_some()
    };
    assert!(by(set));
    assert!(!by(|word| _ = word.swap(1, Ordering::Relaxed)));
    assert!(!by(|word| _ = word.fetch_add(1, Ordering::Relaxed)));
    let exchange = |word: &AtomicU32, from| {
        let _ = word.compare_exchange(from, 1, Ordering::Relaxed, Ordering::Relaxed);
    };
    assert!(!by(|word| word.store(1, Ordering::SeqCst)));
    let model = Model::new(Words::default)
        .thread("x", move |words| {
            exchange(&words.x, 0);
            exchange(&words.x, 7);
            words.see(0, &words.x);
        })
        .at_end(|words| assert_eq!(words.saw(), [1]));
    assert!(model.explore().wrong.is_none());
}

#[test]
fn stores_stay_in_order_and_so_do_loads() {
    let write: fn(&Words) = |words| {
        set(&words.x);
        set(&words.y);
    };
    let read: fn(&Words) = |words| {
        words.see(0, &words.y);
        words.see(1, &words.x);
    };
    assert!(!can(&[write, read], [1, 0]));
    for end in [[0, 0], [0, 1], [1, 1]] {
        assert!(can(&[write, read], end), "{end:?}");
    }
}

#[test]
fn a_thread_sees_its_own_stores_before_others_do() {
    let forwards: [fn(&Words); 2] = [
        |words| {
            set(&words.x);
            words.see(0, &words.x);
            words.see(1, &words.y);
        },
        |words| {
            set(&words.y);
            words.see(2, &words.y);
            words.see(3, &words.x);
        },
    ];
    assert!(can(&forwards, [1, 0, 1, 0]));
    assert!(!can(&forwards, [0]));
}

#[test]
fn two_readers_agree_on_the_order_of_two_writers() {
    let all: [fn(&Words); 4] = [
        |words| set(&words.x),
        |words| set(&words.y),
        |words| {
            words.see(0, &words.x);
            words.see(1, &words.y);
        },
        |words| {
            words.see(2, &words.y);
            words.see(3, &words.x);
        },
    ];
    assert!(!can(&all, [1, 0, 1, 0]));
    assert!(can(&all, [1, 1, 1, 0]));
}

/// A fence on all threads does not happen at one moment: a thread's store after its own part of the fence may be
/// invisible to others at the end of the fence.
#[test]
fn each_passes_the_fence_at_a_moment_of_its_own() {
    let all: [fn(&Words); 3] = [
        |words| {
            set(&words.x);
            words.see(0, &words.y);
        },
        // It stores before the fence begins, and that is seen after the first thread's look.
        |words| {
            set(&words.y);
            words.see(1, &words.z);
        },
        |words| {
            set(&words.z);
            tso::fence_everybody();
            words.see(2, &words.x);
        },
    ];
    assert!(can(&all, [0, 0, 0]));
}

#[test]
fn who_waits_goes_on_when_the_word_has_changed_and_nobody_waits_for_ever_unseen() {
    let wait = |words: &Words| {
        while words.x.load(Ordering::Acquire) == 0 {
            yield_now();
        }
    };
    let model = Model::new(Words::default).thread("waits", wait);
    assert!(model.breaks("alone").starts_with("nobody goes on: waits"));
    let model = Model::new(Words::default).thread("waits", wait);
    model
        .thread("sets", |words| set(&words.x))
        .holds("not alone");
}

#[test]
fn who_sleeps_is_woken_or_had_seen_another_word() {
    let sleeps = |words: &Words| {
        while words.x.load(Ordering::Acquire) == 0 {
            tso::sleep_on([(&words.x, 0), (&words.y, 0)].into_iter());
        }
    };
    let wakes = |wake: fn(&Words)| {
        let model = Model::new(Words::default).thread("sleeps", sleeps);
        model.thread("wakes", move |words| {
            set(&words.x);
            wake(words);
        })
    };
    wakes(|words| _ = tso::wake_all(&words.x)).holds("woken by the first");
    wakes(|words| _ = tso::wake_all(&words.y)).holds("woken by the second");
    wakes(|words| _ = tso::wake_all(&words.seen[0])).breaks("woken by neither");
    wakes(|_| {}).breaks("not woken");
}

#[test]
fn a_thread_that_panics_is_wrong() {
    let model = Model::new(Words::default)
        .thread("sets", |words| set(&words.x))
        .thread("asserts", |words| {
            assert_eq!(words.x.load(Ordering::Relaxed), 0)
        });
    assert!(model.breaks("asserts").contains("left == right"));
}
