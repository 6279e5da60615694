//! Awaiting under tokio, over real processes that come, stand still and die, with a manager that does too.

use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tranship::{Body, ChannelOptions, Domain, ErrorKind, Pool, PoolOptions, Receiver, Sender};
use tranship_testkit::{Control, Peer, Watchdog, child, start_manager};

// Opens a sender of that name, and sends as many messages as it is told each time.
child!(
    fn source(ctl: Control) {
        let (path, name): (PathBuf, String) = ctl.recv().unwrap().unwrap();
        let domain = join(&path);
        let pool = pool(&domain);
        let mut sender = domain.open::<Sender>(&name).unwrap();
        let mut next = 0u64;
        while let Some(messages) = ctl.recv::<u64>().unwrap() {
            for _ in 0..messages {
                let buf = pool.copy(&next.to_le_bytes()).unwrap();
                sender.send((buf.freeze(), next)).unwrap();
                next += 1;
            }
            ctl.send(&()).unwrap();
        }
    }
);

// Opens a receiver of that name, two lines deep, says so, and takes as many messages as it is told each time, in a task. Says their words.
child!(
    fn sink(ctl: Control) {
        let (path, name): (PathBuf, String) = ctl.recv().unwrap().unwrap();
        let domain = join(&path);
        let mut receiver = domain.open::<Receiver>(&name).unwrap();
        ctl.send(&()).unwrap();
        let runtime = runtime();
        while let Some(messages) = ctl.recv::<u64>().unwrap() {
            runtime.block_on(async {
                for _ in 0..messages {
                    ctl.send(&receiver.recv_async().await.unwrap().word)
                        .unwrap();
                }
            });
        }
    }
);

// Says that it has opened a receiver, awaits a message, and says which threads there are when nobody awaits any more.
child!(
    fn idler(ctl: Control) {
        let (path, name): (PathBuf, String) = ctl.recv().unwrap().unwrap();
        let domain = join(&path);
        let mut receiver = domain.open::<Receiver>(&name).unwrap();
        ctl.send(&()).unwrap();
        assert!(!has_thread());
        runtime().block_on(async {
            let is_there = async {
                while !has_thread() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                got = receiver.recv_async() => panic!("nothing was sent: {got:?}"),
                () = is_there => {}
            }
        });
        while has_thread() {
            std::thread::yield_now();
        }
        ctl.send(&()).unwrap();
        // It comes back.
        let got = runtime().block_on(receiver.recv_async());
        ctl.send(&got.unwrap().word).unwrap();
    }
);

fn has_thread() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names = threads.flat_map(|t| std::fs::read_to_string(t.path().join("comm")));
    names.any(|name| name.trim() == "tranship-tasks")
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

fn join(path: &Path) -> Domain {
    Domain::builder().socket(path).connect().expect("connect")
}

fn pool(domain: &Domain) -> Pool {
    domain.create_pool(PoolOptions::new(1 << 20)).expect("pool")
}

/// A manager, and this process's domain.
struct Set {
    manager: Peer,
    path: PathBuf,
    domain: Domain,
    _dir: TempDir,
}

fn set() -> Set {
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("manager.sock");
    let manager = start_manager(&path, "");
    Set {
        manager,
        domain: join(&path),
        path,
        _dir: dir,
    }
}

impl Set {
    /// A source process, and our end.
    async fn source(&self, name: &str) -> (Peer, Receiver) {
        let listener = self.domain.listen::<Receiver>(name).expect("listen");
        let peer = source().start().expect("a source");
        peer.send(&(&self.path, name)).expect("send");
        let accepted = listener.accept_async().await;
        (peer, accepted.expect("accept"))
    }

    /// Has a source send so many, though nobody awaits them yet: to its pool we have to agree.
    fn sends(&self, source: &Peer, messages: u64) {
        source.send(&messages).expect("send");
        while !source.control().is_ready() {
            self.domain.turn().expect("turn");
        }
        source.expect::<()>();
    }

    /// A sink process, and our end, two lines deep.
    async fn sink(&self, name: &str, launch: tranship_testkit::Launch) -> (Peer, Sender) {
        let two = ChannelOptions::new().lines(2);
        let listener = self
            .domain
            .listen_with::<Sender>(name, two)
            .expect("listen");
        let peer = launch.start().expect("a sink");
        peer.send(&(&self.path, name)).expect("send");
        let accepted = listener.accept_async().await;
        // Else it might still wait for a manager that is killed next.
        peer.expect::<()>();
        (peer, accepted.expect("accept"))
    }
}

