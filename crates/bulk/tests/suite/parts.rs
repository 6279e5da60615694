//! Many buffers as one, messages of any length, forwarding, and waiting for several things: on every backend.

use crate::cases::{Pair, bytes, domain, event, pair, settle};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;
use tranship_bulk::{
    Aggregate, Buffer, BufferState, Direction, EndOptions, Event, Incoming, Kind, MAX_PIECES,
    Outgoing, Piece, Pool, PoolInfo, Relay, Trust, wait_any,
};
use tranship_transport::Backend;

const PAGE: usize = 4096;

fn filled(pool: &Pool, byte: u8) -> Buffer {
    let mut buffer = pool.alloc().expect("alloc");
    buffer.write(0, &[byte; PAGE]).expect("write");
    buffer
}

fn next(p: &Pair) -> Event {
    loop {
        match event(&p.sink) {
            Event::PoolAssigned(_) => {}
            other => return other,
        }
    }
}

/// Pieces put in and taken out anywhere, moved as one, and copied as one.
pub fn aggregates(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 4);
    let mut whole = Aggregate::new();
    whole.push(filled(&pool, 1)).expect("push");
    whole.insert(0, filled(&pool, 2), 10, 3).expect("in front");
    whole.insert(1, filled(&pool, 3), 4096, 0).expect("nothing");
    let again = Piece {
        buffer: 0,
        offset: 4095,
        len: 1,
    };
    whole.insert_again(3, again).expect("again");
    // What cannot be changes nothing.
    let refused = whole.insert(9, filled(&pool, 4), 0, 1).expect_err("place");
    assert_eq!(refused.kind(), Kind::BadArgument);
    let refused = whole.insert(0, refused.unsent, 4096, 1).expect_err("piece");
    assert_eq!(refused.kind(), Kind::BadArgument);
    drop(refused);
    // The piece of nothing goes, and its buffer with it.
    assert!(whole.remove(1).expect("remove").is_some());
    let expected = [vec![2; 3], vec![1; PAGE], vec![1]].concat();
    assert_eq!(whole.to_vec().expect("bytes"), expected);
    // Copied as one, and given back one by one.
    let _ = p.source.copy_aggregate(&whole, &[9]).expect("copy");
    assert!(
        whole
            .buffers()
            .iter()
            .all(|b| b.state() == BufferState::ReadOnlyOwned)
    );
    let refused = p
        .source
        .move_aggregate(whole, &[])
        .expect_err("copies are out");
    assert_eq!(refused.kind(), Kind::BufferState);
    let whole = refused.unsent;
    let Event::CopiedAll(copies, meta) = next(&p) else {
        panic!("not copied");
    };
    assert_eq!(
        (copies.to_vec(), &meta[..]),
        (Ok(expected.clone()), &[9][..])
    );
    drop(copies);
    for _ in 0..2 {
        assert!(matches!(event(&p.source), Event::Released(..)));
    }
    // Moved as one.
    let _ = p.source.move_aggregate(whole, &[7]).expect("move");
    let Event::MovedAll(whole, meta) = next(&p) else {
        panic!("not moved");
    };
    assert_eq!((whole.to_vec(), &meta[..]), (Ok(expected), &[7][..]));
    assert!(
        whole
            .buffers()
            .iter()
            .all(|b| b.state() == BufferState::ReadWrite)
    );
    drop(whole);
    while pool.free() < 4 {
        drop(event(&p.source));
    }
}

/// A buffer that may not go keeps all others here.
pub fn all_or_nothing(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 3);
    let other = p.a.pool(1, PAGE as u64, false).expect("pool");
    let empty = p.source.move_aggregate(Aggregate::new(), &[]);
    assert_eq!(empty.expect_err("empty").kind(), Kind::BadArgument);
    let mut whole = Aggregate::new();
    whole.push(filled(&pool, 1)).expect("push");
    whole.push(other.alloc().expect("alloc")).expect("push");
    let refused = p
        .source
        .move_aggregate(whole, &[])
        .expect_err("not assigned");
    assert_eq!(refused.kind(), Kind::PoolNotAssigned);
    let mut whole = refused.unsent;
    assert!(
        whole
            .buffers()
            .iter()
            .all(|b| b.state() == BufferState::ReadWrite)
    );
    p.settle();
    assert!(matches!(event(&p.sink), Event::PoolAssigned(_)));
    assert!(p.sink.poll_event().expect("event").is_none());
    // It goes without that one; long metadata is refused before anything changes.
    drop(whole.remove(1).expect("remove"));
    let refused = p
        .source
        .move_aggregate(whole, &[0; 65])
        .expect_err("metadata");
    assert_eq!(refused.kind(), Kind::BadArgument);
    let _ = p.source.move_aggregate(refused.unsent, &[]).expect("move");
    assert!(matches!(next(&p), Event::MovedAll(..)));
}

