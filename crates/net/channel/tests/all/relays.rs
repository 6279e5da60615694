//! Relays: whatever comes goes on, whatever the sink says goes back, by any pair of addresses; and nothing that a relay
//! has taken is lost when one of its ends goes.

use crate::kit::*;
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use tranship_core::{
    Aggregate, AggregateMut, Body, ChannelOptions, Domain, ErrorKind, Message, Pool, Receiver,
    Relay, RelayEnd, Released, Sender, Trust, poll,
};

/// A source, a relay, a sink, of one manager.
struct Row {
    world: World,
    sink: Domain,
}

impl Row {
    fn new() -> Row {
        let world = World::new();
        let path = world.a.socket_path().expect("socket");
        let sink = Domain::builder().name("c").helper_thread(true);
        let sink = sink.socket(path).connect().expect("connect");
        tranship_channel::add_to(&sink).expect("carriers");
        Row { world, sink }
    }

    /// Inside a process the sender's domain has to be the relay's.
    fn source(&self, address: &str) -> &Domain {
        match address.starts_with("local:") {
            true => &self.world.b,
            false => &self.world.a,
        }
    }

    fn addresses(&self, name: &str) -> [String; 4] {
        let unique = format!("{name}-{}-{:p}", std::process::id(), self);
        [
            format!("local:{name}"),
            format!("shm:{name}"),
            format!("copy:{unique}"),
            self.world.plain(name),
        ]
    }

    fn to_relay(&self, address: &str, options: ChannelOptions) -> (Sender, Receiver) {
        let ends = [self.source(address), &self.world.b];
        connect(ends, address, options.clone(), options)
    }

    /// The sink listens, or for TCP, whose ports are the relay's here, the relay does.
    fn out_of_relay(&self, address: &str, options: ChannelOptions) -> (Sender, Receiver) {
        let ends = [&self.world.b, &self.sink];
        if !address.starts_with("tcp") {
            return connect(ends, address, options.clone(), options);
        }
        connect(
            [&self.world.b, &self.world.a],
            address,
            options.clone(),
            options,
        )
    }
}

fn message(pool: &Pool, number: u64) -> Message {
    let bytes = pattern(
        number,
        8 + usize::try_from(number * 131 % 9000).expect("small"),
    );
    let buf = |bytes: &[u8]| pool.copy(bytes).expect("memory");
    let parts = || bytes.chunks(1 + bytes.len() / 3);
    let body = match number % 5 {
        0 => Body::Inline(tranship_core::Inline::new(&bytes[..8]).expect("short")),
        1 => Body::Buffer(buf(&bytes).freeze()),
        2 => Body::BufferMut(buf(&bytes)),
        3 => {
            let mut all = Aggregate::new();
            parts().for_each(|part| all.push_back(buf(part).freeze()).expect("room"));
            Body::Aggregate(all)
        }
        _ => {
            let mut all = AggregateMut::new();
            parts().for_each(|part| all.push_back(buf(part)).expect("room"));
            Body::AggregateMut(all)
        }
    };
    Message { word: number, body }
}

/// Checks that all of the pool is free; news of the manager that its writer still has to get may hold that up.
fn is_whole(pool: &Pool) {
    while pool.in_use() > 0 {
        thread::yield_now();
    }
}

/// Whether there was room.
fn send(to: &mut Sender, message: Message) -> Option<Message> {
    let Message { word, body } = message;
    let (error, body) = match body {
        Body::Inline(bytes) => match to.try_send((&bytes[..], word)) {
            Ok(_) => return None,
            Err(failed) => (failed.error, Body::Inline(bytes)),
        },
        Body::Buffer(buf) => match to.try_send((buf, word)) {
            Ok(_) => return None,
            Err(failed) => (failed.error, Body::Buffer(failed.unsent.0)),
        },
        Body::BufferMut(buf) => match to.try_send((buf, word)) {
            Ok(_) => return None,
            Err(failed) => (failed.error, Body::BufferMut(failed.unsent.0)),
        },
        Body::Aggregate(all) => match to.try_send((all, word)) {
            Ok(_) => return None,
            Err(failed) => (failed.error, Body::Aggregate(failed.unsent.0)),
        },
        Body::AggregateMut(all) => match to.try_send((all, word)) {
            Ok(_) => return None,
            Err(failed) => (failed.error, Body::AggregateMut(failed.unsent.0)),
        },
        Body::Released(_) => unreachable!("nobody sends that"),
    };
    let waits = matches!(error.kind(), ErrorKind::Full | ErrorKind::PoolPending);
    assert!(waits, "{error}");
    Some(Message { word, body })
}

