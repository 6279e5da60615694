//! After fork() a child gets clear errors from everything that it inherited, nothing faults, nothing of the parent's is
//! touched, and it can join by itself.

use crate::kit::*;
use std::path::Path;
use std::time::Duration;
use tranship_core::{
    Aggregate, Body, ChannelOptions, Domain, ErrorKind, Listener, PollItem, Pool, PoolOptions,
    Receiver, Sender, poll,
};
use tranship_testkit::{Control, Exit, child};

/// Everything that a parent may have when it forks.
struct Inherited {
    a: Domain,
    b: Domain,
    pool: Pool,
    sender: Sender,
    receiver: Receiver,
    listener: Listener<Sender>,
    own: tranship_core::BufferMut,
    frozen: tranship_core::Buffer,
    received: tranship_core::Buffer,
    aggregate: Aggregate,
    moved: Option<tranship_core::Buffer>,
}

fn inherited() -> Inherited {
    let (a, b) = domains();
    let pool = pool(&a, 8);
    let (mut sender, mut receiver) = link(&a, &b, "x");
    receiver.arm().expect("pollable");
    receiver.disarm();
    let listener = a.listen::<Sender>("child").expect("listen");
    sender.send(filled(&pool, 1000, 1)).expect("send");
    let received = buf(block_on(receiver.recv_async()).expect("recv"));
    sender.send(pool.alloc(30).expect("alloc")).expect("move");
    let moved = receiver.recv().expect("recv").into_buffer();
    let aggregate = pieces([filled(&pool, 10, 2)]);
    sender.send(aggregate.clone()).expect("send");
    sender.send(filled(&pool, 100, 3)).expect("send");
    let own = pool.alloc(50).expect("alloc");
    let frozen = filled(&pool, 20, 4);
    Inherited {
        a,
        b,
        pool,
        sender,
        receiver,
        listener,
        own,
        frozen,
        received,
        aggregate,
        moved,
    }
}

macro_rules! forked {
    ($what:expr) => {
        match $what {
            Ok(_) => panic!("{} worked", stringify!($what)),
            Err(error) => assert_eq!(
                error.kind(),
                ErrorKind::Forked,
                "{}: {error}",
                stringify!($what)
            ),
        }
    };
    (send $what:expr) => {
        match $what {
            Ok(_) => panic!("{} worked", stringify!($what)),
            Err(error) => {
                assert_eq!(
                    error.error.kind(),
                    ErrorKind::Forked,
                    "{}: {error}",
                    stringify!($what)
                )
            }
        }
    };
}

/// In the child.
fn everything_is_refused(mut i: Inherited) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    assert!(!maps.contains("memfd:"), "inherited:\n{maps}");
    let soon = Duration::from_millis(1);

    forked!(i.a.turn());
    forked!(i.a.admin().stat());
    forked!(i.a.create_pool(PoolOptions::new(1 << 20)));
    forked!(i.a.listen::<Receiver>("y"));
    forked!(i.b.open::<Sender>("child"));
    forked!(i.b.open_with::<Receiver>("child", ChannelOptions::new().timeout(soon)));
    forked!(i.listener.accept());
    forked!(i.listener.accept_timeout(soon));
    forked!(block_on(i.listener.accept_async()));
    let _ = (
        i.a.id(),
        i.a.socket_path(),
        i.a.admin().is_managed(),
        format!("{:?}", i.a),
    );

    forked!(i.pool.alloc(10));
    forked!(i.pool.try_alloc(10));
    forked!(i.pool.alloc_timeout(10, soon));
    forked!(i.pool.copy(b"x"));
    forked!(i.pool.allow_forward(i.b.id()));
    let _ = (i.pool.id(), i.pool.max_bytes(), i.pool.stats());
    drop(i.pool.clone());

    forked!(send i.sender.send(i.frozen.clone()));
    forked!(send i.sender.send_many([i.frozen.clone()]));
    forked!(send i.sender.send(b"x"));
    forked!(send i.sender.send(i.aggregate.clone()));
    forked!(i.sender.assign(&i.pool));
    forked!(send block_on(i.sender.send_async(i.frozen.clone())));
    forked!(send block_on(i.sender.send_async(b"x")));
    forked!(block_on(i.sender.assign_async(&i.pool)));
    forked!(block_on(i.sender.wait_taken_async()));
    assert!(i.sender.take_unsent().is_none());
    assert!(i.sender.status().peer_gone);
    let _ = i.sender.status();
    assert!(!matches!(i.sender.try_recv_back(), Ok(Some(_))));

    forked!(i.receiver.recv());
    forked!(block_on(i.receiver.recv_async()));
    forked!(poll(&mut [PollItem::receiver(&mut i.receiver)], None));
    forked!(poll(&mut [PollItem::domain(&i.a)], Some(soon)));
    forked!(i.receiver.try_recv());
    forked!(i.receiver.recv_timeout(soon));
    forked!(i.receiver.arm());
    forked!(send i.receiver.send_back(b"x"));
    forked!(send i.receiver.send_back(i.moved.take().expect("one was moved")));
    i.receiver.disarm();
    let _ = (i.receiver.is_ready(),);

    let _ = (i.own.len(), i.own.id(), i.frozen.id(), i.received.id());
    let _ = format!(
        "{:?} {:?} {:?} {:?}",
        i.own, i.frozen, i.received, i.aggregate
    );
    let part = i.received.clone().slice(1..10);
    assert_eq!(part.len(), 9);
    let _ = format!(
        "{:?} {:?} {:?} {:?}",
        i.pool, i.sender, i.receiver, i.listener
    );

    let Inherited {
        a,
        b,
        pool,
        sender,
        receiver,
        listener,
        own,
        frozen,
        received,
        aggregate,
        moved,
    } = i;
    drop(own.freeze());
    drop((part, frozen, received, aggregate, moved));
    drop((sender, receiver, listener));
    drop((pool, a, b));
}

