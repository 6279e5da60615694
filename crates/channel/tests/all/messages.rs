//! Every kind of message arrives as what it was, in order, with its word.

use crate::kit::*;
use tranship_core::{Body, Kind};

#[test]
fn shared_buffers_of_any_size() {
    let _dog = dog();
    let world = World::new();
    for address in world.addresses("shared") {
        let (mut to, mut from) = world.channel(&address);
        let pool = pool(&world.a, 8 << 20);
        for (number, len) in (0u64..).zip([1, 48, 4096, 5000, 65_537, 1 << 20, 3 << 20]) {
            let bytes = pattern(number, len);
            let buf = pool.alloc_from(&bytes).expect("alloc").freeze();
            to.send_with(buf, number).expect("send");
            let message = from.recv().expect("recv");
            assert_eq!(message.meta, number, "{address}");
            assert!(matches!(message.body, Body::Buf(_)), "{address}: {message:?}");
            assert!(message.to_vec() == bytes, "{address}: {len} bytes");
        }
        to.wait_taken(None).expect("all taken");
        drop(to);
        let end = from.recv().expect_err("closed");
        assert_eq!(end.kind(), Kind::PeerGone, "{address}: {end}");
    }
}