/// One range over pieces; what is shown there stays.
pub fn mapped(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    // Without a level a pool may still get other memory.
    let early = p.a.pool(1, PAGE as u64, false).expect("pool");
    let mut whole = Aggregate::new();
    whole.push(filled(&early, 1)).expect("push");
    assert_eq!(whole.map().expect_err("no level"), Kind::PoolNotAssigned);
    drop(whole);
    let pool = p.assigned(&p.source, &p.a, 2);
    let mut whole = Aggregate::new();
    whole.push(filled(&pool, 1)).expect("push");
    whole.push(filled(&pool, 2)).expect("push");
    let again = Piece {
        buffer: 0,
        offset: 0,
        len: PAGE as u64,
    };
    whole.insert_again(2, again).expect("again");
    let mapping = whole.map().expect("map");
    let expected = [[1; PAGE], [2; PAGE], [1; PAGE]].concat();
    assert_eq!(mapping.view().expect("view").to_vec(), expected);
    // A change is seen through it.
    whole.buffers_mut()[0].write(5, &[7]).expect("write");
    let seen = mapping.view().expect("view").to_vec();
    assert_eq!((seen[5], seen[2 * PAGE + 5]), (7, 7));
    let copied = p.source.copy(&whole.buffers()[0], &[]);
    assert_eq!(copied.expect_err("mapped"), Kind::BufferState);
    let refused = p.source.move_aggregate(whole, &[]).expect_err("mapped");
    assert_eq!(refused.kind(), Kind::BufferState);
    drop(mapping);
    let mut whole = refused.unsent;
    let odd = Piece {
        buffer: 0,
        offset: 1,
        len: 1,
    };
    whole.insert_again(0, odd).expect("odd");
    assert_eq!(whole.map().expect_err("no page"), Kind::BadArgument);
    let _ = p.source.move_aggregate(whole, &[]).expect("move");
    let Event::MovedAll(whole, _) = next(&p) else {
        panic!("not moved");
    };
    // Whoever got them can show them too, from a page on; what is let go meanwhile goes back when it is no more shown.
    let mut there = Aggregate::new();
    let mut buffers = whole.into_buffers().into_iter();
    let (first, second) = (buffers.next().expect("two"), buffers.next().expect("two"));
    there.push(second).expect("push");
    let mapping = there.map().expect("map");
    assert_eq!(mapping.view().expect("view").to_vec(), [2; PAGE]);
    if trust != Trust::Producer {
        there.buffers_mut()[0].write(1, &[8]).expect("write");
        assert_eq!(mapping.view().expect("view").to_vec()[1], 8);
    }
    drop((there, first));
    p.settle();
    drop(event(&p.source));
    assert_eq!(pool.free(), 1);
    drop(mapping);
    p.settle();
    drop(event(&p.source));
    assert_eq!(pool.free(), 2);
    // From a page on, in another order than they lie.
    let large = p.a.pool(2, 2 * PAGE as u64, false).expect("pool");
    let asked = p.source.assign(large.info().id).expect("assign");
    p.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    let mut whole = Aggregate::new();
    for byte in [10, 20] {
        let mut buffer = large.alloc().expect("alloc");
        buffer.write(0, &[byte; PAGE]).expect("write");
        buffer.write(PAGE, &[byte + 1; PAGE]).expect("write");
        whole
            .insert(0, buffer, PAGE as u64, PAGE as u64)
            .expect("insert");
    }
    let first = Piece {
        buffer: 0,
        offset: 0,
        len: PAGE as u64,
    };
    whole.insert_again(1, first).expect("again");
    let shown = |whole: &Aggregate| whole.map().expect("map").view().expect("view").to_vec();
    assert_eq!(shown(&whole), [[21; PAGE], [10; PAGE], [11; PAGE]].concat());
    let _ = p.source.move_aggregate(whole, &[]).expect("move");
    let whole = loop {
        match next(&p) {
            Event::MovedAll(whole, _) => break whole,
            other => drop(other),
        }
    };
    assert_eq!(shown(&whole), [[21; PAGE], [10; PAGE], [11; PAGE]].concat());
    drop(whole);
    // Nor is it given out again.
    let mut whole = Aggregate::new();
    whole.push(filled(&pool, 1)).expect("push");
    let mapping = whole.map().expect("map");
    drop(whole);
    assert_eq!(pool.free(), 1);
    drop(mapping);
    assert_eq!(pool.free(), 2);
}