/// In the child, afterwards.
fn a_domain_of_its_own_works(path: &Path) {
    let own = Domain::builder().name("child").socket(path);
    let own = own
        .helper_thread(true)
        .connect()
        .expect("a domain of its own");
    let mut receiver = own.open::<Receiver>("child").expect("open");
    let pool = pool(&own, 2);
    for i in 0..100 {
        let got = receiver.recv().expect("recv");
        assert_eq!(got.to_vec(), [i; 5000]);
        let copy = writable(buf(got), &pool);
        assert_eq!(*copy, [i; 5000]);
    }
    drop(receiver);
    drop(own.admin().stat().expect("stat"));
}

child!(
    fn forks(ctl: Control) {
        let mut i = inherited();
        let path = i.a.socket_path().expect("socket");
        // SAFETY: the child's other threads are gone; glibc keeps malloc usable, and the child ends by _exit.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            // SAFETY: a limit for the child, which no watchdog sees.
            unsafe { libc::alarm(100) };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                everything_is_refused(i);
                a_domain_of_its_own_works(&path);
            }));
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        // The child's link, or its end.
        let accepted = loop {
            if let Ok(sender) = i.listener.accept_timeout(Duration::from_millis(50)) {
                break Some(sender);
            }
            // SAFETY: our child; no status is asked for, and it is left to be reaped below.
            let ended = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
                libc::waitid(libc::P_PID, pid.cast_unsigned(), &raw mut info, flags);
                info.si_pid() == pid
            };
            if ended {
                break None;
            }
        };
        if let Some(mut sender) = accepted {
            for n in 0..100 {
                if sender.send(filled(&i.pool, 5000, n)).is_err() {
                    break;
                }
            }
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        // What the child dropped was not ours.
        assert_eq!(i.received.to_vec(), [1; 1000]);
        assert_eq!(i.frozen.to_vec(), [4; 20]);
        let got = i.receiver.recv().expect("recv");
        assert!(matches!(&got.body, Body::Aggregate(all) if all.to_vec() == [2; 10]));
        assert_eq!(i.receiver.recv().expect("recv").to_vec(), [3; 100]);
        let moved = i.moved.take().expect("one was moved");
        i.receiver.send_back(moved).expect("it is ours");
        let passed = i.sender.try_recv_back().expect("no lie");
        assert_eq!(passed.expect("it is back").len(), 30);
        i.own.fill(9);
        i.sender.send(i.own.freeze()).expect("send");
        assert_eq!(i.receiver.recv().expect("recv").to_vec(), [9; 50]);
        drop((i.frozen, i.received, i.aggregate, got));
        until(|| i.pool.try_alloc(8 * CHUNK).is_ok());
        ctl.send(&status).expect("test");
    }
);

#[test]
fn a_forked_child_is_refused_everything_and_joins_by_itself() {
    let _dog = dog();
    let peer = forks().start().expect("start");
    assert_eq!(peer.expect::<i32>(), 0, "the forked child's status");
    assert_eq!(peer.wait(), Exit::Code(0));
}
