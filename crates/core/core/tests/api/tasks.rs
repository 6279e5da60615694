//! Awaiting channels and listeners, without any runtime. With one: the tests of the crate `tranship`; over processes that die: those of
//! `testkit`.

use crate::kit::*;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;
use tranship_core::error::BadName;
use tranship_core::{
    Body, ChannelOptions, ErrorKind, Message, Outcome, Receiver, SendError, Sender, WhenFull,
};
use tranship_testkit::Random;

/// How often a task was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Looks at a future once.
fn once<F: Future + Unpin>(future: &mut F, woken: &Arc<Woken>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(woken));
    pin!(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn what_comes_is_awaited() {
    // Nobody but the tasks' own threads hears the manager.
    let (_dog, a, b) = bare_pair();
    let (sender, mut receiver) = link(&a, &b, "x");
    thread::scope(|s| {
        s.spawn(|| {
            let mut sender = sender;
            let pool = pool(&a, 4);
            for round in 0..200u64 {
                let buf = pool.copy(&round.to_le_bytes()).expect("alloc");
                block_on(sender.send_async((buf.freeze(), round))).expect("send");
                let words = round.to_le_bytes();
                let sent = sender.send_async((&words[..], round));
                block_on(sent).expect("send");
            }
            let sent = block_on(sender.send_async(&[0; 41][..]));
            assert_eq!(sent.expect_err("too long").kind(), ErrorKind::TooLarge);
            block_on(sender.wait_taken_async()).expect("taken");
            drop(sender);
        });
        for n in 0..400u64 {
            let got = block_on(receiver.recv_async()).expect("a message");
            assert_eq!(
                (got.word, &got.to_vec()[..]),
                (n / 2, &(n / 2).to_le_bytes()[..])
            );
        }
        let error = block_on(receiver.recv_async()).expect_err("the end");
        assert_eq!(error.kind(), ErrorKind::PeerGone);
    });
}

#[test]
fn a_dropped_receive_has_taken_nothing() {
    let (_dog, _a, _b, mut sender, mut receiver) = linked();
    let woken = Arc::new(Woken::default());
    for round in 0..50u64 {
        let mut waits = receiver.recv_async();
        let before = woken.get();
        assert!(once(&mut waits, &woken).is_pending());
        if round % 2 == 0 {
            sender.send((b"", round)).expect("send");
            until(|| woken.get() > before);
            drop(waits);
        } else {
            drop(waits);
            // Nor is its task kept.
            until(|| Arc::strong_count(&woken) == 1);
            sender.send((b"", round)).expect("send");
        }
        // The next receive of any kind gets the message.
        let got = match round % 4 {
            0 => receiver.try_recv().expect("open").expect("there"),
            1 => receiver.recv().expect("a message"),
            _ => block_on(receiver.recv_async()).expect("a message"),
        };
        assert_eq!(got.word, round);
    }
}

/// A waker that does something when it is put down: after the look that found nothing, before the sleep.
struct PutDown(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl PutDown {
    fn waker(then: impl FnOnce() + Send + 'static) -> Waker {
        let then: Box<dyn FnOnce() + Send> = Box::new(then);
        let data = Arc::into_raw(Arc::new(PutDown(Mutex::new(Some(then)))));
        // SAFETY: the functions keep the count of the `Arc` that the pointer is of.
        unsafe { Waker::new(data.cast(), &PutDown::TABLE) }
    }

    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            let data = data.cast::<PutDown>();
            // SAFETY: the waker that is cloned keeps it.
            unsafe { Arc::increment_strong_count(data) };
            // SAFETY: as above.
            let then = unsafe { &*data }.0.lock().expect("whole").take();
            then.into_iter().for_each(|then| then());
            RawWaker::new(data.cast(), &PutDown::TABLE)
        },
        // SAFETY: the waker's own count goes with it.
        |data| drop(unsafe { Arc::from_raw(data.cast::<PutDown>()) }),
        |_| {},
        // SAFETY: as above.
        |data| drop(unsafe { Arc::from_raw(data.cast::<PutDown>()) }),
    );
}