fn check(message: &Message, number: u64) {
    let bytes = pattern(
        number,
        8 + usize::try_from(number * 131 % 9000).expect("small"),
    );
    let fits = match (&message.body, number % 5) {
        (Body::Inline(inline), 0) => **inline == bytes[..8],
        (Body::Buffer(_), 1) | (Body::BufferMut(_), 2) => message.to_vec() == bytes,
        (Body::Aggregate(all), 3) => all.pieces().len() == 3 && message.to_vec() == bytes,
        (Body::AggregateMut(all), 4) => all.pieces().len() == 3 && message.to_vec() == bytes,
        _ => false,
    };
    assert!(fits && message.word == number, "{number}: {message:?}");
}

/// Answers a message: a word, a release, or the buffer itself goes back. Returns the kind of the answer.
fn answer(from: &mut Receiver, message: Message) -> &'static str {
    let word = message.word;
    let mut body = message.body;
    loop {
        let failed = match body {
            Body::BufferMut(buf) => match from.send_back((buf, word)) {
                Ok(()) => return "passed",
                Err(failed) => {
                    let pending = matches!(failed.kind(), ErrorKind::Full | ErrorKind::PoolPending);
                    body = Body::BufferMut(failed.unsent.0);
                    if pending {
                        thread::yield_now();
                        continue;
                    }
                    from.send_back((Released(body), word))
                }
            },
            Body::Inline(bytes) => match from.send_back((&bytes[..], word)) {
                Ok(()) => return "said",
                Err(failed) => Err(failed.map(|(_, word)| (Body::Inline(bytes), word))),
            },
            other => from.send_back((Released(other), word)),
        };
        match failed {
            Ok(()) => return "released",
            Err(failed) => {
                let waits = matches!(failed.kind(), ErrorKind::Full | ErrorKind::PoolPending);
                assert!(waits, "{failed}");
                body = failed.unsent.0;
                thread::yield_now();
            }
        }
    }
}

#[test]
fn everything_goes_on_and_comes_back_by_any_pair_of_addresses() {
    const MESSAGES: u64 = 60;
    let _dog = dog();
    let row = Row::new();
    for (n, into) in row.addresses("in").iter().enumerate() {
        for (m, out) in row.addresses(&format!("out{n}")).iter().enumerate() {
            let into = format!("{into}{m}");
            // Few lines: each part waits for the next one now and then.
            let options = || ChannelOptions::new().lines(4);
            let (mut to, middle) = row.to_relay(&into, options());
            let (onward, mut from) = row.out_of_relay(out, options());
            let pool = pool_of(row.source(&into), 4 << 20, Trust::Half);
            pool.allow_forward(row.world.b.id()).expect("allow");
            let answers = thread::scope(|s| {
                let relay = s.spawn(|| Relay::new(middle, onward).expect("one domain").run());
                let sink = s.spawn(|| {
                    let mut answers = Vec::new();
                    for number in 0..MESSAGES {
                        let message = from.recv().expect("recv");
                        check(&message, number);
                        answers.push(answer(&mut from, message));
                    }
                    let end = from.recv().expect_err("it is closed");
                    assert_eq!(end.kind(), ErrorKind::PeerGone, "{into} {out}: {end}");
                    answers
                });
                let mut told = VecDeque::new();
                let (mut number, mut unsent) = (0, None);
                while (told.len() as u64) < MESSAGES {
                    if let Some(message) = unsent.take() {
                        unsent = send(&mut to, message);
                    } else if number < MESSAGES {
                        unsent = Some(message(&pool, number));
                        number += 1;
                    }
                    match to.try_recv_back().expect("no lie") {
                        Some(said) => told.push_back(said),
                        None => thread::yield_now(),
                    }
                }
                drop(to);
                let stop = relay.join().expect("no panic");
                assert_eq!(stop.end, RelayEnd::Source, "{stop}");
                assert_eq!(stop.error.kind(), ErrorKind::PeerGone, "{stop}");
                for (number, said) in (0..).zip(&told) {
                    assert_eq!(said.word, number, "{into} {out}: {said:?}");
                }
                let answers = sink.join().expect("no panic");
                for (answer, said) in answers.iter().zip(&told) {
                    let fits = match *answer {
                        "said" => matches!(said.body, Body::Inline(_)),
                        "released" => matches!(said.body, Body::Released(_)),
                        // If the relay has a copy there is nothing to pass on.
                        _ => matches!(said.body, Body::BufferMut(_) | Body::Released(_)),
                    };
                    assert!(fits, "{into} {out}: {answer}, {said:?}");
                }
                answers
            });
            assert!(answers.contains(&"released") && answers.contains(&"said"));
            is_whole(&pool);
        }
    }
}

