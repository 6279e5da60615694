//! Stage of the test: starts the parties, kills them, replaces them, counts leftovers.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tranship_testkit::chaos::{held, returns_to};
use tranship_testkit::{Exit, Held, Launch, Peer, Random};

use crate::seat::{Done, Order, Start};
use crate::{forwarder, manager, pair, receiver, writer};

pub const CHUNK: u64 = 64 << 10;
pub const WRITER_POOL: u64 = 4 * CHUNK;
pub const PAIR_POOL: u64 = CHUNK;

/// Party that can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Writer,
    Forwarder,
    Receiver,
    Manager,
}

pub const ROLES: [Role; 4] = [Role::Writer, Role::Forwarder, Role::Receiver, Role::Manager];

/// All processes.
pub struct Stage {
    _dir: TempDir,
    socket: PathBuf,
    seed: u64,
    incarnations: u64,
    /// By role.
    parties: Vec<Peer>,
    /// Resources that each party held after it had joined, before it did anything else.
    bare: Vec<Option<Held>>,
    pair: [Peer; 2],
    manager_alone: Held,
    without_flow: Held,
}

impl Stage {
    /// All are there and data moves.
    pub fn new(random: &mut Random) -> Stage {
        let dir = tranship_testkit::folder().expect("a directory for the socket");
        let socket = dir.path().join("manager.sock");
        let seed = random.next();
        let start = |launch: Launch, incarnation| {
            let peer = launch.start().expect("a child");
            let message = Start {
                socket: socket.clone(),
                incarnation,
                seed,
            };
            peer.send(&message).expect("a child that listens");
            peer
        };
        let the_manager = start(manager::manager(), 0);
        the_manager.expect::<()>();
        let guest = start(manager::guest(), 0);
        guest.expect::<Done>();
        let Done = guest.ask(&Order::Go);
        let Done = guest.ask(&Order::Alone);
        let manager_alone = before_any_pool(&[&the_manager, &guest]);
        quits("guest", &guest);
        let pair = [start(pair::source(), 0), start(pair::sink(), 0)];
        pair.iter().for_each(|p| {
            let Done = p.expect();
        });
        before_any_pool(&[&the_manager, &pair[0], &pair[1]]);
        pair.iter().for_each(|p| {
            let Done = p.ask(&Order::Go);
        });
        let Done = pair[0].ask(&Order::Quota);
        let without_flow = held(&[&the_manager, &pair[0], &pair[1]]);
        let mut stage = Stage {
            _dir: dir,
            socket,
            seed,
            incarnations: 0,
            parties: vec![the_manager],
            bare: vec![None, None, None, None],
            pair,
            manager_alone,
            without_flow,
        };
        for role in [Role::Writer, Role::Forwarder, Role::Receiver] {
            let peer = stage.start(role, None);
            stage.handshake(role, &peer);
            stage.parties.insert(role as usize, peer);
        }
        stage.flows();
        stage
    }

    pub fn of(&self, role: Role) -> &Peer {
        &self.parties[role as usize]
    }

    /// A process for a role. Nothing is waited for.
    fn start(&mut self, role: Role, crash: Option<&str>) -> Peer {
        let launch = match role {
            Role::Writer => writer::writer(),
            Role::Forwarder => forwarder::forwarder(),
            Role::Receiver => receiver::receiver(),
            Role::Manager => manager::manager(),
        };
        let launch = match crash {
            Some(point) => launch.crash_at(point),
            None => launch,
        };
        let peer = launch.start().expect("a child");
        self.incarnations += 1;
        let (socket, incarnation, seed) = (self.socket.clone(), self.incarnations, self.seed);
        let told = peer.send(&Start {
            socket,
            incarnation,
            seed,
        });
        assert!(told.is_ok() || crash.is_some(), "{role:?}: {told:?}");
        peer
    }

    /// Waits until it takes part.
    fn handshake(&mut self, role: Role, peer: &Peer) {
        if role == Role::Manager {
            peer.expect::<()>();
            return;
        }
        peer.expect::<Done>();
        self.bare[role as usize] = Some(held(&[peer]));
        let Done = peer.ask(&Order::Go);
    }

    /// SIGKILL. A party that ended before by itself has found a rule broken.
    pub fn kill(&mut self, role: Role) {
        let exit = self.of(role).kill();
        assert_eq!(exit, Exit::Signal(libc::SIGKILL), "{role:?}");
    }

