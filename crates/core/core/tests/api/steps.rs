//! At every step of a buffer's way its writer looks whether it can have the memory again: never before the last holder is done.

use crate::kit::*;
use std::cell::Cell;
use std::rc::Rc;
use tranship_core::{Body, Buffer, Pool, Receiver, Sender};
use tranship_sys::crash;

/// Does something, and where it reaches that point the writer wants the whole pool: it gets nothing.
#[track_caller]
fn not_free_at(point: &'static str, pool: &Pool, what: impl FnOnce()) {
    let got = Rc::new(Cell::new(None));
    let (writer, put) = (pool.clone(), Rc::clone(&got));
    crash::insert(point, move || put.set(Some(writer.alloc_now(1).is_ok())));
    what();
    let got = got.take();
    assert!(got.is_some(), "{point} is not reached");
    assert_eq!(got, Some(false), "reused at {point}");
}

const FIRST: &[&str] = &[
    "send.after_let_go",
    "send.after_generation",
    "send.after_sent",
    "send.after_publish",
];
/// Of a buffer whose handle is kept, or that goes along in an aggregate.
const KEPT: &[&str] = &[
    "send.after_generation",
    "send.after_sent",
    "send.after_publish",
];
/// Of another domain's buffer.
const ONWARD: &[&str] = &["send.after_sent", "send.after_publish"];
const RECEIPT: &[&str] = &["recv.after_ref", "recv.after_rcvd", "recv.after_head"];
const PIECES: &[&str] = &["recv.between_pieces", "recv.after_rcvd", "recv.after_head"];

/// How the writer sends.
type Way = fn(&mut Sender, Buffer, &Pool);

fn plainly(sender: &mut Sender, buf: Buffer, _: &Pool) {
    sender.send(buf).expect("send");
}

fn in_a_batch(sender: &mut Sender, buf: Buffer, _: &Pool) {
    sender.send_many([buf]).expect("send");
}

fn with_a_clone_left(sender: &mut Sender, buf: Buffer, _: &Pool) {
    sender.send(buf.clone()).expect("send");
    drop(buf);
}

fn in_an_aggregate(sender: &mut Sender, buf: Buffer, lists: &Pool) {
    let mut aggregate = pieces([buf]);
    aggregate.set_list_pool(lists);
    sender.send(aggregate).expect("send");
}

fn receive(receiver: &mut Receiver) -> Body {
    receiver.recv().expect("recv").body
}

/// From A to B, to C, and back to A. Each holds the buffer only while it passes it on.
fn travels(
    way: Way,
    short: bool,
    first: &'static [&'static str],
    receipt: &'static [&'static str],
) {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let lists = [&a, &b, &c].map(|domain| crate::kit::pool(domain, 1));
    let pool = pool(&a, 1);
    pool.allow_forward(b.id()).expect("allow");
    pool.allow_forward(c.id()).expect("allow");
    let (mut to_b, mut at_b) = link(&a, &b, "x");
    let (mut to_c, mut at_c) = link(&b, &c, "y");
    let (mut to_a, mut at_a) = link(&c, &a, "z");
    // Each assigns the pools at its first send, and sends the short way after it, if there is one.
    let mut all = |not_free_at: &dyn Fn(&'static str, &mut dyn FnMut()),
                   [one, two, three, four, five, six]: [&'static str; 6]| {
        let mut buf = Some(filled(&pool, CHUNK, 7));
        let mut send = || way(&mut to_b, buf.take().expect("once"), &lists[0]);
        not_free_at(one, &mut send);
        let mut got = None;
        not_free_at(two, &mut || got = Some(receive(&mut at_b)));
        let onward = |sender: &mut Sender, got: &mut Option<Body>, lists: &Pool, point| {
            if let Some(Body::Aggregate(aggregate)) = got {
                aggregate.set_list_pool(lists);
            }
            not_free_at(point, &mut || {
                let sent = match got.take().expect("it was received") {
                    Body::Buffer(buf) => sender.send(buf).map_err(|failed| failed.error),
                    Body::Aggregate(all) => sender.send(all).map_err(|failed| failed.error),
                    other => panic!("a buffer was expected, not {other:?}"),
                };
                sent.expect("send");
            });
        };
        onward(&mut to_c, &mut got, &lists[1], three);
        not_free_at(four, &mut || got = Some(receive(&mut at_c)));
        onward(&mut to_a, &mut got, &lists[2], five);
        not_free_at(six, &mut || got = Some(receive(&mut at_a)));
        assert!(pool.alloc_now(1).is_err(), "the writer holds it itself");
        drop(got);
        pool.alloc_now(CHUNK).expect("everybody is done");
    };
    if short {
        all(&|_, what| what(), [""; 6]);
    }
    for n in 0..4 {
        let at = |points: &'static [&'static str]| points[n % points.len()];
        let points = [
            at(first),
            at(receipt),
            at(ONWARD),
            at(receipt),
            at(ONWARD),
            at(receipt),
        ];
        all(&|point, what| self::not_free_at(point, &pool, what), points);
    }
}

#[test]
fn the_short_way() {
    travels(plainly, true, FIRST, RECEIPT);
}

#[test]
fn the_long_way() {
    travels(plainly, false, FIRST, RECEIPT);
}

#[test]
fn as_a_batch() {
    travels(in_a_batch, false, FIRST, RECEIPT);
}

#[test]
fn with_another_handle() {
    travels(with_a_clone_left, true, KEPT, RECEIPT);
}

#[test]
fn in_pieces() {
    travels(in_an_aggregate, false, KEPT, PIECES);
}