#[test]
fn what_comes_before_the_sleep_is_found() {
    let (_dog, a, b, mut sender, mut receiver) = linked();
    let (mut full, slow) = link_with(&a, &b, "y", ChannelOptions::new().lines(2));
    for n in 0..2 {
        full.send((b"", n)).expect("room");
    }
    // Each has slept before, so that there is nothing new but this.
    let woken = Arc::new(Woken::default());
    assert!(once(&mut receiver.recv_async(), &woken).is_pending());
    assert!(once(&mut full.send_async((b"", 2)), &woken).is_pending());
    until(|| a.turn().is_ok() && b.turn().is_ok() && Arc::strong_count(&woken) == 1);

    let waker = PutDown::waker(move || sender.send((b"", 7)).map(drop).expect("send"));
    let mut waits = receiver.recv_async();
    let got = pin!(&mut waits).poll(&mut Context::from_waker(&waker));
    assert!(matches!(got, Poll::Ready(Ok(message)) if message.word == 7));
    // It stays open.
    let slow = Arc::new(Mutex::new(slow));
    let theirs = Arc::clone(&slow);
    let waker = PutDown::waker(move || drop(theirs.lock().expect("whole").recv().expect("recv")));
    let mut waits = full.send_async((b"", 2));
    let sent = pin!(&mut waits).poll(&mut Context::from_waker(&waker));
    assert!(matches!(sent, Poll::Ready(Ok(_))));
    drop(waits);
    // Two are on their way.
    let theirs = Arc::clone(&slow);
    let waker = PutDown::waker(move || {
        let mut slow = theirs.lock().expect("whole");
        (0..2).for_each(|_| drop(slow.recv().expect("recv")));
    });
    let taken = pin!(full.wait_taken_async()).poll(&mut Context::from_waker(&waker));
    assert!(matches!(taken, Poll::Ready(Ok(()))));
}

/// Until a message's future has seen that its link is full.
fn waits_for_room(waits: &mut (impl Future + Unpin), woken: &Arc<Woken>) {
    assert!(once(waits, woken).is_pending());
}

#[test]
fn a_dropped_send_leaves_its_message_with_the_sender() {
    let (_dog, a, b) = pair();
    let (mut sender, mut receiver) = link_with(&a, &b, "x", ChannelOptions::new().lines(2));
    let pool = pool(&a, 4);
    sender.assign(&pool).expect("assigned");
    let woken = Arc::new(Woken::default());
    assert!(sender.take_unsent().is_none());
    for byte in 0..2 {
        block_on(sender.send_async(filled(&pool, 100, byte))).expect("room");
    }
    // A buffer, with its word.
    let mut waits = sender.send_async((filled(&pool, 100, 2), 77));
    waits_for_room(&mut waits, &woken);
    drop(waits);
    let unsent = sender.take_unsent().expect("it comes back");
    assert_eq!((unsent.word, unsent.to_vec()), (77, vec![2; 100]));
    assert!(sender.take_unsent().is_none());
    // One that moves, and an aggregate.
    let mut own = pool.alloc(100).expect("alloc");
    own.fill(3);
    let mut waits = sender.send_async(own);
    waits_for_room(&mut waits, &woken);
    drop(waits);
    let unsent = sender.take_unsent().expect("it comes back");
    assert_eq!(unsent.into_buffer_mut().expect("ours")[..], [3; 100]);
    let pieces = pieces([filled(&pool, 10, 4)]);
    let mut waits = sender.send_async(pieces);
    waits_for_room(&mut waits, &woken);
    drop(waits);
    let unsent = sender.take_unsent().expect("it comes back");
    assert!(matches!(&unsent.body, Body::Aggregate(all) if all.to_vec() == [4; 10]));
    // The next send drops what nobody took.
    let mut waits = sender.send_async((b"x", 5));
    waits_for_room(&mut waits, &woken);
    drop(waits);
    let mut waits = sender.send_async(filled(&pool, 100, 6));
    let before = woken.get();
    waits_for_room(&mut waits, &woken);
    assert_eq!(receiver.recv().expect("recv").to_vec(), [0; 100]);
    until(|| woken.get() > before);
    assert!(matches!(once(&mut waits, &woken), Poll::Ready(Ok(_))));
    assert!(once(&mut waits, &woken).is_pending(), "once");
    drop(waits);
    assert!(sender.take_unsent().is_none());
    for byte in [1, 6] {
        assert_eq!(receiver.recv().expect("recv").to_vec(), [byte; 100]);
    }
    assert!(sender.status().dropped == 0 && receiver.try_recv().expect("open").is_none());
    // A receiver that is gone does not keep the payload either.
    drop(receiver);
    let mut own = pool.alloc(100).expect("alloc");
    own.fill(7);
    let failed = until_gone(&mut sender, own);
    assert_eq!(failed.error.kind(), ErrorKind::PeerGone);
    assert_eq!(failed.unsent[..], [7; 100]);
}

