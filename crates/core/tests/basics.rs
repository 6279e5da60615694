//! One process, two domains, an embedded manager: the whole path of a buffer.

use std::thread;
use tranship_core::{Body, Domain, PoolOptions, Role};

fn pair() -> (Domain, Domain) {
    let a = Domain::builder().name("a").embedded().expect("embedded");
    let path = a.socket_path().expect("socket");
    let b = Domain::builder()
        .name("b")
        .socket(path)
        .connect()
        .expect("connect");
    (a, b)
}

#[test]
fn a_buffer_goes_over_and_comes_back_to_the_pool() {
    let (a, b) = pair();
    let pool = a
        .create_pool(PoolOptions::new(1 << 20).name("frames"))
        .expect("pool");
    let listener = a.listen("frames", Role::Source).expect("listen");
    let reader = thread::spawn(move || {
        let mut receiver = b.open_receiver("frames").expect("open");
        let mut seen = Vec::new();
        for _ in 0..1000u32 {
            let message = receiver.recv().expect("recv");
            assert!(matches!(message.body, Body::Buf(_)));
            let bytes = message.to_vec();
            seen.push(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        seen
    });
    let mut sender = listener.accept_sender().expect("accept");
    for i in 0..1000u32 {
        let mut buf = pool.alloc(4096).expect("alloc");
        buf[..4].copy_from_slice(&i.to_le_bytes());
        sender.send(buf.freeze()).expect("send");
    }
    assert_eq!(
        reader.join().expect("reader"),
        (0..1000).collect::<Vec<_>>()
    );
    let stats = pool.stats();
    assert!(
        stats.collected > 0 && stats.chunk_bytes_present <= 1 << 20,
        "{stats:?}"
    );
}