/// Messages of no byte, of one, of a buffer and around it, of many buffers.
pub fn messages(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let pool = p.assigned(&p.source, &p.a, 4);
    for len in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 4 * PAGE - 5] {
        let text: Vec<u8> = (0..=250).cycle().take(len).collect();
        let mut message = Outgoing::new(&pool);
        for piece in text.chunks(1000) {
            message.write_all(piece).expect("write");
        }
        assert_eq!(message.len(), len);
        let _ = message.send(&p.source, b"note").expect("send");
        let mut message = Incoming::of(next(&p))
            .expect("a message")
            .expect("a length");
        assert_eq!((message.len(), message.meta()), (len, &b"note"[..]));
        assert_eq!(message.to_vec().expect("bytes"), text);
        let mut read = Vec::new();
        message.read_to_end(&mut read).expect("read");
        assert_eq!(read, text);
        drop(message);
        while pool.free() < 4 {
            drop(event(&p.source));
        }
    }
    let mut message = Outgoing::new(&pool);
    assert_eq!(
        message.add(&[0; 4 * PAGE + 1]),
        Err(Kind::AllocCount.into())
    );
    assert_eq!((message.len(), pool.free()), (0, 4));
    assert_eq!(
        message.add(&vec![0; MAX_PIECES * PAGE + 1]),
        Err(Kind::AllocSize.into())
    );
    // What is no message is said to be none.
    let _ = p.source.move_(filled(&pool, 1), &[255; 8]).expect("move");
    assert_eq!(
        Incoming::of(next(&p)).expect("moved").expect_err("length"),
        Kind::PeerViolation
    );
}

/// Many buffers through a forwarder, more than it or the channels are asked to hold, in order, and back.
pub fn relayed(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let c = domain(backend);
    let address = crate::cases::address();
    let options = || EndOptions::new(trust).meta_bytes(64);
    let onward = p.b.create(&address, Direction::Source, options());
    let onward = onward.expect("create");
    let (end, _) = c.bind(&address, options()).expect("bind");
    settle(&[&onward, &end]);
    for end in [&onward, &end] {
        assert!(matches!(event(end), Event::Bound(Ok(_))));
    }
    assert_eq!(
        Relay::new(&p.source, &onward).expect_err("ends"),
        Kind::BadArgument
    );
    let mut relay = Relay::new(&p.sink, &onward).expect("relay");
    let pool = p.a.pool(8, PAGE as u64, true).expect("pool");
    let asked = p.source.assign(pool.info().id).expect("assign");
    let (mut sent, mut got, mut back) = (0u8, 0u8, 0u8);
    while back < 100 {
        let turned = relay.turn(|side, event| panic!("{side:?}: {event:?}"));
        turned.expect("turn");
        while asked.result().is_some()
            && sent < 100
            && let Ok(mut buffer) = pool.alloc()
        {
            buffer.write(0, &[sent; PAGE]).expect("write");
            let moved = p.source.move_(buffer, &[sent]);
            moved.expect("move");
            sent += 1;
        }
        while let Some(event) = end.poll_event().expect("event") {
            if let Event::Moved(buffer, meta) = event {
                assert_eq!((&meta[..], bytes(&buffer)), (&[got][..], vec![got; PAGE]));
                let _ = end.pass(buffer, &meta).expect("pass");
                got += 1;
            }
        }
        while let Some(event) = p.source.poll_event().expect("event") {
            if let Event::Passed(_, meta) = event {
                assert_eq!(meta, [back]);
                back += 1;
            }
        }
    }
    // A copy is released all the way.
    let own = filled(&pool, 9);
    let _ = p.source.copy(&own, &[]).expect("copy");
    let mut said = None;
    while said.is_none() {
        relay
            .turn(|side, event| panic!("{side:?}: {event:?}"))
            .expect("turn");
        if let Some(Event::Copied(copy, _)) = end.poll_event().expect("event") {
            let _ = end.release_with(copy, b"read").expect("release");
        }
        if let Some(Event::Released(_, _, meta)) = p.source.poll_event().expect("event") {
            said = Some(meta);
        }
    }
    assert_eq!(
        (own.state(), said),
        (BufferState::ReadWrite, Some(b"read".to_vec().into()))
    );
}