fn until_gone(
    sender: &mut Sender,
    mut own: tranship_core::BufferMut,
) -> SendError<tranship_core::BufferMut> {
    until(|| sender.status().peer_gone);
    own[0] = 7;
    block_on(sender.send_async(own)).expect_err("gone")
}

#[test]
fn an_awaited_send_drops_as_the_channel_says() {
    let (_dog, a, b) = pair();
    let two = ChannelOptions::new().lines(2).when_full(WhenFull::DropNew);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", two);
    for (word, outcome) in [
        (0, Outcome::Sent),
        (1, Outcome::Sent),
        (2, Outcome::Dropped),
    ] {
        assert_eq!(
            block_on(sender.send_async((b"", word))).expect("room"),
            outcome
        );
    }
    assert_eq!(sender.status().dropped, 1);
    assert!(sender.take_unsent().is_none());
    for word in 0..2 {
        assert_eq!(receiver.recv().expect("recv").word, word);
    }
    assert!(receiver.try_recv().expect("open").is_none());
}

#[test]
fn who_waits_for_consent_is_woken_by_it() {
    let (_dog, a, b) = bare_pair();
    let (mut sender, mut receiver) = link_with(&a, &b, "x", ChannelOptions::new());
    let (first, second) = (pool(&a, 1), pool(&a, 1));
    let woken = Arc::new(Woken::default());
    let mut waits = sender.send_async(filled(&first, 10, 1));
    assert!(once(&mut waits, &woken).is_pending(), "nobody has agreed");
    assert_eq!(
        block_on(receiver_agrees(&mut receiver, &mut waits)).to_vec(),
        [1; 10]
    );
    drop(waits);
    // The same beforehand.
    thread::scope(|s| {
        s.spawn(|| block_on(sender.assign_async(&second)).expect("assigned"));
        let woken = Arc::new(Woken::default());
        let mut waits = receiver.recv_async();
        assert!(once(&mut waits, &woken).is_pending());
        // Its thread alone takes the offer.
    });
    sender.try_send(filled(&second, 10, 2)).expect("agreed");
    assert_eq!(
        block_on(receiver.recv_async()).expect("recv").to_vec(),
        [2; 10]
    );
}

/// Both at once, by hand.
async fn receiver_agrees(
    receiver: &mut Receiver,
    sending: &mut (impl Future<Output = Result<Outcome, SendError<tranship_core::Buffer>>> + Unpin),
) -> Message {
    let mut receiving = receiver.recv_async();
    let mut sent = false;
    std::future::poll_fn(move |context| {
        if !sent && let Poll::Ready(done) = pin!(&mut *sending).poll(context) {
            done.expect("sent");
            sent = true;
        }
        pin!(&mut receiving)
            .poll(context)
            .map(|got| got.expect("recv"))
    })
    .await
}

