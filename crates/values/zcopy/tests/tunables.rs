//! Pageblocks of each size and each threshold of large values: the requested settings hold, in pages of their own or
//! not, and all allowed sizes can be used.

mod kit;

use kit::{dog, exactly, pair, pattern};
use tranship_zcopy::{Arena, Error, Options, Piece, Sender, Socket, Value, Way};

const PAGE: usize = 4096;
const MAX: u64 = 16 << 20;

fn with(block_pages: usize, large: usize) -> Arena {
    let options = Options::new()
        .max(MAX)
        .block_pages(block_pages)
        .large_threshold(large);
    Arena::with(&options).expect("arena")
}

/// Returns the length up to which values share pageblocks.
fn threshold(block_pages: usize, large: usize) -> usize {
    large.clamp(PAGE, 8 * PAGE).min(block_pages * PAGE / 2)
}

const ALL: [(usize, usize); 9] = [
    (4, 1),
    (4, 4096),
    (4, 1 << 20),
    (16, 4096),
    (16, 10_000),
    (16, 32 << 10),
    (64, 32 << 10),
    (512, 4096),
    (512, 32 << 10),
];

#[test]
fn values_up_to_the_threshold_share_pageblocks_and_longer_ones_do_not() {
    let _dog = dog();
    for (block_pages, large) in ALL {
        let arena = with(block_pages, large);
        let threshold = threshold(block_pages, large);
        let two = |len: usize| {
            let values = [1, 2].map(|seed| arena.copy(&pattern(seed, len)).expect("room"));
            let blocks = values.each_ref().map(Value::block);
            (values, blocks[0] == blocks[1])
        };
        let what = format!("{block_pages} pages, from {large} bytes on");
        for len in [100, 1000, 2048] {
            assert!(two(len).1, "{what}: {len} bytes");
        }
        assert!(two(threshold / 2).1, "{what}");
        let (values, together) = two(threshold + 1);
        assert!(!together, "{what}");
        // The longest ones are protected by themselves, and go by reference as all others.
        arena.protect();
        let connection = pair::unix();
        let mut sender = Sender::new().expect("sender");
        sender.force(Some(Way::Splice));
        let mut socket = Socket::new(connection.near()).expect("socket");
        let sent = sender
            .send(connection.near(), &mut socket, &[Piece::Value(&values[0])])
            .expect("room");
        assert_eq!(sender.counts().referred_bytes, sent as u64, "{what}");
        drop(values);
        exactly(&connection, &pattern(1, threshold + 1)[..sent]);
    }
}

/// Whatever their length is, values that share nothing take their pages and no more.
#[test]
fn all_that_an_arena_may_use_can_be_used() {
    let _dog = dog();
    for (block_pages, large) in ALL {
        let arena = with(block_pages, large);
        let threshold = threshold(block_pages, large);
        for len in [threshold + 1, 2 * threshold, block_pages * PAGE] {
            let mut values = Vec::new();
            let error = loop {
                match arena.alloc(len) {
                    Ok(value) => values.push(value),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
            let pages = len.next_multiple_of(PAGE) as u64;
            assert_eq!(
                values.len() as u64,
                MAX / pages,
                "{block_pages} pages, from {large} bytes on: values of {len} bytes: {error}"
            );
        }
    }
}
