//! Where buffers begin, and where pools are mapped.

use crate::kit::*;
use tranship_core::error::{NoAddresses, OutOfRange};
use tranship_core::{ErrorKind, PoolOptions, Trust};

/// Of every size and level, here and in a reader, also when memory has come and gone for a while.
#[test]
fn buffers_begin_where_the_alignment_says() {
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        for align in [1, 64, 128, 256, 4096, 16 << 10, 64 << 10, 1 << 20] {
            let (_dog, a, _b, mut to, mut from) = linked();
            let chunk = (64 << 10).max(align as u64);
            let options = PoolOptions::new(64 * chunk).chunk_bytes(chunk).slots(2048);
            let pool = a
                .create_pool(options.trust(trust).align(align as u64))
                .expect("a pool");
            let sizes = [
                0,
                1,
                63,
                65,
                700,
                align - 1,
                align,
                align + 1,
                5000,
                3 * align,
                CHUNK + 1,
            ];
            let huge = usize::try_from(2 * chunk + 1).expect("small");
            let mut held = Vec::new();
            for (n, size) in sizes.into_iter().chain([huge]).cycle().take(60).enumerate() {
                let buf = pool.alloc_now(size).expect("a buffer");
                let at = buf.view().as_ptr().addr();
                assert_eq!(at % align, 0, "{size} bytes at {at:#x}, {trust}");
                match n % 3 {
                    0 => held.push(buf),
                    1 => drop(held.swap_remove(n % held.len())),
                    _ => {
                        to.send(buf.freeze()).expect("send");
                        let got = from.recv().expect("recv").into_buffer().expect("shared");
                        assert_eq!(got.view().as_ptr().addr() % align, 0, "{size} bytes there");
                    }
                }
            }
        }
    }
}

/// The bytes of two buffers do not overlap, whatever was rounded.
#[test]
fn aligned_buffers_are_apart() {
    let (_dog, a) = watched();
    let options = PoolOptions::new(16 << 20)
        .chunk_bytes(1 << 20)
        .align(32 << 10);
    let pool = a.create_pool(options).expect("a pool");
    let mut all = Vec::new();
    while let Ok(buf) = pool.alloc_now(40_000) {
        let at = buf.view().as_ptr().addr();
        all.push((at, buf));
    }
    // Each is rounded up to two times the alignment.
    assert_eq!(all.len(), 16 * 16);
    all.sort_by_key(|(at, _)| *at);
    assert!(all.windows(2).all(|two| two[0].0 + 40_000 <= two[1].0));
}

#[test]
fn what_is_no_alignment_is_refused_with_what_would_be() {
    let (_dog, a) = watched();
    for wrong in [0, 3, 96, 128 << 10, 1 << 63] {
        let options = PoolOptions::new(1 << 20).chunk_bytes(64 << 10).align(wrong);
        let error = a.create_pool(options).expect_err("no alignment");
        assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
        let range = error.find::<OutOfRange>().expect("the figures");
        assert_eq!((range.value, range.max), (wrong, 64 << 10));
    }
    let pool = a
        .create_pool(PoolOptions::new(1 << 20).align(4096))
        .expect("a pool");
    assert!(pool.try_alloc(usize::MAX).is_err() && pool.try_alloc(usize::MAX - 4095).is_err());
}

#[test]
fn a_pool_is_mapped_within_its_range() {
    let (_dog, a, _b, mut to, mut from) = linked();
    // They stay: a pool that ends would change the number that is compared below.
    let mut low = Vec::new();
    for pool_of in 0..3 {
        let options = PoolOptions::new(16 << 20)
            .address_range(0..1 << 32)
            .align(4096);
        let pool = a.create_pool(options).expect("there is room below 4 GiB");
        let buf = pool.copy(&[pool_of; 5000]).expect("a buffer");
        let end = buf.view().as_ptr().addr() + buf.len();
        assert!(end <= 1 << 32, "{end:#x}");
        to.send(buf.freeze()).expect("send");
        // A reader has it where it likes.
        assert_eq!(from.recv().expect("recv").to_vec(), [pool_of; 5000]);
        low.push(pool);
    }
    let range = 0x7000_0000..0x7200_0000;
    let options = || PoolOptions::new(32 << 20).address_range(range.clone());
    let first = a.create_pool(options()).expect("nothing is there");
    let at = first.alloc(1).expect("a buffer").view().as_ptr().addr();
    assert!(range.contains(&at), "{at:#x}");
    // It is full, and what is there stays; the manager was not asked.
    let before = a.admin().stat().expect("stat").len();
    let error = a.create_pool(options()).expect_err("no second one");
    assert_eq!(error.kind(), ErrorKind::PoolMap, "{error}");
    let why = error.find::<NoAddresses>().expect("the figures");
    assert_eq!(
        (why.need_bytes, why.from, why.to),
        (32 << 20, range.start, range.end)
    );
    assert!(error.to_string().contains("33554432"), "{error}");
    assert_eq!(a.admin().stat().expect("stat").len(), before);
    first.alloc(1).expect("it is as before");
    for none in [0..0, range.end..range.start, 0..4096] {
        let options = PoolOptions::new(1 << 20).address_range(none);
        let error = a.create_pool(options).expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::PoolMap, "{error}");
    }
}