    /// A fresh process in the place of a dead one.
    pub fn replace(&mut self, role: Role) {
        let peer = self.start(role, None);
        self.handshake(role, &peer);
        self.parties[role as usize] = peer;
    }

    /// Replaces a party by one that dies at a crash point; nothing of it is waited for.
    pub fn replace_doomed(&mut self, role: Role, point: &str) {
        let peer = self.start(role, Some(point));
        if role != Role::Manager {
            let _ = peer.send(&Order::Go);
        }
        self.parties[role as usize] = peer;
    }

    /// One of which nothing was waited for takes part after all.
    pub fn joins(&self, role: Role) {
        // One answer for having joined, one for the order to go.
        self.of(role).expect::<Done>();
        self.of(role).expect::<Done>();
    }

    /// Replaces a party by one that is killed at any instant of its beginning.
    pub fn stillborn(&mut self, role: Role, random: &mut Random, longest: Duration) {
        let peer = self.start(role, None);
        if role != Role::Manager {
            let _ = peer.send(&Order::Go);
        }
        random.instant(longest);
        assert_eq!(peer.kill(), Exit::Signal(libc::SIGKILL), "{role:?}");
    }

    /// The survivors that have nothing to do with the dead exchange a pool full of messages.
    pub fn pair_goes_on(&self) {
        let Done = self.pair[0].ask(&Order::Quota);
    }

    /// Data moves on all ways: direct, forwarded, and around the cycle.
    pub fn flows(&self) {
        let three = [Role::Writer, Role::Forwarder, Role::Receiver];
        for role in three {
            self.of(role)
                .send(&Order::Advance(2))
                .unwrap_or_else(|e| panic!("{role:?}: {e}"));
        }
        for role in three {
            self.of(role)
                .recv::<Done>()
                .unwrap_or_else(|e| panic!("{role:?}: {e}"));
        }
    }

    /// The writer can have all of its quota again.
    pub fn whole_quota(&self) {
        let Done = self.of(Role::Writer).ask(&Order::Quota);
    }

    /// Waits until the manager knows a party again; false if it died before.
    pub fn is_managed(&self, role: Role) -> bool {
        let peer = self.of(role);
        peer.send(&Order::Managed).is_ok() && peer.recv::<Done>().is_ok()
    }

    /// Everything that was made for the flow is gone again: first of each party, then of the survivors.
    pub fn ends(self) {
        let three = [Role::Writer, Role::Forwarder, Role::Receiver];
        for role in three {
            let Done = self.of(role).ask(&Order::Strip);
        }
        for role in three {
            let bare = self.bare[role as usize].clone().unwrap_or_default();
            returns_to(&format!("{role:?} stripped"), &bare, &[self.of(role)]);
        }
        for role in three {
            quits(&format!("{role:?}"), self.of(role));
        }
        let [source, sink] = &self.pair;
        let manager = &self.parties[Role::Manager as usize];
        returns_to(
            "survivors and manager",
            &self.without_flow,
            &[manager, source, sink],
        );
        self.pair.iter().for_each(|peer| quits("pair", peer));
        let guest = manager::guest().start().expect("a child");
        let (socket, incarnation, seed) = (self.socket.clone(), 0, self.seed);
        let start = Start {
            socket,
            incarnation,
            seed,
        };
        guest.send(&start).expect("a child that listens");
        guest.expect::<Done>();
        let Done = guest.ask(&Order::Go);
        let Done = guest.ask(&Order::Alone);
        returns_to(
            "manager with a guest",
            &self.manager_alone,
            &[manager, &guest],
        );
    }
}

/// Returns the resources that they hold once the pools of their beginning are gone: the manager closes the pools in its
/// books a little later.
fn before_any_pool(peers: &[&Peer]) -> Held {
    loop {
        let held = held(peers);
        if held
            .memfds
            .values()
            .all(|m| m.name == "tranship-control-page")
        {
            return held;
        }
        std::thread::yield_now();
    }
}

fn quits(who: &str, peer: &Peer) {
    peer.send(&Order::Quit)
        .unwrap_or_else(|e| panic!("{who}: {e}"));
    assert_eq!(peer.wait(), Exit::Code(0), "{who}");
}
