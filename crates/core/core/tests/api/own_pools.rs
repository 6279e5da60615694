//! A channel's own pool: its sender allocates from it, and its receiver alone reads it.

use crate::kit::*;
use tranship_core::admin::StatRecord;
use tranship_core::{
    AggregateMut, Body, BufferMut, ChannelOptions, ErrorKind, PoolOptions, Receiver, Sender, Trust,
};

fn of(sender: &mut Sender, byte: u8) -> BufferMut {
    let mut buf = sender.alloc(100).expect("memory");
    buf.write(0, &[byte; 100]).expect("it is ours");
    buf
}

#[test]
fn a_channel_needs_no_other_pool() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let [one, two, three] = [1, 2, 3].map(|byte| of(&mut to, byte));
    to.send(one.freeze()).expect("shared");
    to.send((two, 7)).expect("given away");
    let all = pieces([three.freeze()]);
    to.send(all).expect("a piece");
    for byte in 1..4 {
        assert_eq!(from.recv().expect("recv").to_vec(), [byte; 100]);
    }
    let stat = a.admin().stat().expect("stat");
    let pools = stat
        .iter()
        .filter(|record| matches!(record, StatRecord::Pool(_)));
    assert_eq!(pools.count(), 1);
    let now = to.try_alloc(10).expect("memory").len();
    let soon = to.alloc_timeout(10, std::time::Duration::from_secs(1));
    let awaited = block_on(to.alloc_async(10)).expect("memory");
    assert_eq!(
        (now, soon.expect("memory").len(), awaited.len()),
        (10, 10, 10)
    );
    let error = to.alloc(2 << 30).expect_err("more than it can have");
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    // The last buffer keeps the pool.
    let last = of(&mut to, 4);
    drop((to, from));
    assert_eq!(last.to_vec(), [4; 100]);
}

/// Over another channel they do not go: not shared, not given away, not as pieces.
fn are_refused(own: &mut Sender, other: &mut Sender, ordinary: tranship_core::Buffer) {
    let refused = |error: tranship_core::Error| {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("create_pool"), "{error}");
    };
    let failed = other.send(of(own, 1).freeze()).expect_err("not there");
    refused(failed.error);
    let back = failed.unsent;
    let failed = other.send(of(own, 1)).expect_err("not there");
    refused(failed.error);
    let all = pieces([ordinary, back.clone()]);
    refused(other.send(all).expect_err("not there").error);
    let mut all = AggregateMut::new();
    all.push_back(failed.unsent).expect("room");
    refused(other.send(all).expect_err("not there").error);
    own.send(back).expect("its own");
}

#[test]
fn its_buffers_go_over_no_other_channel() {
    let (_dog, a, b, mut own, mut from) = linked();
    let (mut other, mut at_other) = link(&a, &b, "y");
    let pool = pool(&a, 1);
    are_refused(&mut own, &mut other, filled(&pool, 10, 1));
    assert_eq!(from.recv().expect("recv").to_vec(), [1; 100]);
    assert!(at_other.try_recv().expect("open").is_none());
}

#[test]
fn inside_a_process_it_is_the_same() {
    let (_dog, a) = watched();
    let ends = |name: &str| {
        let listener = a.listen::<Receiver>(name).expect("listen");
        let sender = a.open::<Sender>(name).expect("open");
        (sender, listener.accept().expect("accept"))
    };
    let (mut own, mut from) = ends("local:x");
    let (mut other, _at_other) = ends("local:y");
    let pool = pool(&a, 1);
    are_refused(&mut own, &mut other, filled(&pool, 10, 1));
    assert_eq!(from.recv().expect("recv").to_vec(), [1; 100]);
}

#[test]
fn the_channel_says_what_pool_it_is() {
    let (_dog, a, b) = pair();
    let half = PoolOptions::new(1 << 20).trust(Trust::Half).slots(2);
    let options = ChannelOptions::new().pool(half);
    let (mut to, mut from) = link_with(&a, &b, "x", options);
    let first = of(&mut to, 1);
    let second = of(&mut to, 2);
    let error = to.try_alloc(1).expect_err("two slots");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    to.send(first).expect("send");
    drop(second);
    match from.recv().expect("recv").body {
        Body::BufferMut(mut got) => got.write(0, b"mine").expect("level half"),
        other => panic!("{other:?}"),
    }
}

/// `alloc` does not wait for the receiver's consent: the first send takes the answer.
#[test]
fn the_receiver_may_refuse_it() {
    let (_dog, a, b) = pair();
    let listener = a.listen::<Sender>("x").expect("listen");
    std::thread::scope(|s| {
        let receiver = s.spawn(|| {
            let options = ChannelOptions::new().accept_pools(|_| false);
            b.open_with::<Receiver>("x", options).expect("open")
        });
        let mut to = listener.accept().expect("accept");
        let _from = receiver.join().expect("no panic");
        let frame = of(&mut to, 1);
        let failed = to.send(frame).expect_err("refused");
        assert_eq!(failed.kind(), ErrorKind::Refused, "{failed}");
        assert_eq!(failed.unsent.to_vec(), [1; 100]);
    });
}