/// A pool that the last of three domains does not want is off the first one's channel too.
pub fn vetoed_further_down(backend: &Arc<dyn Backend>, trust: Trust) {
    let p = pair(backend, trust);
    let c = domain(backend);
    let address = crate::cases::address();
    let options = || EndOptions::new(trust).meta_bytes(64);
    let onward = p.b.create(&address, Direction::Source, options());
    let onward = onward.expect("create");
    let small = options().accept(|info: &PoolInfo| match info.buffers {
        0..=2 => Ok(()),
        _ => Err(Kind::PoolVeto.into()),
    });
    let (end, _) = c.bind(&address, small).expect("bind");
    settle(&[&onward, &end]);
    for end in [&onward, &end] {
        assert!(matches!(event(end), Event::Bound(Ok(_))));
    }
    let mut relay = Relay::new(&p.sink, &onward).expect("relay");
    let (fine, large) = (
        p.a.pool(2, PAGE as u64, true),
        p.a.pool(3, PAGE as u64, true),
    );
    let (fine, large) = (fine.expect("pool"), large.expect("pool"));
    for pool in [&fine, &large] {
        let asked = p.source.assign(pool.info().id).expect("assign");
        p.settle();
        assert_eq!(asked.result(), Some(Ok(())));
    }
    // Sent before anybody knew: it comes back.
    let early = filled(&large, 1);
    let _ = p.source.move_(early, &[]).expect("move");
    let _ = p.source.move_(filled(&fine, 2), &[]).expect("move");
    let (mut removed, mut got) = (false, false);
    while !(removed && got) {
        let turned = relay.turn(|side, event| panic!("{side:?}: {event:?}"));
        turned.expect("turn");
        match end.poll_event().expect("event") {
            Some(Event::Moved(buffer, _)) => got = bytes(&buffer) == [2; PAGE],
            Some(Event::PoolAssigned(info)) => assert_eq!(info.id, fine.info().id),
            _ => {}
        }
        if let Some(Event::PoolRemoved(id)) = p.source.poll_event().expect("event") {
            removed = id == large.info().id;
        }
    }
    assert_eq!(large.free(), 3);
    assert_eq!(
        p.source
            .move_(filled(&large, 1), &[])
            .expect_err("off")
            .kind(),
        Kind::PoolNotAssigned
    );
    large.destroy().expect("destroy");
}

/// Whoever sleeps is woken, whichever of its channels something comes by, through descriptors too.
pub fn woken(backend: &Arc<dyn Backend>, trust: Trust) {
    let (quiet, p) = (pair(backend, trust), pair(backend, trust));
    let pool = p.assigned(&p.source, &p.a, 1);
    p.settle();
    let mut armed = None;
    std::thread::scope(|scope| {
        let (sink, other) = (&p.sink, &quiet.sink);
        let waiting = scope.spawn(move || {
            let mut taken = 0;
            while taken < 20 {
                match sink.poll_event().expect("event") {
                    Some(Event::Moved(buffer, _)) => {
                        taken += 1;
                        let _ = sink.pass(buffer, &[]).expect("pass");
                    }
                    Some(_) => {}
                    None => {
                        wait_any(&[other, sink], Duration::from_secs(60));
                    }
                }
            }
        });
        for _ in 0..20 {
            let buffer = loop {
                match pool.alloc() {
                    Ok(buffer) => break buffer,
                    Err(_) => drop(event(&p.source)),
                }
            };
            let _ = p.source.move_(buffer, &[]).expect("move");
        }
        waiting.join().expect("the sink");
        armed = p.sink.descriptor().ok();
    });
    let Some(fd) = armed else { return };
    while p.sink.poll_event().expect("event").is_some() || !p.sink.arm() {}
    let buffer = loop {
        match pool.alloc() {
            Ok(buffer) => break buffer,
            Err(_) => drop(event(&p.source)),
        }
    };
    let _ = p.source.move_(buffer, &[]).expect("move");
    assert!(tranship_sys::epoll::wait_readable(&fd, Some(Duration::from_secs(60))).expect("poll"));
    assert!(matches!(event(&p.sink), Event::Moved(..)));
}
