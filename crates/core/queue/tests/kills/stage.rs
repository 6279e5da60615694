//! The processes together, struck and replaced.

use crate::cast::{self, Done, Order, Start};
use crate::log;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tranship_testkit::{Exit, Peer, Random, folder};

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Manager,
    Producer(usize),
    Consumer(usize),
}

impl Role {
    pub fn peers() -> impl Iterator<Item = Role> {
        let producers = (0..PRODUCERS).map(Role::Producer);
        producers.chain((0..CONSUMERS).map(Role::Consumer))
    }

    pub fn producers() -> impl Iterator<Item = Role> {
        (0..PRODUCERS).map(Role::Producer)
    }
}

pub struct Stage {
    folder: tempfile::TempDir,
    seed: u64,
    incarnations: u64,
    /// With the number of each process.
    peers: BTreeMap<Role, (Peer, u64)>,
}

impl Stage {
    pub fn new(random: &mut Random) -> Stage {
        let mut stage = Stage {
            folder: folder().expect("a folder"),
            seed: random.next(),
            incarnations: 0,
            peers: BTreeMap::new(),
        };
        stage.replace(Role::Manager);
        for role in Role::peers() {
            stage.replace(role);
        }
        stage.flows(None);
        stage
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub fn of(&self, role: Role) -> &Peer {
        &self.peers.get(&role).expect("it is there").0
    }

    fn done(&self, role: Role) -> Done {
        self.of(role).expect()
    }

    /// Kills one that is there.
    pub fn kill(&mut self, role: Role) {
        if let Some((peer, _)) = self.peers.remove(&role) {
            peer.kill();
        }
    }

    fn started(&mut self, launch: tranship_testkit::Launch, reports: bool) -> (Peer, u64) {
        let peer = launch.start().expect("a process");
        self.incarnations += 1;
        let start = Start {
            socket: self.folder.path().join("manager"),
            log: self.log(),
            incarnation: self.incarnations,
            seed: self.seed,
            reports,
        };
        peer.send(&start).expect("sent");
        (peer, self.incarnations)
    }

    fn start(&mut self, role: Role, crash_at: Option<&str>) {
        let mut launch = match role {
            Role::Manager => cast::manager(),
            Role::Producer(_) => cast::producer(),
            Role::Consumer(_) => cast::consumer(),
        };
        if let Some(point) = crash_at {
            launch = launch.env("TRANSHIP_CRASH_AT", point);
        }
        let peer = self.started(launch, role == Role::Producer(1));
        self.peers.insert(role, peer);
    }

    /// Starts a new one in its place.
    pub fn replace(&mut self, role: Role) {
        self.kill(role);
        self.start(role, None);
        self.done(role);
    }

    /// Starts one that kills itself at a step of the protocol.
    pub fn replace_doomed(&mut self, role: Role, point: &str) {
        self.kill(role);
        self.start(role, Some(point));
    }

    /// Each of the others receives more items, and each producer's go.
    pub fn flows(&mut self, but: Option<Role>) {
        let all: Vec<Role> = Role::peers().filter(|role| Some(*role) != but).collect();
        for role in &all {
            self.of(*role).send(&Order::Advance(10)).expect("sent");
        }
        for role in &all {
            self.done(*role);
        }
    }

    /// Starts a consumer that takes an item and then is stopped. Returns its process's number, and what a producer says
    /// of it.
    pub fn hangs(&mut self) -> (u32, Vec<String>) {
        let (keeper, _) = self.started(cast::keeper(), false);
        let Done(..) = keeper.expect();
        keeper.signal(libc::SIGSTOP);
        for role in Role::producers() {
            self.of(role).send(&Order::Hung).expect("sent");
        }
        let texts = Role::producers().map(|role| self.done(role).1);
        let texts = texts.collect();
        let pid = keeper.pid();
        keeper.kill();
        (pid, texts)
    }

    /// Stops the manager, and kills a consumer that has an item: the producers finish all the same.
    pub fn ends_beside_a_manager_that_hangs(mut self) {
        let (keeper, _) = self.started(cast::keeper(), false);
        let Done(..) = keeper.expect();
        self.of(Role::Manager).signal(libc::SIGSTOP);
        keeper.kill();
        let sent = self.finish();
        self.of(Role::Manager).signal(libc::SIGCONT);
        self.quit(&sent);
    }

    /// All end in order, each item has come once or was reported, and the manager has nothing left.
    pub fn ends(&mut self) {
        let sent = self.finish();
        self.quit(&sent);
    }

    /// Each producer's number, and how many items it sent. All are done with.
    fn finish(&self) -> Vec<(u64, u64)> {
        for role in Role::producers() {
            self.of(role).send(&Order::Finish).expect("sent");
        }
        Role::producers()
            .map(|role| (self.peers[&role].1, self.done(role).0))
            .collect()
    }

    fn quit(&mut self, sent: &[(u64, u64)]) {
        for role in Role::peers() {
            if let Some((peer, _)) = self.peers.remove(&role) {
                peer.send(&Order::Quit).expect("sent");
                let exit = peer.wait();
                assert_eq!(exit, Exit::Code(0), "{role:?}");
            }
        }
        self.check(sent);
        let (guest, _) = self.started(cast::guest(), false);
        let Done(..) = guest.expect();
    }

    /// Checks what became of the items, of each producer that ended in order all of them.
    fn check(&self, sent: &[(u64, u64)]) {
        let log = log::read(&self.log());
        for (id, said) in &log {
            assert!(said.came <= 1, "{id:#x} has come twice: {said:?}");
            assert!(said.lost <= 1, "{id:#x} was reported twice: {said:?}");
            assert!(
                said.acked + said.lost <= 1 && said.after == 0,
                "{id:#x} was acknowledged, and not the end of it: {said:?}"
            );
        }
        for &(incarnation, count) in sent {
            for number in 1..=count {
                let id = incarnation << 32 | number;
                let said = log.get(&id).copied().unwrap_or_default();
                // A consumer may be killed between the acknowledgement and its record.
                assert!(
                    said.acked + said.lost == 1 || said.acking > 0,
                    "{id:#x} of {count} is neither done nor reported: {said:?}"
                );
            }
        }
        let again = log.values().filter(|said| said.came_again > 0).count();
        let lost = log.values().filter(|said| said.lost > 0).count();
        println!("{} items, {again} redelivered, {lost} reported", log.len());
    }
}
