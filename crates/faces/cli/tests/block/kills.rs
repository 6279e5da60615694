//! Any of the three processes is killed at any moment, again and again: no flushed data is lost, and every block is the
//! result of one write.

use crate::kit::{Home, Running, home, start};
use crate::nbd::{Client, FLUSH};
use crate::writes::{self, AT_ONCE, SIZE, write_round};
use std::path::PathBuf;
use std::time::Duration;
use tranship_testkit::{Control, Peer, Random, child};

// Writes, and says
child!(
    fn user(ctl: Control) -> std::io::Result<()> {
        let (path, mut next): (PathBuf, u64) = ctl.recv().expect("control").expect("start");
        let mut client = Client::connect(&path)?;
        loop {
            assert!(write_round(&mut client, next)?, "an error");
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
    start(
        home,
        &["serve", "shm:disk", "disk.img", "--size", &SIZE.to_string()],
    )
}

fn proxy(home: &Home) -> Running {
    start(
        home,
        &[
            "proxy", "--server", "shm:disk", "--nbd", "unix:p", "--cache", "256KiB",
        ],
    )
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

    fn check(&self, bytes: &[u8], whence: &str) {
        let checked = writes::check(self.flushed.iter().copied(), self.begun, bytes);
        assert_eq!(checked, Ok(()), "{whence}");
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
    let kills = tranship_testkit::kills(9, 300);
    let mut random = Random::printed("block kills");
    let home = home();
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
