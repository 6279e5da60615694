//! Quotas that go up and down, to 0 too, while files are sent and received. A program that has too little memory waits,
//! and every file arrives whole.

use tranship::admin::StatRecord;
use tranship::{Domain, ErrorKind};
use tranship_testkit::chaos::{alone, rounds};
use tranship_testkit::{Exit, Peer, Random, Watchdog, payload};

use crate::scene::Scene;
use crate::seat::{pass, patiently};

const FRAME: u64 = 256 << 10;

/// Returns nothing, less than a frame, a frame and a bit, or up to all.
fn quota(random: &mut Random, max_bytes: u64) -> u64 {
    match random.below(5) {
        0 => 0,
        1 => random.below(FRAME),
        2 => FRAME + random.below(FRAME),
        3 => random.below(max_bytes),
        _ => max_bytes,
    }
    .min(max_bytes)
}

/// Each pool that lives has another quota from now on; how many were set.
fn steer(admin: &Domain, random: &mut Random) -> usize {
    let all = admin.admin().stat().expect("stat");
    let pools = all.into_iter().filter_map(|record| match record {
        StatRecord::Pool(pool) if pool.writer_alive => Some((pool.pool, pool.max_bytes)),
        _ => None,
    });
    let mut set = 0;
    for (pool, max_bytes) in pools {
        match admin.admin().set_quota(pool, quota(random, max_bytes)) {
            Ok(_) => set += 1,
            // The pool has ended since.
            Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error}"),
        }
    }
    set
}

/// One file from beginning to end: how often a quota was set meanwhile.
fn transfer(scene: &Scene, admin: &Domain, number: u64, random: &mut Random) -> usize {
    let len = usize::try_from(1 + random.below(24 << 20)).unwrap_or(1);
    let content = payload::made(len, number, random.next());
    let [from, out] = ["in", "out"].map(|name| scene.audit.path(name));
    std::fs::write(&from, &content).expect("the file");
    // The file goes by reference, or is copied into a pool of the receiver's, which has a quota as well.
    let name = match number % 2 {
        0 => format!("file {number}"),
        _ => format!("copy:file-{}-{number}", std::process::id()),
    };
    let send = scene.tranship(&["send", &name, "--frame", &FRAME.to_string()]);
    let send = send.arg(from).capture_stderr().start().expect("send");
    let recv = scene.tranship(&["recv", &name]);
    let recv = recv.arg(&out).capture_stderr().start().expect("recv");
    let peers = [send, recv];
    let mut set = 0;
    while !peers.iter().all(Peer::has_ended) {
        set += steer(admin, random);
        pass(&peers, 1 + random.below(5));
    }
    for (peer, who) in peers.iter().zip(["send", "recv"]) {
        let exit = peer.wait();
        assert_eq!(exit, Exit::Code(0), "{who} {name}: {}", peer.stderr());
    }
    let came = std::fs::read(&out).expect("the file that came");
    assert!(came == content, "{name} is another file");
    std::fs::remove_file(&out).expect("the file that came");
    set
}

#[test]
fn quotas_go_up_and_down() {
    let _alone = alone();
    let dog = Watchdog::new();
    let scene = Scene::new("quotas_go_up_and_down");
    let mut random = Random::seeded(scene.random.seed());
    let mut manager = scene.manager();
    manager.start();
    let socket = scene.audit.path("m");
    let admin = || Domain::builder().name("admin").socket(&socket);
    let admin = patiently(|| admin().helper_thread(true).connect()).expect("a manager");
    let mut set = 0;
    for number in 0..rounds(12) as u64 {
        dog.step(format_args!("{number} files, {set} quotas"));
        set += transfer(&scene, &admin, number, &mut random);
        manager.check();
    }
    assert!(set > 0, "no quota was set");
    drop(admin);
    scene.ends(&mut manager, &["in"]);
}
