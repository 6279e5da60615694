//! Buffers that change hands take no memory from the heap, and leave nothing there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tranship_bulk::{Channel, Completion, Direction, Domain, EndOptions, Event, Pool, Trust};

struct Counting;

thread_local! {
    /// By this thread; others have their own business.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn event(end: &Channel) -> Event {
    loop {
        if let Some(event) = end.poll_event().expect("event") {
            return event;
        }
    }
}

fn pair(
    manager: &tranship_core::Domain,
    address: &str,
    trust: Trust,
) -> (Domain, Channel, Domain, Channel) {
    let member = || Domain::over(manager).expect("a member");
    let (a, b) = (member(), member());
    let options = || EndOptions::new(trust).meta_bytes(40);
    let source = a.create(address, Direction::Source, options());
    let source = source.expect("create");
    let (sink, _) = b.bind(address, options()).expect("bind");
    source.turn().expect("turn");
    assert!(matches!(event(&source), Event::Bound(Ok(_))));
    assert!(matches!(event(&sink), Event::Bound(Ok(_))));
    (a, source, b, sink)
}

/// Every kind of transfer, with metadata.
fn round(pool: &Pool, source: &Channel, sink: &Channel) -> Completion {
    let meta = [7; 40];
    let buffer = pool.alloc().expect("alloc");
    let moved = source.move_(buffer, &meta).expect("move");
    let Event::Moved(buffer, got) = event(sink) else {
        panic!("not moved");
    };
    assert_eq!(got, meta);
    let _ = sink.pass(buffer, &meta).expect("pass");
    let Event::Passed(buffer, _) = event(source) else {
        panic!("not passed");
    };
    let _ = source.copy(&buffer, &meta).expect("copy");
    let Event::Copied(copy, _) = event(sink) else {
        panic!("not copied");
    };
    let _ = sink.release(copy).expect("release");
    assert!(matches!(event(source), Event::Released(..)));
    moved
}

#[test]
fn no_heap_in_steady_state() {
    let _dog = tranship_testkit::Watchdog::new();
    let manager = tranship_core::Domain::embedded().expect("a manager");
    for scheme in ["local", "shm"] {
        for trust in [Trust::Full, Trust::Producer] {
            let address = format!("{scheme}:lean-{}-{trust:?}", std::process::id());
            let (a, source, _b, sink) = pair(&manager, &address, trust);
            let pool = a.pool(4, 4096, false).expect("pool");
            let asked = source.assign(pool.info().id).expect("assign");
            while asked.result().is_none() {
                let _ = (source.turn().expect("turn"), sink.turn().expect("turn"));
            }
            assert!(matches!(event(&sink), Event::PoolAssigned(_)));
            let mut last = Completion::default();
            // Queues grow to what they need.
            for _ in 0..100 {
                last = round(&pool, &source, &sink);
            }
            let before = TAKEN.get();
            let rounds = match std::env::var("TRANSHIP_ROUNDS") {
                Ok(rounds) => rounds.parse().expect("a number"),
                Err(_) => 1000,
            };
            for _ in 0..rounds {
                last = round(&pool, &source, &sink);
            }
            let taken = TAKEN.get() - before;
            assert_eq!(taken, 0, "{scheme} {trust:?}: from the heap");
            while last.result() != Some(Ok(())) {
                assert!(!source.turn().expect("turn"));
            }
        }
    }
}
