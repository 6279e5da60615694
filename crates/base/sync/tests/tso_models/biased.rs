//! An owner that leaves its fence out, and a visitor that makes it, under total store order: never are both inside.

use tranship_sync::atomic::{AtomicU32, Ordering};
use tranship_sync::{Gate, fence_after_rmw};
use tranship_tso::{self as tso, Model};

#[derive(Default)]
struct System {
    gate: Gate,
    inside: AtomicU32,
}

impl System {
    fn go_in(&self) {
        assert_eq!(self.inside.swap(1, Ordering::AcqRel), 0, "two are inside");
        fence_after_rmw();
        self.inside.store(0, Ordering::Release);
    }
}

fn visits(fences: bool) -> Model<System> {
    Model::new(System::default)
        .thread("owner", |system| {
            for _ in 0..2 {
                // Where the gate is shut the owner waits for the lock: here it does nothing.
                if system.gate.begin() {
                    system.go_in();
                    system.gate.end();
                }
            }
        })
        .thread("visitor", move |system| {
            system.gate.shut();
            if fences {
                tso::fence_everybody();
            }
            if !system.gate.is_busy() {
                system.go_in();
            }
            system.gate.open();
        })
}

#[test]
fn owner_and_visitor_exclude_each_other() {
    visits(true).holds("as built");
}

#[test]
fn without_the_fence_both_are_inside() {
    visits(false).breaks("no fence");
}