/// A future that is dropped after the manager was asked leaves the connection to the next one.
#[test]
fn connections_are_awaited_and_none_is_lost() {
    let (_dog, a, b) = pair();
    let sources = a.listen::<Sender>("sources").expect("listen");
    let sinks = a.listen::<Receiver>("sinks").expect("listen");
    thread::scope(|s| {
        let opened = s.spawn(|| {
            let open = |n: u64| {
                let mut sender = b.open::<Sender>("sinks").expect("open");
                sender.send((b"", n)).expect("send");
                (sender, b.open::<Receiver>("sources").expect("open"))
            };
            (0..20).map(open).collect::<Vec<_>>()
        });
        let mut ends = Vec::new();
        let woken = Arc::new(Woken::default());
        for n in 0..20 {
            // Given up again and again at whatever it has come to.
            let mut receiver = loop {
                let mut waits = sinks.accept_async();
                if let Poll::Ready(receiver) = once(&mut waits, &woken) {
                    break receiver.expect("accept");
                }
            };
            assert_eq!(block_on(receiver.recv_async()).expect("recv").word, n);
            ends.push((receiver, block_on(sources.accept_async()).expect("accept")));
        }
        let opened = opened.join().expect("opener");
        for ((_, sender), (_, mut receiver)) in ends.iter_mut().zip(opened) {
            sender.send((b"", 1)).expect("send");
            assert_eq!(block_on(receiver.recv_async()).expect("recv").word, 1);
        }
    });
    // Nobody is there; then the listener of what is half made goes.
    let woken = Arc::new(Woken::default());
    assert!(once(&mut sinks.accept_async(), &woken).is_pending());
    thread::scope(|s| {
        let opening = s.spawn(|| b.open::<Sender>("sinks").map(|s| s.status().peer_gone));
        until(|| {
            let mut waits = sinks.accept_async();
            drop(once(&mut waits, &woken));
            opening.is_finished()
        });
        drop(sinks);
        let _ = opening.join().expect("opener");
    });
}

/// One thread waits for many names, in any order of listening. A name whose future was dropped gets no connection.
#[test]
fn openings_are_awaited() {
    const NAMES: usize = 8;
    let (_dog, a, b) = pair();
    let woken = Arc::new(Woken::default());
    let mut waits: Vec<_> = (0..NAMES)
        .map(|n| b.open_async::<Sender>(&format!("name-{n}"), ChannelOptions::new()))
        .collect();
    for wait in &mut waits {
        assert!(once(wait, &woken).is_pending());
    }
    for (n, wait) in waits.into_iter().enumerate().rev() {
        let sinks = a.listen::<Receiver>(&format!("name-{n}")).expect("listen");
        let mut receiver = thread::scope(|s| {
            let accepts = s.spawn(|| sinks.accept().expect("accept"));
            let mut sender = block_on(wait).expect("open");
            sender.send((b"", n as u64)).expect("send");
            accepts.join().expect("no panic")
        });
        assert_eq!(receiver.recv().expect("recv").word, n as u64);
    }
    // Given up: before anybody listens, and when somebody has been told of it.
    for listens_first in [false, true] {
        let name = format!("given-up-{listens_first}");
        let listen = || a.listen::<Sender>(&name).expect("listen");
        let mut sources = listens_first.then(listen);
        let mut wait = b.open_async::<Receiver>(&name, ChannelOptions::new());
        assert!(once(&mut wait, &woken).is_pending());
        drop(wait);
        b.admin().stat().expect("the manager has heard it");
        let sources = sources.get_or_insert_with(listen);
        let error = sources.accept_timeout(Duration::ZERO);
        assert_eq!(error.expect_err("nobody").kind(), ErrorKind::TimedOut);
        let again = b.open_async::<Receiver>(&name, ChannelOptions::new());
        let sender = thread::scope(|s| {
            let accepts = s.spawn(|| sources.accept().expect("accept"));
            drop(block_on(again).expect("open"));
            accepts.join().expect("no panic")
        });
        drop(sender);
    }
    let brief = ChannelOptions::new().timeout(Duration::from_millis(1));
    let error = block_on(b.open_async::<Sender>("nobody", brief.clone())).expect_err("nobody");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("nobody"), "{error}");
    let error = block_on(b.open_async::<Sender>("", brief)).expect_err("no name");
    assert!(error.find::<BadName>().is_some(), "{error}");
}

