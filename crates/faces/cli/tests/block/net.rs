//! Two machines: the server on one, the proxy and its NBD clients on the other, with TLS and weather between them.

use crate::clients::{TOOLS, file_system_round_trip, random_file};
use crate::kit::{Home, Running, have, home, run, started};
use std::process::{Command, Stdio};
use std::time::Duration;
use tranship_testkit::lab::{self, Lab, Weather};
use tranship_testkit::{Random, skipped};
use tranship_transport::net::certificate;

const SERVER: &str = "tcp:10.77.0.1:7700/disk";

/// A service on one of the hosts, which is `ip netns exec`'s own process.
fn start(lab: &Lab, home: &Home, side: usize, arguments: &[&str]) -> Running {
    let mut command = lab.command(side, env!("CARGO_BIN_EXE_tranship"));
    command
        .arg("block")
        .args(arguments)
        .current_dir(home.path(""))
        .env("TRANSHIP_TLS", home.path(["server", "client"][side]))
        .env_remove("RUST_LOG");
    started(&mut command)
}

fn server(lab: &Lab, home: &Home) -> Running {
    let serve = ["serve", SERVER, "disk.img", "--size", "32MiB"];
    start(lab, home, 0, &serve)
}

fn certificates(lab: &Lab, home: &Home) {
    let (ca, life) = (home.path("ca"), Duration::from_secs(86400));
    certificate::init(&ca, "test", life).expect("an authority");
    for (side, name) in ["server", "client"].into_iter().enumerate() {
        let addresses = [lab.address(side).to_string()];
        certificate::issue_into(&ca, name, &addresses, life, &home.path(name)).expect("issued");
    }
}

#[test]
fn a_file_system_over_a_lossy_network_with_the_server_killed_in_the_middle() {
    if let Err(why) = lab::possible() {
        return skipped(why);
    }
    if !have(&TOOLS) {
        return;
    }
    let home = home();
    let lab = Lab::new(Random::printed("weather")).expect("two hosts");
    certificates(&lab, &home);
    let mut running = server(&lab, &home);
    let proxy = [
        "proxy", "--server", SERVER, "--nbd", "unix:p", "--cache", "1MiB",
    ];
    let _proxy = start(&lab, &home, 1, &proxy);
    let export = format!("nbd+unix:///?socket={}", home.path("p").display());
    // Fine weather first.
    file_system_round_trip(&home, &export);
    lab.weather(Weather {
        loss_per_mille: 10,
        ..Weather::default()
    });
    // Bytes that cannot be left out, so that the kill meets them under way.
    let mut random = Random::printed("block net");
    random_file(&home.path("noise"), &mut random, 24 << 20);
    let begun = lab.frames().0;
    let mut copy = Command::new("nbdcopy");
    copy.args(["--flush", "noise", &export])
        .current_dir(home.path(""))
        .stdin(Stdio::null());
    let mut copy = Running::start(&mut copy);
    while lab.frames().0 < begun + 2000 {
        assert!(
            copy.0.try_wait().expect("waiting").is_none(),
            "done before the kill"
        );
        std::thread::yield_now();
    }
    running.kill();
    running = server(&lab, &home);
    copy.ends_well();
    // Read back over the network, and on the disk.
    let back = home.path("noise.back");
    run(Command::new("nbdcopy")
        .args([&export, "noise.back"])
        .current_dir(home.path("")));
    let (noise, back) = (std::fs::read(home.path("noise")), std::fs::read(back));
    let (noise, back) = (noise.expect("noise"), back.expect("read back"));
    assert!(noise == back[..noise.len()], "what was read back differs");
    // A file system works too, still in bad weather.
    file_system_round_trip(&home, &export);
    assert!(lab.frames().1 > 0, "no frame was lost");
    drop(running);
}
