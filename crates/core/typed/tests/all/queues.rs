//! Typed queues: what travels, and which consumers are refused.
#![cfg(feature = "queue")]

use crate::kit::{FRAME, Frame, watched};
use tranship_core::ErrorKind;
use tranship_core::error::TypeMismatch;
use tranship_typed::{Consumer, Producer};

#[test]
fn typed_items_are_taken_and_other_types_refused() {
    let (_dog, (a, b)) = watched();
    let mut frames = Producer::<Frame, [u8]>::produce(&a, "frames").expect("produce");
    let mut other = Consumer::<Frame, [u16]>::consume(&b, "frames").expect("consume");
    let error = other.recv().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChannelBind, "{error}");
    assert!(error.find::<TypeMismatch>().is_some());
    drop(other);
    let mut frame = frames.alloc(3).expect("alloc");
    frame.write(&FRAME).expect("write");
    let items = frame.items_mut().expect("items");
    items.copy_from_slice(&[7, 8, 9]);
    frames.send((frame, 60)).expect("send");
    let mut worker = Consumer::<Frame, [u8]>::consume(&b, "frames").expect("consume");
    worker.recv().expect("recv").requeue();
    let job = worker.recv().expect("recv");
    assert!(job.redelivered());
    assert_eq!((job.read().expect("read"), job.word()), (FRAME, 60));
    let frame = job.ack().expect("acknowledged");
    assert_eq!((frame.len(), frame.item(2).expect("item")), (3, 9));
    let mut poses = Producer::<Frame>::produce(&a, "poses").expect("produce");
    let mut takes = Consumer::<Frame>::consume(&b, "poses").expect("consume");
    poses.send(&FRAME).expect("send");
    takes.recv().expect("recv").reject();
    poses.untyped().wait_done(None).expect("done");
    let lost = poses.untyped().take_lost().expect("it was rejected");
    assert_eq!(lost.message.len(), size_of::<Frame>());
}
