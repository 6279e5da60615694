//! Buffers that change hands take no memory from the heap on the fast paths, `shm:` at `producer` and `full`. What comes the long way (`local:`, `half`, and
//! `none`, where it is copied) is handed up in a box: one for each buffer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tranship_core::{Body, ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender, Trust};
use tranship_testkit::Watchdog;

struct Counting;

thread_local! {
    /// Allocations of this thread; other threads' do not count here.
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

fn ends(a: &Domain, b: &Domain, address: &str, copies: &Pool) -> (Sender, Receiver) {
    let options = ChannelOptions::new().snapshots(copies.id());
    let listener = b.listen_with::<Receiver>(address, options).expect("listen");
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| a.open::<Sender>(address).expect("open"));
        let receiver = listener.accept().expect("accept");
        (sender.join().expect("no panic"), receiver)
    })
}

/// Every kind of transfer, with words; how much it takes from the heap.
fn round(pool: &Pool, to: &mut Sender, from: &mut Receiver) -> u64 {
    let mut buf = pool.alloc(4096).expect("alloc");
    buf.write(0, b"moved").expect("inside");
    let shared = pool.alloc(4096).expect("alloc").freeze();
    let before = TAKEN.get();
    to.send((buf, 1)).expect("move");
    let message = from.recv().expect("recv");
    // A copy, as those out of a pool of level `none` are, has nowhere to go back.
    let back = match message.body {
        Body::Buffer(buf) => from.send_back((buf, 2)).is_ok(),
        Body::BufferMut(buf) => from.send_back((buf, 2)).is_ok(),
        other => panic!("not moved: {other:?}"),
    };
    if back {
        drop(to.try_recv_back().expect("no lie").expect("it is back"));
    }
    to.send((shared.clone(), 3)).expect("send");
    drop((from.recv().expect("recv"), shared));
    to.send((b"a few bytes", 4)).expect("send");
    drop(from.recv().expect("recv"));
    from.send_back((b"and back", 5)).expect("room");
    drop(to.try_recv_back().expect("no lie").expect("it is there"));
    to.wait_taken(None).expect("taken");
    TAKEN.get() - before
}

#[test]
fn no_heap_in_steady_state() {
    let _dog = Watchdog::new();
    let builder = || Domain::builder().helper_thread(true);
    let a = builder().embedded().expect("embedded");
    let socket = a.socket_path().expect("socket");
    let b = builder().socket(socket).connect().expect("connect");
    for scheme in ["local", "shm"] {
        for trust in Trust::ALL {
            let there = if scheme == "local" { &a } else { &b };
            let copies = there.create_pool(PoolOptions::new(1 << 20)).expect("pool");
            let address = format!("{scheme}:lean-{trust}");
            let (mut to, mut from) = ends(&a, there, &address, &copies);
            let options = PoolOptions::new(1 << 20).keep(1 << 20).trust(trust);
            let pool = a.create_pool(options).expect("pool");
            to.assign(&pool).expect("agreed");
            // What grows to what is needed does so first.
            for _ in 0..1000 {
                round(&pool, &mut to, &mut from);
            }
            let rounds = (0..1000).map(|_| round(&pool, &mut to, &mut from));
            let mut rounds: Vec<u64> = rounds.collect();
            rounds.sort_unstable();
            let (all, middle) = (rounds.iter().sum(), rounds[rounds.len() / 2]);
            // Two buffers are received in each round; a copy that cannot be passed back is an error with words. A pool for copies that has given back what
            // it did not need for a second takes from the heap when it needs it again: in few of the rounds.
            let (taken, most) = match (scheme, trust) {
                ("shm", Trust::Producer | Trust::Full) => (all, 0),
                ("shm", Trust::None) => (middle, 3),
                _ => (all, 2000),
            };
            assert!(taken <= most, "{scheme} {trust}: {taken} allocations");
        }
    }
}