#[test]
fn a_send_has_its_forms() {
    let (_dog, a, b) = pair();
    let two = ChannelOptions::new().lines(2).when_full(WhenFull::DropNew);
    let (mut sender, mut receiver) = link_with(&a, &b, "x", two);
    let pool = pool(&a, 4);
    sender.assign(&pool).expect("assigned");
    for byte in 0..2 {
        sender.try_send(filled(&pool, 10, byte)).expect("room");
    }
    let soon = std::time::Duration::from_millis(5);
    let failed = sender.try_send(filled(&pool, 10, 2)).expect_err("full");
    assert_eq!(failed.kind(), ErrorKind::Full);
    let failed = sender.send_timeout(failed.unsent, soon).expect_err("full");
    assert_eq!(failed.kind(), ErrorKind::Full);
    let now = sender.try_send(b"").expect_err("full");
    assert_eq!(now.kind(), ErrorKind::Full);
    assert_eq!(sender.status().dropped, 0);
    sender
        .send(failed.unsent)
        .expect("dropped, as the link was made");
    assert_eq!(sender.status().dropped, 1);
    thread::scope(|s| {
        s.spawn(|| receiver.recv().expect("recv"));
        let long = std::time::Duration::from_secs(600);
        sender
            .send_timeout(filled(&pool, 10, 3), long)
            .expect("room");
    });
}

/// Many tasks, in all forms, on few lines: a wake-up that is lost leaves somebody asleep, under the watchdog.
#[test]
fn no_wake_up_is_lost() {
    let mut random = Random::printed("no_wake_up_is_lost");
    let (_dog, a, b) = pair();
    let pool = pool(&a, 4);
    let links: Vec<_> = (0..4)
        .map(|n| link_with(&a, &b, &format!("l{n}"), ChannelOptions::new().lines(2)))
        .collect();
    const ROUNDS: u64 = 400;
    thread::scope(|s| {
        for (mut sender, mut receiver) in links {
            let (mut mine, mut yours) =
                (Random::seeded(random.next()), Random::seeded(random.next()));
            let pool = &pool;
            s.spawn(move || {
                for n in 0..ROUNDS {
                    // Given up now and then, and sent anew.
                    let mut message = None;
                    let outcome = loop {
                        let buf = message.take().and_then(Message::into_buffer);
                        let buf = buf.unwrap_or_else(|| filled(pool, 64, 1));
                        let mut waits = sender.send_async((buf, n));
                        if mine.below(4) == 0 {
                            let woken = Arc::new(Woken::default());
                            let done = once(&mut waits, &woken);
                            if let Poll::Ready(sent) = done {
                                break sent.expect("send");
                            }
                            drop(waits);
                            message = Some(sender.take_unsent().expect("unsent"));
                            continue;
                        }
                        break block_on(waits).expect("send");
                    };
                    assert_eq!(outcome, Outcome::Sent);
                }
                block_on(sender.wait_taken_async()).expect("taken");
            });
            s.spawn(move || {
                for n in 0..ROUNDS {
                    let got = loop {
                        let woken = Arc::new(Woken::default());
                        break match yours.below(5) {
                            0 => receiver.recv().expect("recv"),
                            1 => match once(&mut receiver.recv_async(), &woken) {
                                Poll::Ready(got) => got.expect("recv"),
                                Poll::Pending => continue,
                            },
                            _ => block_on(receiver.recv_async()).expect("recv"),
                        };
                    };
                    assert_eq!(got.word, n);
                }
            });
        }
    });
}
