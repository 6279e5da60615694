//! One process, two domains, an embedded manager: the whole path of a buffer.

use std::collections::HashSet;
use std::thread;
use tranship_core::{Domain, PoolOptions, Receiver, Sender};

/// Whatever order they are in at first, and whatever else was sent before: counters of slots that follow each other lie side by side. Here, as only a few
/// zones of a process have caches that are found without a search.
#[test]
fn what_is_sent_comes_again_in_the_order_of_its_slots() {
    let _dog = tranship_testkit::Watchdog::new();
    let mut began_otherwise = 0;
    for others in 0..9 {
        let (a, mut sender, mut receiver, _b) = linked();
        let options = PoolOptions::new(1 << 20).chunk_bytes(1 << 16);
        let pool = a.create_pool(options.preallocate(1 << 20)).expect("pool");
        for _ in 0..others {
            sender.send(b"another").expect("send");
            drop(receiver.recv().expect("recv"));
        }
        let mut send = |times: usize| {
            let mut slots = Vec::new();
            for _ in 0..times {
                let buf = pool.alloc(4096).expect("alloc").freeze();
                slots.push(buf.id().slot());
                sender.send(buf).expect("send");
                drop(receiver.recv().expect("recv"));
            }
            let follows = |two: &&[u32]| two[1] == two[0] + 1;
            slots.windows(2).filter(follows).count()
        };
        // The last that was freed is handed out first: so it begins with the opposite order. Where this thread had to wait for a second
        // meanwhile, its buffers were taken out of its cache, and begin as they lie.
        let bufs: Vec<_> = (0..128).map(|_| pool.alloc(4096).expect("alloc")).collect();
        bufs.into_iter().for_each(drop);
        began_otherwise += usize::from(send(16) < 8);
        send(500);
        let in_order = send(512);
        assert!(
            in_order >= 440,
            "{in_order} of 511 follow the one before, {others} others"
        );
    }
    assert!(began_otherwise > 0, "the order to begin with");
}

/// Buffers that begin in no order at all are sent in runs of eight in the end: what comes back otherwise is put in order with others. By one thread, as above.
#[test]
fn buffers_that_are_in_no_order_are_put_in_order() {
    let _dog = tranship_testkit::Watchdog::new();
    let (a, mut sender, mut receiver, _b) = linked();
    let options = PoolOptions::new(1 << 20).chunk_bytes(1 << 16);
    let pool = a.create_pool(options.preallocate(1 << 20)).expect("pool");
    let mut send = |times: usize| {
        let mut slots = Vec::new();
        for _ in 0..times {
            let buf = pool.alloc(4096).expect("alloc").freeze();
            slots.push(buf.id().slot());
            sender.send(buf).expect("send");
            drop(receiver.recv().expect("recv"));
        }
        let follows = |two: &&[u32]| two[1] == two[0] + 1;
        slots.windows(2).filter(follows).count()
    };
    let mut bufs: Vec<_> = (0..256)
        .map(|_| Some(pool.alloc(4096).expect("alloc")))
        .collect();
    for n in 0..256 {
        drop(bufs[n * 37 % 256].take());
    }
    send(4000);
    let in_order = send(512);
    assert!(in_order >= 440, "{in_order} of 511 follow the one before");
}

/// Two domains with a channel. One thread plays both, so the other one's answers come from a thread of its own.
fn linked() -> (Domain, Sender, Receiver, Domain) {
    let a = Domain::builder().name("a").embedded().expect("embedded");
    let path = a.socket_path().expect("socket");
    let b = Domain::builder().name("b").socket(path).helper_thread(true);
    let b = b.connect().expect("connect");
    let listener = a.listen::<Sender>("a to b").expect("listen");
    let receiver = thread::spawn(move || (b.open::<Receiver>("a to b").expect("open"), b));
    let sender = listener.accept().expect("accept");
    let (receiver, b) = receiver.join().expect("receiver");
    (a, sender, receiver, b)
}

/// Buffers that a receiver lets go of at once are used again at once, where their bytes fill the processor's caches. Filling one takes longer than
/// the pace from which on that is so, on any machine. Here for the same reason as the test above.
#[test]
fn large_buffers_are_used_again_while_they_are_warm() {
    const LARGE: usize = 1 << 20;
    let _dog = tranship_testkit::Watchdog::new();
    let (a, mut sender, mut receiver, _b) = linked();
    let all = 16 * LARGE as u64;
    let options = PoolOptions::new(all).chunk_bytes(LARGE as u64);
    let pool = a.create_pool(options.preallocate(all)).expect("pool");
    let mut send = || {
        let mut buf = pool.alloc(LARGE).expect("alloc");
        buf.fill(1);
        let buf = buf.freeze();
        let slot = buf.id().slot();
        sender.send(buf).expect("send");
        (slot, receiver.recv().expect("recv"))
    };
    // The first of them show how fast they are sent.
    for _ in 0..64 {
        send();
    }
    let used: HashSet<_> = (0..64).map(|_| send().0).collect();
    assert!(used.len() <= 4, "{} of 16 buffers", used.len());
    // One that is kept is in the way of those sent after it, until it is set aside.
    let (_, kept) = send();
    for _ in 0..64 {
        send();
    }
    let used: HashSet<_> = (0..64).map(|_| send().0).collect();
    assert!(used.len() <= 4, "{} of 16, beside the kept", used.len());
    let kept = kept.into_buffer().expect("a buffer");
    assert_eq!(kept.to_vec(), vec![1; LARGE]);
}
