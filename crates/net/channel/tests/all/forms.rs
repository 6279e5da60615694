//! Waiting has four forms at every address: not at all, for a time, for ever, and by tasks.

use crate::kit::*;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tranship_core::error::RingFull;
use tranship_core::{
    Body, Buffer, BufferMut, ChannelEnd, ChannelOptions, Error, ErrorKind, Message, Opening,
    PayloadBack, Receiver, Released, Sender,
};

const SOON: Duration = Duration::from_millis(1);
/// Time after which everything is at rest.
const A_WHILE: Duration = Duration::from_millis(200);

/// Looks now and then until it is open.
fn look<T>(mut opening: Opening<T>) -> T {
    loop {
        if let Some(end) = opening.try_open().expect("nothing fails") {
            assert!(opening.try_open().expect("it is over").is_none());
            return end;
        }
        thread::yield_now();
    }
}

/// Returns both ends, of which the one that opens looks now and then.
fn looked_for<T: ChannelEnd + Send, U: ChannelEnd>(
    world: &World,
    address: &str,
    mut opening: Opening<T>,
) -> (T, U) {
    assert!(opening.try_open().expect("no error").is_none(), "{address}");
    let listener = listen_again::<U>(&world.b, address);
    thread::scope(|scope| {
        let opened = scope.spawn(|| look(opening));
        let accepted = listener.accept().expect("accept");
        (opened.join().expect("no panic"), accepted)
    })
}

#[test]
fn who_opens_may_look_now_and_then() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("looked") {
        for sends in [true, false] {
            let soon = || ChannelOptions::new().timeout(SOON);
            let failed = match sends {
                true => world.a.open_with::<Sender>(&address, soon()).map(drop),
                false => world.a.open_with::<Receiver>(&address, soon()).map(drop),
            };
            let failed = failed.expect_err("nobody listens there");
            assert_eq!(failed.kind(), ErrorKind::TimedOut, "{address}: {failed}");

            let options = ChannelOptions::new();
            let (mut to, mut from) = match sends {
                true => looked_for(
                    &world,
                    &address,
                    world.a.open_async::<Sender>(&address, options),
                ),
                false => {
                    let opening = world.a.open_async::<Receiver>(&address, options);
                    let (from, to) = looked_for(&world, &address, opening);
                    (to, from)
                }
            };
            to.send((b"open", 7)).expect("send");
            assert_eq!(from.recv().expect("recv").word, 7, "{address}");
        }
    }
}

/// Options also hold for a caller that only looks; a caller that gives up is not waited for.
#[test]
fn looking_ends() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("ends") {
        let options = ChannelOptions::new().timeout(A_WHILE);
        let mut opening = world.a.open_async::<Sender>(&address, options);
        let failed = loop {
            match opening.try_open() {
                Ok(None) => thread::yield_now(),
                Ok(Some(_)) => panic!("{address}: nobody listens there"),
                Err(error) => break error,
            }
        };
        assert_eq!(failed.kind(), ErrorKind::TimedOut, "{address}: {failed}");
        assert!(opening.try_open().expect("it is over").is_none());
    }
    for address in ["local:given-up", "shm:given-up"] {
        let mut opening = world.a.open_async::<Sender>(address, ChannelOptions::new());
        assert!(opening.try_open().expect("no error").is_none());
        drop(opening);
        let listener = world.b.listen::<Receiver>(address).expect("listen");
        let nobody = listener.accept_timeout(A_WHILE);
        let nobody = nobody.expect_err("it was given up");
        assert_eq!(nobody.kind(), ErrorKind::TimedOut, "{address}: {nobody}");
    }
}

/// Takes a message that comes back, by the forms of waiting.
fn heard(to: &mut Sender, form: u64) -> Result<Message, Error> {
    match form % 4 {
        0 => to.recv_back(),
        1 => to.recv_back_timeout(Duration::from_secs(1000)),
        2 => block_on(to.recv_back_async()),
        _ => loop {
            match to.try_recv_back()? {
                Some(message) => return Ok(message),
                None if to.status().peer_gone => return to.recv_back(),
                None => thread::yield_now(),
            }
        },
    }
}

#[test]
fn what_comes_back_is_waited_for() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("back") {
        let (mut to, mut from) = world.channel(&address);
        let failed = to.recv_back_timeout(SOON).expect_err("nothing is there");
        assert_eq!(failed.kind(), ErrorKind::TimedOut, "{address}: {failed}");
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..200u64 {
                    assert_eq!(from.recv().expect("asked").word, number);
                    from.send_back((&number.to_le_bytes()[..], number))
                        .expect("room");
                }
                // A message from before the end is there after it.
                from.send_back((b"last", 200)).expect("room");
            });
            for number in 0..200u64 {
                to.send((b"?", number)).expect("ask");
                let message = heard(&mut to, number).expect("an answer");
                assert_eq!(message.word, number, "{address}");
                assert_eq!(message.to_vec(), number.to_le_bytes(), "{address}");
            }
            assert_eq!(heard(&mut to, 2).expect("the last word").word, 200);
            for form in 0..4 {
                let over = heard(&mut to, form).expect_err("it is gone");
                assert_eq!(over.kind(), ErrorKind::PeerGone, "{address}: {over}");
            }
        });
    }
}