/// By reference all the way: the sink tells the source the name of the source's own buffer.
#[test]
fn the_name_of_what_is_released_reaches_the_source() {
    let _dog = dog();
    let row = Row::new();
    let (mut to, middle) = row.to_relay("shm:a", ChannelOptions::new());
    let (onward, mut from) = row.out_of_relay("shm:b", ChannelOptions::new());
    let pool = pool_of(&row.world.a, 1 << 20, Trust::Producer);
    pool.allow_forward(row.world.b.id()).expect("allow");
    let mut relay = Relay::new(middle, onward).expect("one domain");
    let mut turn_until = |done: &mut dyn FnMut() -> bool| {
        while !done() {
            relay.turn().expect("no end");
            thread::yield_now();
        }
    };
    let buf = pool.copy(b"x").expect("memory").freeze();
    let id = buf.id();
    to.send((buf, 3)).expect("send");
    let mut came = None;
    turn_until(&mut || {
        came = came.take().or_else(|| from.try_recv().expect("recv"));
        came.is_some()
    });
    let body = came.take().expect("it came").body;
    assert!(matches!(&body, Body::Buffer(buf) if buf.id() == id));
    from.send_back((Released(body), 4)).expect("release");
    let mut said = None;
    turn_until(&mut || {
        said = said.take().or_else(|| to.try_recv_back().expect("no lie"));
        said.is_some()
    });
    let said = said.expect("it is told");
    assert_eq!(said.word, 4);
    assert!(
        matches!(said.body, Body::Released(Some(told)) if told == id),
        "{said:?}"
    );
    is_whole(&pool);
}

/// A sink that goes takes with it the messages in its ring. The relay gives the next sink all others, and the source
/// the messages of the first sink.
#[test]
fn another_sink_gets_what_the_first_had_not_been_sent() {
    const MESSAGES: u64 = 40;
    let _dog = dog();
    let row = Row::new();
    for out in ["local:", "shm:"] {
        let few = || ChannelOptions::new().lines(4);
        let (mut to, middle) = row.to_relay(&format!("shm:in-{out}"), ChannelOptions::new());
        let (onward, mut from) = row.out_of_relay(&format!("{out}one"), few());
        let pool = pool_of(&row.world.a, 1 << 20, Trust::Producer);
        pool.allow_forward(row.world.b.id()).expect("allow");
        to.assign(&pool).expect("agreed");
        for number in 0..MESSAGES {
            assert!(send(&mut to, message(&pool, number)).is_none(), "room");
        }
        drop(to);
        let mut relay = Relay::new(middle, onward).expect("one domain");
        let stop = thread::scope(|s| {
            let running = s.spawn(|| relay.run());
            for number in 0..10 {
                check(&from.recv().expect("recv"), number);
            }
            drop(from);
            running.join().expect("no panic")
        });
        assert_eq!(stop.end, RelayEnd::Sink, "{stop}");
        assert_eq!(stop.error.kind(), ErrorKind::PeerGone, "{stop}");
        let (onward, mut from) = row.out_of_relay(&format!("{out}two"), few());
        drop(relay.replace_sink(onward).expect("one domain"));
        let stop = thread::scope(|s| {
            let running = s.spawn(move || relay.run());
            let first = from.recv().expect("recv");
            // At most as many as fitted into the other's ring.
            assert!((10..=14).contains(&first.word), "{first:?}");
            check(&first, first.word);
            for number in first.word + 1..MESSAGES {
                check(&from.recv().expect("recv"), number);
            }
            let end = from.recv().expect_err("closed");
            assert_eq!(end.kind(), ErrorKind::PeerGone, "{end}");
            running.join().expect("no panic")
        });
        assert_eq!(stop.end, RelayEnd::Source, "{stop}");
        is_whole(&pool);
    }
}