#[test]
fn channels_and_sockets_in_one_select() {
    let _dog = Watchdog::new();
    let set = set();
    runtime().block_on(async {
        let (first, mut one) = set.source("one").await;
        let (second, mut two) = set.source("two").await;
        let (mut near, mut far) = UnixStream::pair().expect("a socket");
        for peer in [&first, &second] {
            peer.send(&100u64).expect("send");
        }
        let writing = tokio::spawn(async move {
            for _ in 0..100 {
                far.write_all(b"x").await.expect("write");
                tokio::task::yield_now().await;
            }
        });
        let (mut a, mut b, mut c) = (0, 0, 0);
        while a + b + c < 300 {
            // Two of three are dropped each time, and lose nothing.
            tokio::select! {
                got = one.recv_async() => {
                    assert_eq!(got.expect("recv").word, a);
                    a += 1;
                }
                got = two.recv_async() => {
                    assert_eq!(got.expect("recv").to_vec(), b.to_le_bytes());
                    b += 1;
                }
                got = near.read_u8(), if c < 100 => {
                    assert_eq!(got.expect("read"), b'x');
                    c += 1;
                }
            }
        }
        assert_eq!((a, b, c), (100, 100, 100));
        writing.await.expect("written");
    });
}

#[test]
fn a_send_that_takes_too_long_gives_its_buffer_back() {
    let _dog = Watchdog::new();
    let set = set();
    runtime().block_on(async {
        let (peer, mut sender) = set.sink("x", sink()).await;
        let pool = pool(&set.domain);
        let buf = |n: u64| pool.copy(&n.to_le_bytes()).expect("alloc").freeze();
        // It connects, and then waits for us to say something: it has agreed to no pool.
        let soon = Duration::from_millis(5);
        assert!(timeout(soon, sender.send_async(buf(0))).await.is_err());
        let unsent = sender.take_unsent().expect("it comes back");
        assert_eq!(unsent.to_vec(), 0u64.to_le_bytes());
        peer.send(&2u64).expect("send");
        for n in 0..2 {
            sender.send_async((buf(n), n)).await.expect("send");
            assert_eq!(peer.expect::<u64>(), n);
        }
        // Full.
        for n in 2..4 {
            sender.send_async((buf(n), n)).await.expect("room");
        }
        assert!(timeout(soon, sender.send_async((buf(4), 4))).await.is_err());
        let unsent = sender.take_unsent().expect("it comes back");
        let Body::Buffer(unsent) = unsent.body else {
            panic!("{unsent:?}")
        };
        peer.send(&3u64).expect("send");
        sender.send_async((unsent, 4)).await.expect("send");
        sender.wait_taken_async().await.expect("taken");
        for n in 2..5 {
            assert_eq!(peer.expect::<u64>(), n);
        }
    });
}

#[test]
fn memory_is_awaited_in_turn() {
    const ALL: usize = 64 << 10;
    let _dog = Watchdog::new();
    let set = set();
    let options = PoolOptions::new(ALL as u64).chunk_bytes(ALL as u64);
    let pool = set.domain.create_pool(options).expect("pool");
    let held = pool.alloc(ALL).expect("room");
    runtime().block_on(async {
        let soon = Duration::from_millis(5);
        assert!(timeout(soon, pool.alloc_async(ALL)).await.is_err());
        assert_eq!(pool.stats().waiting, 0, "who is dropped leaves the queue");
        let mut first = pool.alloc_async(ALL);
        assert!(timeout(soon, &mut first).await.is_err());
        // A thread behind it.
        let other = pool.clone();
        let second = std::thread::spawn(move || other.alloc(ALL).expect("in the end"));
        while pool.stats().waiting < 2 {
            tokio::task::yield_now().await;
        }
        drop(held);
        let got = first.await.expect("first come");
        assert!(!second.is_finished());
        drop(got);
        let mut got = second.join().expect("no panic");
        // Another process lets go of it.
        let (peer, mut sender) = set.sink("x", sink()).await;
        peer.send(&1u64).expect("send");
        got.write(0, b"all of it").expect("inside");
        let sent = sender.send_async(got.freeze());
        sent.await.expect("send");
        drop(pool.alloc_async(ALL).await.expect("in the end"));
        assert_eq!(peer.expect::<u64>(), 0);
        let error = pool.alloc_async(2 * ALL).await.expect_err("never");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(pool.stats().waiting, 0);
    });
}

