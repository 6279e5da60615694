//! Pools that an end removes from a channel.

use crate::kit::*;
use tranship_core::{
    Body, Buffer, ChannelOptions, ErrorKind, Message, Pool, Receiver, Sender, Trust,
};

fn filled(pool: &Pool, byte: u8) -> Buffer {
    pool.copy(&[byte; 50]).expect("a buffer").freeze()
}

#[track_caller]
fn is_refused(to: &mut Sender, pool: &Pool, says: &str) {
    let shared = to.send(filled(pool, 1)).expect_err("removed");
    assert_eq!(shared.kind(), ErrorKind::PoolNotAssigned, "{shared}");
    assert!(shared.to_string().contains(says), "{shared}");
    let moved = to.send(pool.copy(&[1; 50]).expect("a buffer"));
    let moved = moved.expect_err("removed");
    assert_eq!(moved.kind(), ErrorKind::PoolNotAssigned, "{moved}");
}

#[track_caller]
fn goes(to: &mut Sender, from: &mut Receiver, pool: &Pool) {
    to.send(filled(pool, 7)).expect("send");
    assert_eq!(from.recv().expect("recv").to_vec(), [7; 50]);
}

#[test]
fn a_sender_removes_a_pool_and_assigns_it_again() {
    let (_dog, a, _b, mut to, mut from) = linked();
    let (pool, other) = (pool(&a, 4), pool(&a, 4));
    let early = to.remove_pool(pool.id()).expect_err("never assigned");
    assert_eq!(early.kind(), ErrorKind::PoolNotAssigned, "{early}");
    goes(&mut to, &mut from, &other);
    to.send(filled(&pool, 3)).expect("send");
    to.remove_pool(pool.id()).expect("it is there");
    assert!(to.remove_pool(pool.id()).is_err(), "it is gone");
    is_refused(&mut to, &pool, "this end");
    // Buffers that are on their way arrive, other pools are as before.
    assert_eq!(from.recv().expect("recv").to_vec(), [3; 50]);
    goes(&mut to, &mut from, &other);
    to.assign(&pool).expect("again");
    goes(&mut to, &mut from, &pool);
    drop((to, from));
    drop(
        pool.alloc_timeout(4 * CHUNK, std::time::Duration::from_secs(100))
            .expect("nobody has any of it"),
    );
}

#[test]
fn a_receiver_removes_a_pool_for_good() {
    for trust in [Trust::Producer, Trust::Full] {
        let (_dog, a, _b, mut to, mut from) = linked();
        let (pool, other) = (pool_of(&a, trust), pool(&a, 4));
        to.send((pool.copy(&[5; 50]).expect("a buffer"), 1))
            .expect("move");
        let held = from.recv().expect("recv");
        to.send(filled(&pool, 6)).expect("send");
        from.remove_pool(pool.id()).expect("it is there");
        let again = from.remove_pool(pool.id()).expect_err("it is gone");
        assert_eq!(again.kind(), ErrorKind::PoolNotAssigned, "{again}");
        from.send_back((b"after it", 2)).expect("room");
        assert_eq!(to.recv_back().expect("the bytes").word, 2);
        is_refused(&mut to, &pool, "the receiver");
        let again = to.assign(&pool).expect_err("for good");
        assert_eq!(again.kind(), ErrorKind::PoolNotAssigned, "{again}");
        // A held buffer can go back, and one on its way arrives.
        match held.body {
            Body::BufferMut(buf) => from.send_back(buf).map_err(|e| e.error),
            body => {
                let buf = Message { word: 0, body }.into_buffer();
                from.send_back(buf.expect("a buffer")).map_err(|e| e.error)
            }
        }
        .expect("pass");
        assert_eq!(to.recv_back().expect("it comes").to_vec(), [5; 50]);
        assert_eq!(from.recv().expect("recv").to_vec(), [6; 50]);
        goes(&mut to, &mut from, &other);
    }
}

#[test]
fn a_receiver_inside_the_process_removes_a_pool_at_once() {
    let (_dog, a) = watched();
    for chooses in [false, true] {
        let name = format!("local:removes-{chooses}");
        let options = match chooses {
            true => ChannelOptions::new().accept_pools(|_| true),
            false => ChannelOptions::new(),
        };
        let listener = a.listen_with::<Receiver>(&name, options).expect("listen");
        let mut to = a.open::<Sender>(&name).expect("open");
        let mut from = listener.accept().expect("accept");
        let pool = pool(&a, 4);
        goes(&mut to, &mut from, &pool);
        to.remove_pool(pool.id()).expect("it is there");
        is_refused(&mut to, &pool, "this end");
        to.assign(&pool).expect("again");
        goes(&mut to, &mut from, &pool);
        from.remove_pool(pool.id()).expect("it is there");
        is_refused(&mut to, &pool, "the receiver");
        assert!(to.assign(&pool).is_err(), "for good");
    }
}