/// Messages that the sink sent back before it went are handed back before the relay stops.
#[test]
fn what_a_sink_said_outlives_it() {
    let _dog = dog();
    let row = Row::new();
    for out in row.addresses("out") {
        let (mut to, middle) = row.to_relay(
            &format!("shm:{}", out.len()),
            ChannelOptions::new().lines(2),
        );
        let (onward, mut from) = row.out_of_relay(&out, ChannelOptions::new().lines(8));
        let mut relay = Relay::new(middle, onward).expect("one domain");
        for number in 0..6u64 {
            to.send((b"x", number)).expect("send");
            while relay.turn().expect("no end") == 0 {}
            let message = from.recv().expect("recv");
            from.send_back((Released(message.body), number))
                .expect("room");
        }
        drop(from);
        let mut told = Vec::new();
        thread::scope(|s| {
            let running = s.spawn(|| relay.run());
            while told.len() < 6 {
                match to.try_recv_back().expect("no lie") {
                    Some(said) => told.push(said.word),
                    None => thread::yield_now(),
                }
            }
            let stop = running.join().expect("no panic");
            assert_eq!(stop.end, RelayEnd::Sink, "{out}: {stop}");
        });
        assert_eq!(told, [0, 1, 2, 3, 4, 5], "{out}");
    }
}

/// A message that waits for a source that takes nothing does not hide that the sink is gone. The message goes back when
/// there is room.
#[test]
fn the_end_of_a_sink_is_told_while_the_source_takes_nothing() {
    let _dog = dog();
    let row = Row::new();
    let (mut to, middle) = row.to_relay("shm:a", ChannelOptions::new().lines(2));
    let (onward, mut from) = row.out_of_relay("shm:b", ChannelOptions::new().lines(2));
    let mut relay = Relay::new(middle, onward).expect("one domain");
    let mut said = 0;
    loop {
        match from.send_back((b"x", said)) {
            Ok(()) => said += 1,
            // No room, neither here nor at the source.
            Err(failed) => {
                assert_eq!(failed.kind(), ErrorKind::Full, "{failed}");
                if relay.turn().expect("no end") == 0 {
                    break;
                }
            }
        }
    }
    drop(from);
    let stop = loop {
        match relay.turn() {
            Ok(_) => thread::yield_now(),
            Err(stop) => break stop,
        }
    };
    assert_eq!(stop.end, RelayEnd::Sink, "{stop}");
    let (other, _from) = row.out_of_relay("shm:c", ChannelOptions::new());
    let before = relay.replace_sink(other).expect("one domain");
    let mut heard = 0;
    loop {
        match to.try_recv_back().expect("no lie") {
            Some(word) => assert_eq!(word.word, heard),
            None if relay.turn().expect("the other one is there") > 0 => continue,
            None => break,
        }
        heard += 1;
    }
    // The rest is with the end that was replaced.
    assert!(heard > 1 && heard <= said, "{heard} of {said}");
    drop(before);
}