#[test]
fn a_death_wakes_who_awaits() {
    let _dog = Watchdog::new();
    let mut set = set();
    runtime().block_on(async {
        // With a manager, and when it was killed before.
        let (first, mut one) = set.source("one").await;
        let (second, mut two) = set.source("two").await;
        let (third, mut three) = set.sink("three", sink()).await;
        let (fourth, mut four) = set.sink("four", sink()).await;
        for sender in [&mut three, &mut four] {
            for _ in 0..2 {
                let sent = sender.send_async(b"");
                sent.await.expect("room");
            }
        }
        for manager in [true, false] {
            let (source, receiver, sink, sender) = match manager {
                true => (&first, &mut one, &third, &mut three),
                false => (&second, &mut two, &fourth, &mut four),
            };
            set.sends(source, 3);
            for n in 0..3 {
                assert_eq!(receiver.recv_async().await.expect("recv").word, n);
            }
            let full = sender.send_async(b"");
            let dies = async {
                tokio::task::yield_now().await; // they sleep by now
                if !manager {
                    set.manager.kill();
                }
                source.kill();
                sink.kill();
            };
            let (got, sent, ()) = tokio::join!(receiver.recv_async(), full, dies);
            assert_eq!(got.expect_err("dead").kind(), ErrorKind::PeerDied);
            assert_eq!(sent.expect_err("dead").kind(), ErrorKind::PeerGone);
        }
    });
    set.manager = start_manager(&set.path, "");
}

/// Operations that need the manager wait for the next one; all others go on.
#[test]
fn tasks_live_through_a_restart_of_the_manager() {
    let dog = Watchdog::new();
    let mut set = set();
    let runtime = runtime();
    runtime.block_on(async {
        let (first, mut one) = set.source("one").await;
        set.sends(&first, 1);
        let (second, mut two) = set.sink("two", sink()).await;
        // Memory that is there, of a pool that nobody has agreed to.
        let pool = pool(&set.domain);
        let buf = pool.copy(b"after all").expect("alloc").freeze();
        let listener = set.domain.listen::<Receiver>("new").expect("listen");
        set.manager.kill();
        // Nobody awaited anything of these channels before: there is nothing yet to ring by.
        dog.step("without a manager");
        first.send(&10u64).expect("send");
        for n in 0..11 {
            assert_eq!(one.recv_async().await.expect("recv").word, n);
        }
        second.send(&4u64).expect("send");
        for n in 0..3 {
            let sent = two.send_async((b"", n));
            sent.await.expect("send");
        }
        dog.step("with the next");
        let newcomer = source().start().expect("a source");
        let waits = async {
            // To a new pool the receiver has to agree, by the manager.
            two.send_async((buf, 3)).await.expect("send");
            listener.accept_async().await.expect("accept")
        };
        let comes_back = async {
            tokio::task::yield_now().await;
            let manager = start_manager(&set.path, "");
            newcomer.send(&(&set.path, "new")).expect("send");
            newcomer.send(&2u64).expect("send");
            manager
        };
        let (mut new, manager) = tokio::join!(waits, comes_back);
        for n in 0..2 {
            assert_eq!(new.recv_async().await.expect("recv").word, n);
        }
        for n in 0..4 {
            assert_eq!(second.expect::<u64>(), n);
        }
        set.manager = manager;
        drop((first, second, newcomer));
    });
}

#[test]
fn the_thread_that_wakes_ends_when_nobody_awaits() {
    let _dog = Watchdog::new();
    let set = set();
    runtime().block_on(async {
        let (peer, mut sender) = set.sink("x", idler()).await;
        peer.expect::<()>();
        sender.send((b"", 7)).expect("send");
        assert_eq!(peer.expect::<u64>(), 7);
    });
}

/// `tokio::spawn` wants futures that may change their thread.
#[test]
fn futures_may_be_spawned() {
    let _dog = Watchdog::new();
    let set = set();
    runtime().block_on(async {
        let (peer, mut receiver) = set.source("x").await;
        let task = tokio::spawn(async move { receiver.recv_async().await.map(|got| got.word) });
        peer.send(&1u64).expect("send");
        assert_eq!(task.await.expect("joined").expect("recv"), 0);
    });
}
