//! Random operations against a byte array.

use crate::kit;
use tranship_block::{Access, Blocking, Cache, Store};
use tranship_core::Trust;
use tranship_testkit::Random;

const SIZE: u64 = 1 << 20;

/// Random places and lengths: whole blocks, parts of blocks, the end.
fn range(random: &mut Random, size: u64) -> (u64, usize) {
    let longest = [1, 100, 4096, 20_000, 300_000][usize::try_from(random.below(5)).expect("small")];
    let mut offset = random.below(size);
    let mut len = random.below(longest) + 1;
    if random.one_in(2) {
        (offset, len) = (offset & !4095, (len + 4095) & !4095);
    }
    let len = len.min(size - offset);
    (offset, usize::try_from(len).expect("small"))
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let salt = random.next();
    (0..len as u64)
        .map(|n| (n.wrapping_mul(salt | 1) >> 29).to_le_bytes()[0])
        .collect()
}

/// Runs `steps` operations, and compares everything at the end.
fn run(name: &str, store: impl Store, steps: u32) {
    let mut random = Random::printed(name);
    let size = store.info().expect("what there is").size;
    let store = Blocking(store);
    let mut model = vec![0; usize::try_from(size).expect("small")];
    for _ in 0..steps {
        let (offset, len) = range(&mut random, size);
        let at = usize::try_from(offset).expect("small");
        let long = u32::try_from(len).expect("small");
        match random.below(10) {
            0..4 => {
                let new = bytes(&mut random, len);
                let durable = random.one_in(8);
                store.write_at(offset, &new, durable).expect("writing");
                model[at..at + len].copy_from_slice(&new);
            }
            4..8 => {
                let mut read = vec![0xaa; len];
                store.read_at(offset, &mut read).expect("reading");
                assert!(read == model[at..at + len], "{len} bytes at {offset}");
            }
            8 => {
                let punch = random.one_in(2);
                store.zero(offset, long, punch).expect("writing zeroes");
                model[at..at + len].fill(0);
            }
            _ if random.one_in(2) => store.flush().expect("flushing"),
            _ => {
                store.trim(offset, long).expect("trimming");
                // The present bytes may be anything: they are decided again.
                store
                    .write_at(offset, &model[at..at + len], false)
                    .expect("writing");
            }
        }
    }
    let mut all = vec![0; model.len()];
    store.read_at(0, &mut all).expect("reading all");
    assert!(all == model, "the whole");
}

#[test]
fn a_disk_without_the_page_cache() {
    let _dog = kit::watchdog();
    let file = kit::file();
    run("direct", kit::disk(&file, SIZE, Access::Auto, false), 300);
}

#[test]
fn a_disk_through_the_page_cache() {
    let _dog = kit::watchdog();
    let file = kit::file();
    run(
        "buffered",
        kit::disk(&file, SIZE, Access::Buffered, false),
        300,
    );
}

#[test]
fn a_disk_on_threads() {
    let _dog = kit::watchdog();
    let file = kit::file();
    run("threads", kit::disk(&file, SIZE, Access::Auto, true), 300);
}

#[test]
fn over_threads_of_one_process_at_every_level() {
    let _dog = kit::watchdog();
    for trust in [Trust::Full, Trust::Half, Trust::Producer, Trust::None] {
        let service = kit::serve("local", trust, SIZE);
        run("local", kit::connect(&service.at), 60);
    }
}

#[test]
fn over_shared_memory_at_every_level() {
    let _dog = kit::watchdog();
    for trust in [Trust::Full, Trust::Half, Trust::Producer, Trust::None] {
        let service = kit::serve("shm", trust, SIZE);
        run("shm", kit::connect(&service.at), 200);
    }
}

#[test]
fn over_a_socket_that_carries_bytes() {
    let _dog = kit::watchdog();
    let service = kit::serve("copy", Trust::None, SIZE);
    run("copy", kit::connect(&service.at), 100);
}

#[test]
fn through_a_proxy_without_and_with_a_cache() {
    let _dog = kit::watchdog();
    // Shared memory on both sides; and a server elsewhere, whose bytes are carried.
    for (server, trust) in [
        ("shm", Trust::Full),
        ("shm", Trust::Producer),
        ("copy", Trust::Producer),
        ("shm", Trust::None),
    ] {
        let service = kit::serve(server, trust, SIZE);
        let (at, _front) = kit::proxy(&service.at, "shm", None);
        run("proxy", kit::connect(&at), 100);
        // A quarter of the blocks: most are thrown out.
        let cache = Cache::new(SIZE / 4);
        let (at, _front) = kit::proxy(&service.at, "shm", Some(&cache));
        let all = u32::try_from(SIZE).expect("small");
        Blocking(kit::connect(&at))
            .zero(0, all, true)
            .expect("zeroes");
        run("cached proxy", kit::connect(&at), 200);
        let (hits, misses) = cache.hits_and_misses();
        assert!(hits > 0 && misses > 0, "{hits} hits, {misses} misses");
    }
}

/// Few blocks, so that every one of them is known when it is written to, in part or as a whole.
#[test]
fn a_cache_forgets_what_is_written_over() {
    let _dog = kit::watchdog();
    let size = 64 << 10;
    let service = kit::serve("local", Trust::Full, size);
    for bytes in [size, size / 2] {
        let all = u32::try_from(size).expect("small");
        Blocking(kit::connect(&service.at))
            .zero(0, all, true)
            .expect("zeroes");
        run("small cache", kit::cached(&service.at, bytes), 300);
    }
}

#[test]
fn a_cache_that_holds_everything_asks_once() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let cache = Cache::new(SIZE);
    // No other client writes there, so that no lease ends.
    let disk = kit::disk(&file, SIZE, Access::Auto, false);
    let store = Blocking(tranship_block::Cached::new(&cache, disk));
    let mut all = vec![0; usize::try_from(SIZE).expect("small")];
    store.read_at(0, &mut all).expect("reading");
    let (_, first) = cache.hits_and_misses();
    store.read_at(0, &mut all).expect("reading");
    let (hits, second) = cache.hits_and_misses();
    assert_eq!((hits, second), (first, first), "each once, and once again");
}