/// The sink hears how the source ended, and that of a relay that goes too early.
#[test]
fn the_end_of_the_source_is_that_for_the_sink() {
    let _dog = dog();
    let row = Row::new();
    for (n, kind) in [
        ErrorKind::PeerGone,
        ErrorKind::PeerDied,
        ErrorKind::PeerDied,
    ]
    .into_iter()
    .enumerate()
    {
        let (mut to, middle) = row.to_relay(&format!("shm:a{n}"), ChannelOptions::new());
        let (onward, mut from) = row.out_of_relay(&format!("shm:b{n}"), ChannelOptions::new());
        let mut relay = Relay::new(middle, onward).expect("one domain");
        to.send((b"x", 7)).expect("send");
        if n < 2 {
            match n {
                0 => drop(to),
                _ => to.abandon(),
            }
            let stop = relay.run();
            assert_eq!(
                (stop.end, stop.error.kind()),
                (RelayEnd::Source, kind),
                "{stop}"
            );
        } else {
            while relay.turn().expect("no end") == 0 {}
        }
        drop(relay);
        assert_eq!(from.recv().expect("recv").word, 7);
        let end = from.recv().expect_err("its end");
        assert_eq!(end.kind(), kind, "{end}");
    }
}

/// A message that must not go on stays, and goes when it may.
#[test]
fn a_message_that_cannot_go_on_stays() {
    let _dog = dog();
    let row = Row::new();
    let (mut to, middle) = row.to_relay("shm:a", ChannelOptions::new());
    let (onward, mut from) = row.out_of_relay("shm:b", ChannelOptions::new());
    let pool = pool_of(&row.world.a, 1 << 20, Trust::Producer);
    to.send((pool.copy(b"x").expect("memory").freeze(), 5))
        .expect("send");
    let mut relay = Relay::new(middle, onward).expect("one domain");
    for _ in 0..2 {
        let stop = relay.run();
        assert_eq!(
            (stop.end, stop.error.kind()),
            (RelayEnd::Message, ErrorKind::Refused),
            "{stop}"
        );
        assert!(stop.to_string().contains("cannot go on"), "{stop}");
    }
    pool.allow_forward(row.world.b.id()).expect("allow");
    while relay.turn().expect("it may") == 0 {
        thread::yield_now();
    }
    assert_eq!(from.recv().expect("recv").word, 5);
    let (_to, strange) = connect(
        [&row.world.b, &row.world.a],
        "shm:strange",
        ChannelOptions::new(),
        ChannelOptions::new(),
    );
    let failed = relay.replace_source(strange).expect_err("another domain's");
    assert_eq!(failed.kind(), ErrorKind::BadArgument, "{failed}");
}

/// A relay that has nothing to do is not woken.
#[test]
fn a_relay_that_waits_is_not_ready() {
    let _dog = dog();
    let row = Row::new();
    let now = Some(Duration::ZERO);
    let (mut to, middle) = row.to_relay("shm:a", ChannelOptions::new());
    let (onward, mut from) = row.out_of_relay("shm:b", ChannelOptions::new().lines(2));
    let mut relay = Relay::new(middle, onward).expect("one domain");
    assert!(
        poll(&mut relay.poll_items(), now).expect("poll").is_empty(),
        "nothing came"
    );
    for number in 0..4 {
        to.send((b"x", number)).expect("send");
    }
    let mut handed = 0;
    while handed < 2 {
        handed += relay.turn().expect("no end");
    }
    assert_eq!(relay.turn().expect("no end"), 0, "there is no room");
    assert!(
        poll(&mut relay.poll_items(), now).expect("poll").is_empty(),
        "nor now"
    );
    assert_eq!(from.recv().expect("recv").word, 0);
    assert_eq!(poll(&mut relay.poll_items(), None).expect("poll"), [1]);
    assert_eq!(relay.turn().expect("no end"), 1);
    assert!(
        poll(&mut relay.poll_items(), now).expect("poll").is_empty(),
        "no room again"
    );
}
