//! Common parts of the scenes: the manager, the programs' surroundings, the end.

use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};
use tranship_testkit::chaos::{
    Auditor, Flow, Gauge, MANAGER, Party, Schedule, Settled, Stage, alone, held, returns_to, rounds,
};
use tranship_testkit::{Launch, Peer, Random, Watchdog};

use crate::seat::{Done, GAUGE, Order, SOCKET};

/// Only as much as the scenes need: memory that does not come back is soon missed.
const TOTAL_MIB: u64 = 96;

const TRANSHIP: &str = env!("CARGO_BIN_EXE_tranship");

/// A scene's surroundings.
pub struct Scene {
    pub audit: std::rc::Rc<Auditor>,
    pub random: Random,
}

impl Scene {
    pub fn new(name: &str) -> Scene {
        let audit = std::rc::Rc::new(Auditor::new());
        let config = format!("total = \"{TOTAL_MIB}MiB\"\n");
        std::fs::write(audit.path("config"), config).expect("the configuration");
        let random = Random::printed(name);
        Scene { audit, random }
    }

    pub fn gauge(&self) -> Gauge {
        Gauge::open(&self.audit.path("gauge"))
    }

    /// The program, as it finds the scene's manager and nobody else's.
    pub fn tranship(&self, args: &[&str]) -> Launch {
        self.inside(
            args.iter()
                .fold(Launch::program(TRANSHIP).quiet(), |l, arg| l.arg(arg)),
        )
    }

    /// A program of the scene.
    pub fn inside(&self, launch: Launch) -> Launch {
        let launch = launch
            .env("TRANSHIP_SOCKET", self.audit.path("m"))
            .env("RUST_LOG", "warn");
        let launch = launch.env(SOCKET, self.audit.path("m"));
        self.audit
            .inside(launch.env(GAUGE, self.audit.path("gauge")))
    }

    pub fn manager(&self) -> Party {
        let launch = self.manager_at("m");
        Party::new("manager", move |_| launch.clone())
    }

    fn manager_at(&self, socket: &str) -> Launch {
        let (socket, config) = (self.audit.path(socket), self.audit.path("config"));
        let launch = self.tranship(&["manager"]).arg("--socket").arg(socket);
        launch.arg("--config").arg(config)
    }

    /// One of this binary's children.
    pub fn party(&self, name: &'static str, child: fn() -> Launch, number: usize) -> Party {
        let launch = self
            .inside(child())
            .env(crate::seat::NUMBER, number.to_string());
        let seed = self.random.seed();
        Party::new(name, move |starts| {
            let seed = seed ^ (starts << 8 | number as u64) << 16;
            launch.clone().env("TRANSHIP_SEED", seed.to_string())
        })
    }

    /// The manager knows all of these parties, and so many channels with their pools.
    fn settled(&self, domains: &'static [usize], channels: usize) -> Settled {
        let (folder, socket) = (self.audit.path(""), self.audit.path("m"));
        Box::new(move |parties| {
            let stat = Command::new(TRANSHIP)
                .args(["stat", "--json"])
                .current_dir(&folder)
                .env("TRANSHIP_SOCKET", &socket)
                .output();
            let stat = stat.expect("stat").stdout;
            let stat: Value = serde_json::from_slice(&stat).unwrap_or_default();
            let all = |list: &str| stat[list].as_array().cloned().unwrap_or_default();
            let (known, made) = (all("domains"), all("channels"));
            let is_known = |party: &usize| {
                let pid = parties[*party].peer().map(Peer::pid);
                known
                    .iter()
                    .any(|d| d["pid"].as_u64() == pid.map(u64::from) && d["connected"] == true)
            };
            let is_whole = |channel: &&Value| {
                let pools = channel["pools"].as_array().map_or(0, Vec::len);
                pools > 0 && !channel["source"].is_null() && !channel["sink"].is_null()
            };
            domains.iter().all(is_known) && made.iter().filter(is_whole).count() >= channels
        })
    }

