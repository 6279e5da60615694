//! The block service with its proxy: flushed data is there, and every block is the result of one write, whichever
//! process was struck.

use std::io;
use std::path::Path;

use tranship_testkit::chaos::{Flow, Gauge, MANAGER, Party};
use tranship_testkit::{Control, Launch, Random, child};

use crate::nbd::{Client, FLUSH};
use crate::scene::Scene;
use crate::seat::{Broken, GAUGE, broken, variable};

use crate::writes::{self, AT_ONCE, SIZE, write_round};

/// Numbers of the gauge: rounds that are flushed, rounds that were begun, and from there on whether each is flushed.
const FLUSHED: usize = 0;
const BEGUN: usize = 1;
const ROUNDS: usize = 2;

/// A round that was begun
fn begin(gauge: &Gauge) -> u64 {
    let round = gauge.read(BEGUN);
    gauge.set(BEGUN, round + 1);
    round
}

fn flushed(gauge: &Gauge, round: u64) {
    gauge.set(ROUNDS + usize::try_from(round).unwrap_or(0), 1);
    gauge.tick(FLUSHED);
}

/// Checks every block.
fn check(gauge: &Gauge, bytes: &[u8]) -> Result<(), Broken> {
    let begun = gauge.read(BEGUN);
    let is_flushed = |r: &u64| gauge.read(ROUNDS + usize::try_from(*r).unwrap_or(0)) == 1;
    let flushed = (0..begun).filter(is_flushed).map(|round| round * AT_ONCE);
    writes::check(flushed, begun * AT_ONCE, bytes)
}

child!(
    /// Writes and flushes, and checks the whole disk now and then; an operation that breaks off is begun anew.
    fn user(_ctl: Control) -> Result<(), Broken> {
        let gauge = Gauge::open(&variable(GAUGE)?);
        let socket = variable("CHAOS_NBD")?;
        let mut random = Random::printed("user");
        loop {
            match work(&socket, &gauge, &mut random) {
                // The proxy is gone, or not there yet.
                Err(Ended::Off) => std::thread::yield_now(),
                Err(Ended::Wrong(broken)) => return Err(broken),
                Ok(never) => match never {},
            }
        }
    }
);

enum Ended {
    /// The connection broke off.
    Off,
    Wrong(Broken),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Ended::Off
    }
}

fn work(
    socket: &Path,
    gauge: &Gauge,
    random: &mut Random,
) -> Result<std::convert::Infallible, Ended> {
    let mut client = Client::connect(socket)?;
    // Requests that the last user had under way are over then.
    client.ask(FLUSH, 0, 0, &[])?;
    loop {
        let mut all = vec![0; usize::try_from(SIZE).unwrap_or(0)];
        if client.read(0, &mut all)? == 0 {
            check(gauge, &all).map_err(Ended::Wrong)?;
        }
        for _ in 0..1 + random.below(6) {
            write(&mut client, gauge)?;
        }
    }
}

fn write(client: &mut Client, gauge: &Gauge) -> io::Result<()> {
    let round = begin(gauge);
    let whole = write_round(client, round * AT_ONCE)?;
    // An error says
    if client.ask(FLUSH, 0, 0, &[])? == 0 && whole {
        flushed(gauge, round);
    }
    Ok(())
}

#[test]
fn a_disk_with_a_proxy() {
    let mut scene = Scene::new("a_disk_with_a_proxy");
    let path = |name| scene.audit.path(name);
    let (disk, socket) = (path("disk"), path("nbd"));
    let serve = scene.tranship(&["block", "serve", "shm:disk"]);
    let serve = serve.arg(&disk).arg("--size").arg(SIZE.to_string());
    let proxy = scene.tranship(&[
        "block", "proxy", "--server", "shm:disk", "--cache", "256KiB",
    ]);
    let proxy = proxy.arg("--nbd").arg(format!("unix:{}", socket.display()));
    let as_ever = |name, launch: Launch| {
        // Ends with this code while there is no manager.
        Party::new(name, move |_| launch.clone()).started_again_at(3)
    };
    let user = {
        let launch = scene.inside(user()).env("CHAOS_NBD", &socket);
        let seed = scene.random.seed();
        let of = move |starts: u64| {
            launch
                .clone()
                .env("TRANSHIP_SEED", (seed ^ starts).to_string())
        };
        Party::new("user", of)
    };
    let parties = vec![
        scene.manager(),
        as_ever("server", serve),
        as_ever("proxy", proxy),
        user,
    ];
    let flows = vec![Flow {
        name: "flushed rounds of writes",
        counts: FLUSHED,
        // The server's memory grows with what the proxy keeps, and that needs the manager.
        needs: vec![MANAGER, 1, 2, 3],
    }];
    let mut stage = scene.play(parties, flows, (&[1], 0), 12);
    for party in stage.parties[MANAGER + 1..].iter_mut().rev() {
        party.kill();
    }
    let all = std::fs::read(&disk).map_err(broken);
    let checked = all.and_then(|all| check(&scene.gauge(), &all));
    assert_eq!(checked, Ok(()), "on the disk");
    scene.ends(&mut stage.parties[MANAGER], &["disk", "nbd"]);
}
