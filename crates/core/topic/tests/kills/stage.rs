//! The processes together, struck and replaced.

use crate::cast::{self, Done, Order, Start, TOTAL, TOTAL_OF_MANY};
use std::path::PathBuf;
use tranship_testkit::{Exit, Peer, Random, folder};

/// Subscribers of the test with many; more under `TRANSHIP_TORTURE`.
pub fn many() -> usize {
    match std::env::var_os("TRANSHIP_TORTURE") {
        Some(_) => 200,
        None => 100,
    }
}

/// Subscribers of the other tests.
const FEW: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Manager,
    Publisher,
    Subscriber(usize),
}

pub struct Stage {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    seed: u64,
    incarnations: u64,
    manager: Option<Peer>,
    publisher: Option<Peer>,
    subscribers: Vec<Option<Peer>>,
}

impl Stage {
    pub fn new(random: &mut Random) -> Stage {
        Stage::with(random, FEW)
    }

    pub fn with(random: &mut Random, subscribers: usize) -> Stage {
        let folder = folder().expect("a folder");
        let mut stage = Stage {
            socket: folder.path().join("manager"),
            _folder: folder,
            seed: random.next(),
            incarnations: 0,
            manager: None,
            publisher: None,
            subscribers: (0..subscribers).map(|_| None).collect(),
        };
        stage.replace(Role::Manager);
        stage.replace(Role::Publisher);
        for n in 0..subscribers {
            stage.replace(Role::Subscriber(n));
        }
        stage.flows();
        stage
    }

    fn place(&mut self, role: Role) -> &mut Option<Peer> {
        match role {
            Role::Manager => &mut self.manager,
            Role::Publisher => &mut self.publisher,
            Role::Subscriber(n) => &mut self.subscribers[n],
        }
    }

    pub fn of(&mut self, role: Role) -> &Peer {
        self.place(role).as_ref().expect("it is there")
    }

    pub fn done(&mut self, role: Role) {
        let Done = self.of(role).expect();
    }

    /// Kills one that is there.
    pub fn kill(&mut self, role: Role) {
        if let Some(peer) = self.place(role).take() {
            peer.kill();
        }
    }

    fn start(&mut self, role: Role, crash_at: Option<&str>) {
        let mut launch = match role {
            Role::Manager => cast::manager(),
            Role::Publisher => cast::publisher(),
            Role::Subscriber(_) => cast::subscriber(),
        };
        if let Some(point) = crash_at {
            launch = launch.env("TRANSHIP_CRASH_AT", point);
        }
        let peer = launch.start().expect("a process");
        self.incarnations += 1;
        let many = self.subscribers.len() > FEW;
        peer.send(&Start {
            socket: self.socket.clone(),
            incarnation: self.incarnations,
            seed: self.seed,
            total: if many { TOTAL_OF_MANY } else { TOTAL },
            many,
        })
        .expect("sent");
        *self.place(role) = Some(peer);
    }

    /// Starts a new one in its place.
    pub fn replace(&mut self, role: Role) {
        self.kill(role);
        self.start(role, None);
        self.done(role);
    }

    /// Starts one that kills itself at a step of the protocol.
    pub fn replace_doomed(&mut self, role: Role, point: &str) {
        self.start(role, Some(point));
    }

    /// Every subscriber receives more messages.
    pub fn flows(&mut self) {
        self.advance(None);
    }

    /// The others receive more messages, while this one is dead.
    pub fn others_go_on(&mut self, dead: Role) {
        self.advance(Some(dead));
    }

    fn advance(&mut self, but: Option<Role>) {
        let all = (0..self.subscribers.len()).map(Role::Subscriber);
        let all: Vec<Role> = all.filter(|role| Some(*role) != but).collect();
        let all: Vec<Role> = all
            .into_iter()
            .filter(|role| self.place(*role).is_some())
            .collect();
        for role in &all {
            self.of(*role).send(&Order::Advance(20)).expect("sent");
        }
        for role in &all {
            self.done(*role);
        }
    }

    /// All end in order: the manager has nothing left.
    pub fn ends(&mut self) {
        let all = std::iter::once(Role::Publisher);
        let all: Vec<Role> = all
            .chain((0..self.subscribers.len()).map(Role::Subscriber))
            .collect();
        for role in all {
            if let Some(peer) = self.place(role).take() {
                peer.send(&Order::Quit).expect("sent");
                let exit = peer.wait();
                assert_eq!(exit, Exit::Code(0), "{role:?}");
            }
        }
        let guest = cast::guest().start().expect("a process");
        guest
            .send(&Start {
                socket: self.socket.clone(),
                incarnation: 0,
                seed: 0,
                total: 0,
                many: false,
            })
            .expect("sent");
        let Done = guest.expect();
    }
}