    /// Everything starts and is struck so often. These parties are domains, and have so many channels.
    pub fn play(
        &mut self,
        parties: Vec<Party>,
        flows: Vec<Flow>,
        (domains, channels): (&'static [usize], usize),
        normal: usize,
    ) -> Stage {
        let alone = alone();
        let dog = Watchdog::new();
        let schedule = Schedule::new(self.random.next(), parties.len());
        let settled = self.settled(domains, channels);
        let mut stage = Stage::new(parties, flows, self.gauge(), settled, dog, alone);
        stage.run(schedule, rounds(normal));
        stage
    }

    /// Runs a program that serves two others, for each of which something flows that needs all of `also`, too. At the end
    /// all is released.
    pub fn serves(
        mut self,
        server: (&'static str, fn() -> Launch),
        others: ([&'static str; 2], fn() -> Launch),
        flows: [&'static str; 2],
        channels: usize,
        also: &[usize],
    ) {
        let (names, other) = others;
        let parties = vec![
            self.manager(),
            self.party(server.0, server.1, 0),
            self.party(names[0], other, 1),
            self.party(names[1], other, 2),
        ];
        let flow = |(counts, name)| Flow {
            name,
            counts,
            needs: [&[1, counts + 1], also].concat(),
        };
        let flows = (1..).zip(flows).map(flow).collect();
        self.plays(parties, flows, (&[1, 2, 3], channels), 12);
    }

    /// Everything starts and is struck so often; at the end all is let go of.
    pub fn plays(
        &mut self,
        parties: Vec<Party>,
        flows: Vec<Flow>,
        settled: (&'static [usize], usize),
        normal: usize,
    ) {
        let mut stage = self.play(parties, flows, settled, normal);
        let (manager, others) = stage.parties.split_at_mut(MANAGER + 1);
        rest(others);
        self.ends(&mut manager[MANAGER], &[]);
    }

    /// Checks that a manager without clients holds as much as a fresh one, and ends in order; then nothing is left.
    pub fn ends(&self, manager: &mut Party, files: &[&str]) {
        let fresh = self
            .manager_at("fresh")
            .capture_stderr()
            .start()
            .expect("a manager");
        let guest = |socket: &str| {
            let stat = self
                .tranship(&["stat"])
                .env("TRANSHIP_SOCKET", self.audit.path(socket));
            while stat.start().expect("stat").wait() != tranship_testkit::Exit::Code(0) {
                std::thread::yield_now();
            }
        };
        guest("fresh");
        guest("m");
        let old = manager.peer().expect("the manager");
        alike(old, &fresh);
        manager.quit(terminate);
        terminate(&fresh);
        fresh.wait();
        let own = ["config", "gauge", "m.ids", "fresh.ids"];
        self.audit.nothing_is_left_but(&[&own[..], files].concat());
    }
}

/// Waits until one holds as much as the other; both may still be tidying up.
fn alike(old: &Peer, fresh: &Peer) {
    let mut start = held(&[fresh]);
    let begun = Instant::now();
    // Memory that the fresh one holds only for a moment would be asked of the old one for good.
    while begun.elapsed() < Duration::from_millis(300) {
        let now = held(&[fresh]);
        if now.fds < start.fds {
            start = now;
        }
        std::thread::yield_now();
    }
    returns_to("the manager, alone", &start, &[old]);
}

fn terminate(peer: &Peer) {
    peer.signal(rustix::process::Signal::TERM.as_raw());
}

/// Makes these parties release everything but their domain. They hold what they held before, and end in order.
fn rest(parties: &mut [Party]) {
    let peers = || parties.iter().map(|party| party.peer().expect("it runs"));
    // All at once: a buffer that one holds of another keeps both.
    peers().for_each(|peer| peer.send(&Order::Rest).expect("it listens"));
    peers().for_each(|peer| {
        let Done = peer.expect();
    });
    for party in parties {
        party.quit(|peer| peer.send(&Order::Quit).expect("it listens"));
    }
}
