//! Named crash points: places at which a test kills the process.
//!
//! With the feature `crash-points` and `TRANSHIP_CRASH_AT=name[:nth]` in the environment, the nth time (counted from 1)
//! that `point(name)` is reached the process kills itself with SIGKILL. A test can also run code at a point (`insert`).
//! Without the feature nothing is compiled.

/// Kills the process here if the environment says so.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// Kills the process here if the environment says so, and runs the code that was inserted here.
#[cfg(feature = "crash-points")]
#[inline]
pub fn point(name: &str) {
    if let Some(plan) = armed::PLAN.as_ref() {
        plan.reached(name);
    }
    inserted::reached(name);
}

#[cfg(feature = "crash-points")]
pub use inserted::insert;

#[cfg(feature = "crash-points")]
mod inserted {
    use std::cell::RefCell;

    type Insert = (&'static str, Box<dyn FnOnce()>);

    thread_local! {
        static INSERTS: RefCell<Vec<Insert>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs `what` before the next time that this thread passes a point. It stands for an action of another thread at
    /// exactly that moment.
    pub fn insert(point: &'static str, what: impl FnOnce() + 'static) {
        INSERTS.with_borrow_mut(|all| all.push((point, Box::new(what))));
    }

    pub(super) fn reached(name: &str) {
        let found = INSERTS.try_with(|all| {
            let mut all = all.borrow_mut();
            let at = all.iter().position(|(point, _)| *point == name)?;
            Some(all.remove(at).1)
        });
        if let Ok(Some(what)) = found {
            what();
        }
    }
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) static PLAN: LazyLock<Option<Plan>> = LazyLock::new(|| {
        let spec = std::env::var("TRANSHIP_CRASH_AT").ok()?;
        Some(Plan::parse(&spec))
    });

    #[derive(Debug)]
    pub(super) struct Plan {
        pub(super) name: String,
        pub(super) nth: u64,
        hits: AtomicU64,
    }

    impl Plan {
        pub(super) fn parse(spec: &str) -> Plan {
            let (name, nth) = match spec.rsplit_once(':') {
                Some((name, nth)) => match nth.parse() {
                    Ok(nth) => (name, nth),
                    Err(_) => (spec, 1),
                },
                None => (spec, 1),
            };
            Plan {
                name: name.to_owned(),
                nth,
                hits: AtomicU64::new(0),
            }
        }

        pub(super) fn reached(&self, name: &str) {
            // Relaxed: only the count matters, and one thread gets each number.
            if name == self.name && self.hits.fetch_add(1, Ordering::Relaxed) + 1 == self.nth {
                crate::process::kill_self();
            }
        }
    }
}

#[cfg(all(test, feature = "crash-points"))]
mod tests {
    use super::armed::Plan;

    #[test]
    fn what_is_inserted_is_done_once_by_its_thread() {
        use std::rc::Rc;
        let done = Rc::new(std::cell::Cell::new(0));
        let count = Rc::clone(&done);
        super::insert("here", move || {
            count.set(count.get() + 1);
            super::point("here"); // may reach points itself
        });
        super::point("there");
        std::thread::spawn(|| super::point("here"))
            .join()
            .expect("no panic");
        assert_eq!(done.get(), 0);
        super::point("here");
        super::point("here");
        assert_eq!(done.get(), 1);
    }

    #[test]
    fn a_plan_is_a_name_and_a_count() {
        for (spec, name, nth) in [
            ("a", "a", 1),
            ("a:3", "a", 3),
            ("send::publish", "send::publish", 1),
            ("send::publish:2", "send::publish", 2),
        ] {
            let plan = Plan::parse(spec);
            assert_eq!((plan.name.as_str(), plan.nth), (name, nth));
        }
    }

    #[test]
    fn the_nth_hit_kills() {
        let status = crate::process::tests::status_of_child(|| {
            let plan = Plan::parse("x:3");
            plan.reached("x");
            plan.reached("y");
            plan.reached("x");
            plan.reached("x");
            0
        });
        assert_eq!(status.terminating_signal(), Some(libc::SIGKILL));
        let status = crate::process::tests::in_child(|| {
            let plan = Plan::parse("x:3");
            plan.reached("x");
            plan.reached("x");
            0
        });
        assert_eq!(status, 0);
    }
}