/// Says so much that the sender's end takes no more for now; how much that was.
fn fill(address: &str, from: &mut Receiver) -> u64 {
    for number in 0.. {
        match from.send_back_timeout((b"word", number), A_WHILE) {
            Ok(()) => {}
            Err(failed) => {
                let full = failed.error.find::<RingFull>().expect("it is full");
                assert!(full.waited_ms >= 200, "{address}: {full:?}");
                return number;
            }
        }
    }
    unreachable!()
}

/// Hands back by forms that wait, while the sender takes everything only once it has been waited for.
/// What was given away: over `local:` it is writable, over shared memory it is not.
enum Given {
    Mine(BufferMut),
    Shared(Buffer),
}

impl Given {
    fn next(from: &mut Receiver) -> Given {
        match from.recv().expect("recv").body {
            Body::BufferMut(buf) => Given::Mine(buf),
            Body::Buffer(buf) => Given::Shared(buf),
            other => panic!("{other:?}"),
        }
    }
}

fn hands_back<P: PayloadBack>(from: &mut Receiver, form: u64, payload: P) -> Result<(), Error> {
    let passed = match form {
        0 => from.send_back_timeout(payload, None),
        1 => from.send_back_timeout(payload, Duration::from_secs(1000)),
        _ => block_on(from.send_back_async(payload)),
    };
    passed.map_err(|failed| failed.error)
}

fn answers(address: &str, from: &mut Receiver, first: u64, inline: [Body; 2], moved: Vec<Given>) {
    let [one, other] = inline;
    from.send_back_timeout((b"word", first), None)
        .expect("room");
    block_on(from.send_back_async((b"word", first + 1))).expect("room");
    from.send_back_timeout((Released(one), first + 2), None)
        .expect("room");
    block_on(from.send_back_async((Released(other), first + 3))).expect("room");
    for (form, buf) in (0u64..).zip(moved) {
        let word = first + 4 + form;
        let passed = match buf {
            Given::Mine(buf) => hands_back(from, form, (buf, word)),
            Given::Shared(buf) => hands_back(from, form, (buf, word)),
        };
        passed.unwrap_or_else(|error| panic!("{address}: {error}"));
    }
}

/// A task that finds no room sleeps. Nobody rings for room on that way, so it is woken now and then, and finds it when
/// there is some.
#[test]
fn who_awaits_room_for_what_goes_back_is_woken() {
    /// Rounds of which the later ones wake by more than the descriptor's first bell and the first news.
    const ROUNDS: u32 = 6;
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("awaited") {
        let (mut to, mut from) = world.channel(&address);
        let said = fill(&address, &mut from);
        from.arm().expect("a descriptor");
        let (waker, woken) = counted();
        let mut context = Context::from_waker(&waker);
        let mut sent = pin!(from.send_back_async((b"last", said)));
        let first = sent.as_mut().poll(&mut context);
        assert!(first.is_pending(), "{address}: it was full for a while");
        let mut seen = 0;
        let mut again = || {
            while woken.load(Ordering::Acquire) == seen {
                thread::park();
            }
            seen = woken.load(Ordering::Acquire);
            sent.as_mut().poll(&mut context)
        };
        for _ in 0..ROUNDS {
            assert!(again().is_pending(), "{address}: nobody has taken anything");
        }
        for number in 0..said {
            let message = to.recv_back().expect("it comes");
            assert_eq!(message.word, number, "{address}");
        }
        loop {
            if let Poll::Ready(done) = again() {
                break done.expect("there is room");
            }
        }
        assert_eq!(to.recv_back().expect("the last").word, said, "{address}");
    }
}

#[test]
fn room_for_what_goes_back_is_waited_for() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("room") {
        let options = || ChannelOptions::new().lines(8);
        let (mut to, mut from) = world.channel_with(&address, options(), options());
        let pool = pool(&world.a, 4 << 20);
        let mut inline = || {
            to.send(b"").expect("send");
            from.recv().expect("recv").body
        };
        let inline = [inline(), inline()];
        // A carried buffer does not go back.
        let carried = to.status().peer_place.is_some();
        let moved = match carried {
            true => Vec::new(),
            false => (0..3u8)
                .map(|byte| {
                    let buf = pool.copy(&[byte; 5000]).expect("alloc");
                    to.send(buf).expect("move");
                    Given::next(&mut from)
                })
                .collect(),
        };
        let said = fill(&address, &mut from);
        let all = said + 4 + if carried { 0 } else { 3 };
        thread::scope(|scope| {
            scope.spawn(|| answers(&address, &mut from, said, inline, moved));
            let came = |bytes: &[u8], at: u64| {
                let byte = u8::try_from(at - 4).expect("small");
                assert!(bytes == [byte; 5000], "{address}");
            };
            for number in 0..all {
                let message = to.recv_back().expect("it comes");
                assert_eq!(message.word, number, "{address}");
                match (message.body, number.checked_sub(said)) {
                    (Body::Inline(word), None | Some(0 | 1)) => assert_eq!(&*word, b"word"),
                    (Body::Released(None), Some(2 | 3)) => {}
                    (Body::BufferMut(buf), Some(at @ 4..)) => came(&buf.to_vec(), at),
                    (Body::Buffer(buf), Some(at @ 4..)) => came(&buf.to_vec(), at),
                    (body, _) => panic!("{address}: message {number} is {body:?}"),
                }
            }
        });
        // Without a receiver to wait for it does not wait.
        drop(to);
        let gone = loop {
            match from.send_back_timeout(b"word", None) {
                Ok(()) => thread::yield_now(),
                Err(failed) => break failed,
            }
        };
        assert_eq!(gone.kind(), ErrorKind::PeerGone, "{address}: {gone}");
    }
}
