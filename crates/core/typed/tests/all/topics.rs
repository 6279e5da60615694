//! Typed topics: what travels, and which subscribers are refused.
#![cfg(feature = "topic")]

use crate::kit::{FRAME, Frame, watched};
use std::thread;
use tranship_core::ErrorKind;
use tranship_core::error::TypeMismatch;
use tranship_typed::{Publisher, Subscriber};

#[test]
fn typed_messages_are_published_and_other_types_refused() {
    let (_dog, (a, b)) = watched();
    let mut camera = Publisher::<Frame, [u8]>::publish(&a, "camera").expect("publish");
    let mut poses = Publisher::<Frame>::publish(&a, "poses").expect("publish");
    thread::scope(|s| {
        let viewer = s.spawn(|| {
            let mut other = Subscriber::<Frame, [u16]>::subscribe(&b, "camera").expect("subscribe");
            let error = other.recv().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ChannelBind, "{error}");
            assert!(error.find::<TypeMismatch>().is_some());
            drop(other);
            let mut video = Subscriber::<Frame, [u8]>::subscribe(&b, "camera").expect("subscribe");
            let mut pose = Subscriber::<Frame>::subscribe(&b, "poses").expect("subscribe");
            let frame = video.recv().expect("recv");
            assert_eq!((frame.read().expect("read"), frame.word()), (FRAME, 60));
            assert_eq!((frame.len(), frame.item(2).expect("item")), (3, 9));
            assert_eq!(pose.recv().expect("recv").read().expect("read"), FRAME);
            assert_eq!(pose.recv().expect("recv").read().expect("read"), FRAME);
        });
        camera.untyped().wait_for(1, None).expect("a viewer");
        let mut frame = camera.alloc(3).expect("alloc");
        frame.write(&FRAME).expect("write");
        frame
            .items_mut()
            .expect("items")
            .copy_from_slice(&[7, 8, 9]);
        camera.send((frame, 60)).expect("send");
        poses.untyped().wait_for(1, None).expect("a viewer");
        poses.send(&FRAME).expect("send");
        let mut draft = poses.alloc(0).expect("alloc");
        draft.write(&FRAME).expect("write");
        poses.send(draft.freeze()).expect("send");
        viewer.join().expect("viewer");
    });
}
