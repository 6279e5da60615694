//! Any of the three processes is killed at any moment, again and again: no flushed data is lost, and every block is the
//! result of one write.

use crate::kit::{Home, Running, watchdog};
use crate::nbd::{Client, FLUSH, WRITE};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use tranship_testkit::{Control, Peer, Random, child};

const BLOCK: usize = 4096;
/// A round of writes: so many at once, each in its own part of the disk.
const AT_ONCE: u64 = 8;
const PART_BLOCKS: u64 = 64;
const SIZE: u64 = AT_ONCE * PART_BLOCKS * BLOCK as u64;

/// Returns the place of a write: its first block, and the number of blocks. It is the same for every caller.
fn place(write: u64) -> (u64, u64) {
    let mut random = Random::seeded(write.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let blocks = 1 + random.below(12);
    let first = random.below(PART_BLOCKS - blocks + 1);
    ((write % AT_ONCE) * PART_BLOCKS + first, blocks)
}

/// A block as a write leaves it: it says which write it was, and every byte belongs to it.
fn content(write: u64, block: u64) -> Vec<u8> {
    let mut random = Random::seeded(write << 20 | block);
    let mut bytes = write.to_le_bytes().to_vec();
    bytes.extend((1..BLOCK / 8).flat_map(|_| random.next().to_le_bytes()));
    bytes
}

// Writes, and says after each flush which writes it covers; ends when nobody listens.
child!(
    fn user(ctl: Control) -> std::io::Result<()> {
        let (path, mut next): (PathBuf, u64) = ctl.recv().expect("control").expect("start");
        let mut client = Client::connect(&path)?;
        loop {
            for write in next..next + AT_ONCE {
                let (first, blocks) = place(write);
                let bytes: Vec<u8> = (first..first + blocks)
                    .flat_map(|b| content(write, b))
                    .collect();
                let len = u32::try_from(bytes.len()).expect("short");
                client.send(WRITE, 0, first * BLOCK as u64, len, &bytes)?;
            }
            for _ in 0..AT_ONCE {
                assert_eq!(client.reply()?.0, 0, "an error");
            }
            next += AT_ONCE;
            assert_eq!(client.ask(FLUSH, 0, 0, &[])?, 0, "an error");
            if ctl.send(&next).is_err() {
                return Ok(());
            }
            // The parent says whether to write more.
            if ctl.recv::<bool>().ok().flatten() != Some(true) {
                return Ok(());
            }
        }
    }
);

struct World {
    home: Home,
    server: Running,
    proxy: Running,
    /// The first of each round of writes that is flushed.
    flushed: Vec<u64>,
    /// No write at or above it was ever begun.
    begun: u64,
}

fn server(home: &Home) -> Running {
    home.start(&["serve", "shm:disk", "disk.img", "--size", &SIZE.to_string()])
}

fn proxy(home: &Home) -> Running {
    home.start(&[
        "proxy", "--server", "shm:disk", "--nbd", "unix:p", "--cache", "256KiB",
    ])
}

impl World {
    fn user(&mut self) -> Peer {
        let user = user().start().expect("a user");
        user.send(&(self.home.path("p"), self.begun))
            .expect("its orders");
        self.begun += AT_ONCE;
        user
    }

    /// The user has flushed; it may go on.
    fn went_on(&mut self, user: &Peer) {
        self.flushed.push(user.expect::<u64>() - AT_ONCE);
        self.begun += AT_ONCE;
        user.send(&true).expect("the user");
    }

    /// Checks that every block is of one write, whole, and no older than the last that was flushed.
    fn check(&self, bytes: &[u8], whence: &str) {
        let mut last = HashMap::new();
        for write in self
            .flushed
            .iter()
            .flat_map(|first| *first..first + AT_ONCE)
        {
            let (first, blocks) = place(write);
            last.extend((first..first + blocks).map(|block| (block, write)));
        }
        for (block, bytes) in (0..).zip(bytes.chunks(BLOCK)) {
            let oldest = last.get(&block).copied();
            if bytes.iter().all(|byte| *byte == 0) {
                assert_eq!(oldest, None, "{whence}: block {block} was never written");
                continue;
            }
            let write = u64::from_le_bytes(*bytes.first_chunk().expect("a block"));
            assert!(
                write < self.begun,
                "{whence}: block {block} is of write {write}"
            );
            let (first, blocks) = place(write);
            assert!(
                (first..first + blocks).contains(&block),
                "{whence}: block {block} is of {write}"
            );
            assert!(
                oldest <= Some(write),
                "{whence}: block {block} is of {write}, not {oldest:?}"
            );
            assert!(
                bytes == content(write, block),
                "{whence}: block {block} of {write} is damaged"
            );
        }
    }

    fn check_all(&self) {
        let mut client = Client::connect(&self.home.path("p")).expect("the proxy");
        let mut all = vec![0; usize::try_from(SIZE).expect("small")];
        assert_eq!(client.read(0, &mut all).expect("reading"), 0);
        self.check(&all, "through the proxy");
    }
}

#[test]
fn no_kill_of_any_process_loses_a_flushed_write() {
    let _dog = watchdog();
    let kills = tranship_testkit::kills(9, 300);
    let mut random = Random::printed("block kills");
    let home = Home::new();
    let (first, second) = (server(&home), proxy(&home));
    let mut world = World {
        home,
        server: first,
        proxy: second,
        flushed: Vec::new(),
        begun: 0,
    };
    for number in 0..kills {
        let user = world.user();
        for _ in 0..random.below(4) {
            world.went_on(&user);
        }
        random.instant(Duration::from_millis(5));
        match number % 3 {
            0 => {
                world.server.kill();
                random.instant(Duration::from_millis(5));
                world.server = server(&world.home);
                if random.one_in(2) {
                    // In the middle of repeated questions.
                    random.instant(Duration::from_millis(5));
                    world.server.kill();
                    world.server = server(&world.home);
                }
                // The user notices nothing.
                for _ in 0..3 {
                    world.went_on(&user);
                }
                world.flushed.push(user.expect::<u64>() - AT_ONCE);
                user.send(&false).expect("the user");
                user.wait();
            }
            1 => {
                world.proxy.kill();
                drop(user);
                world.proxy = proxy(&world.home);
            }
            _ => drop(user.kill()),
        }
        // Writes that the dead one had under way may still come; none that was not begun.
        world.check_all();
    }
    // The disk itself, when nobody has it any more.
    world.proxy.kill();
    world.server.kill();
    let all = std::fs::read(world.home.path("disk.img")).expect("the disk");
    world.check(&all, "on the disk");
    assert!(!world.flushed.is_empty());
}
