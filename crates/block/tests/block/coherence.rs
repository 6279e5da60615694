//! Caches at several clients of one server, and a server whose disk changes while it is away: no client is shown old
//! data.

use crate::kit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use tranship_block::front::{Direct, Front};
use tranship_block::{Access, Blocking, Cache, Cached, Remote};
use tranship_core::Trust;
use tranship_testkit::Random;

const SIZE: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A client with a cache that holds everything.
struct Client {
    store: Blocking<Cached<Arc<Remote>>>,
    remote: Arc<Remote>,
    cache: Arc<Cache>,
}

impl Client {
    fn new(at: &tranship_block::Endpoint) -> Client {
        let (remote, cache) = (kit::leased(at), Cache::new(SIZE));
        Client {
            store: Blocking(Cached::new(&cache, Arc::clone(&remote))),
            remote,
            cache,
        }
    }

    fn read(&self, block: u64) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        let place = block * BLOCK as u64;
        self.store.read_at(place, &mut bytes).expect("reading");
        bytes
    }

    fn write(&self, block: u64, bytes: &[u8; BLOCK]) {
        let place = block * BLOCK as u64;
        self.store.write_at(place, bytes, false).expect("writing");
    }
}

#[test]
fn each_of_two_caches_shows_what_the_other_has_written() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, SIZE);
    let [a, b] = [(), ()].map(|()| Client::new(&service.at));
    for round in 1..=3u8 {
        for (writer, reader, byte) in [(&a, &b, round), (&b, &a, round | 0x80)] {
            // Both know the old data.
            let before = [writer.read(0), reader.read(0)];
            assert!(before[0] == before[1]);
            writer.write(0, &[byte; BLOCK]);
            assert!(reader.read(0) == [byte; BLOCK], "round {round}");
        }
    }
}

/// Each block has one writer, which counts in it. No reader is shown a number that is older than one that was
/// acknowledged before.
#[test]
fn nobody_is_shown_what_is_older_than_what_was_acknowledged() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, SIZE);
    let done: [AtomicU64; 3] = Default::default();
    let mut random = Random::printed("coherence");
    let together = Barrier::new(done.len());
    std::thread::scope(|scope| {
        for own in 0..3usize {
            let (at, done, together) = (&service.at, &done, &together);
            let mut random = Random::seeded(random.next());
            scope.spawn(move || {
                let client = Client::new(at);
                together.wait();
                for number in 1..=60u64 {
                    for _ in 0..20 {
                        let block = random.below(3);
                        let of = usize::try_from(block).expect("small");
                        let before = done[of].load(Ordering::SeqCst);
                        let bytes = client.read(block);
                        let (words, _) = bytes.as_chunks::<8>();
                        let found = u64::from_le_bytes(words[0]);
                        assert!(words.iter().all(|word| *word == words[0]), "block {block}");
                        assert!(found >= before, "block {block}: {found}, not {before}");
                    }
                    let mut bytes = [0; BLOCK];
                    for word in bytes.as_chunks_mut::<8>().0 {
                        *word = number.to_le_bytes();
                    }
                    client.write(own as u64, &bytes);
                    done[own].store(number, Ordering::SeqCst);
                }
            });
        }
    });
}

#[test]
fn a_disk_that_was_restored_while_its_server_was_away_is_read_anew() {
    let _dog = kit::watchdog();
    let mut service = kit::serve("shm", Trust::Full, SIZE);
    let client = Client::new(&service.at);
    client.write(0, &[1; BLOCK]);
    assert!(client.read(0) == [1; BLOCK]);
    for round in 2..4u8 {
        let connections = client.remote.connections();
        drop(service.front.take());
        let image = vec![round; usize::try_from(SIZE).expect("small")];
        std::fs::write(&service.file().path, image).expect("the restored disk");
        let disk = kit::disk(service.file(), SIZE, Access::Auto, false);
        service.front = Some(kit::front(&service.at, disk));
        while client.remote.connections() < connections + 1 {
            std::thread::yield_now();
        }
        for block in 0..2 {
            assert!(client.read(block) == [round; BLOCK], "round {round}");
        }
    }
    assert!(client.cache.hits_and_misses().1 > 0);
}

/// A cache outlives a connection to the same opening of the disk, if nobody has written to it meanwhile.
#[test]
fn a_cache_outlives_a_connection_to_an_unchanged_disk() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let direct = Direct::new(kit::disk(&file, SIZE, Access::Auto, false)).expect("a thread");
    let (direct, at) = (Arc::new(direct), kit::endpoint("shm", Trust::Full));
    let mut front = Some(kit::started(&at, &direct));
    let client = Client::new(&at);
    let blocks = SIZE / BLOCK as u64;
    (0..blocks).for_each(|block| assert!(client.read(block) == [0; BLOCK]));
    let connections = client.remote.connections();
    drop(front.take());
    front = Some(kit::started(&at, &direct));
    while client.remote.connections() < connections + 1 {
        std::thread::yield_now();
    }
    let (before, _) = client.cache.hits_and_misses();
    // Each once: a client that had forgotten all blocks would have to ask each time. A client that takes long asks,
    // too.
    (0..blocks).for_each(|block| assert!(client.read(block) == [0; BLOCK]));
    assert!(client.cache.hits_and_misses().0 > before);
    drop(front);
}

/// A user of the disk in the server's own process is one of several, too.
#[test]
fn a_cache_shows_what_a_user_in_the_servers_process_has_written() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let direct = Direct::new(kit::disk(&file, SIZE, Access::Auto, false)).expect("a thread");
    let (own, at) = (Blocking(direct.store()), kit::endpoint("shm", Trust::Full));
    let _front = Front::start(&at, Arc::new(direct)).expect("a front");
    let client = Client::new(&at);
    for round in 1..4u8 {
        client.read(3);
        own.write_at(3 * 4096, &[round; BLOCK], false)
            .expect("writing");
        assert!(client.read(3) == [round; BLOCK], "round {round}");
        own.zero(3 * 4096, 4096, true).expect("zeroes");
        assert!(client.read(3) == [0; BLOCK], "round {round}");
    }
}

/// A proxy cannot say when its server's other clients write.
#[test]
fn behind_a_proxy_nothing_is_cached() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, SIZE);
    let (at, _proxy) = kit::proxy(&service.at, "shm", None);
    let (client, other) = (Client::new(&at), Blocking(kit::connect(&service.at)));
    for round in 1..4u8 {
        client.read(0);
        other.write_at(0, &[round; BLOCK], false).expect("writing");
        assert!(client.read(0) == [round; BLOCK], "round {round}");
    }
    assert_eq!(client.cache.hits_and_misses().0, 0);
}
