//! Descriptors whose being closed, or looked at, takes as long as their sender likes.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;

use tranship_proto::{PoolId, Req, Request};
use tranship_testkit::{Control, child, fuse, skipped};

use crate::stage::Stage;
use tranship_testkit::hostile::raw::Raw;

/// A TCP socket whose last close waits for an hour: bytes that its peer does not take, and SO_LINGER.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    let hour = std::time::Duration::from_secs(3600);
    rustix::net::sockopt::set_socket_linger(&stream, Some(hour)).unwrap();
    (stream, peer)
}

child!(
    fn lingers(ctl: Control) {
        let mut kept = Vec::new();
        while let Some(surplus) = ctl.recv::<bool>().unwrap() {
            let (stream, peer) = lingering();
            let raw = Raw::join("lingers");
            ctl.send(&()).unwrap();
            let () = ctl.recv().unwrap().unwrap();
            raw.send(&request(surplus), &[stream.as_fd()]);
            drop(stream);
            kept.push((raw, peer));
            ctl.send(&()).unwrap();
        }
    }
);

fn request(surplus: bool) -> Request {
    if surplus {
        return Request::Stat { req: Req(1) };
    }
    Request::ShowChunks {
        req: Req(1),
        pool: PoolId(1),
        chunks: vec![(0, 1)],
        least: 1,
    }
}

#[test]
fn a_socket_that_lingers() {
    let Some(stage) = Stage::new("") else { return };
    let attacker = stage.attacker(lingers(), 0);
    for surplus in [true, false, true] {
        let () = attacker.ask(&surplus);
        // So that the manager gets the last descriptor, and not the attacker itself.
        stage.manager.stop();
        let () = attacker.ask(&());
        stage.manager.resume();
        stage.still_serving(if surplus { "a surplus" } else { "a wrong one" });
    }
}

child!(
    fn sends_a_file(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let mut kept = Vec::new();
        while let Some(surplus) = ctl.recv::<bool>().unwrap() {
            let file = std::fs::File::open(&path).unwrap();
            // Whatever its fate: the client may be cut off, or wait because it keeps all helpers waiting itself.
            if let Ok(raw) = Raw::try_join("silent") {
                let _ = raw.try_send(&request(surplus), &[file.as_fd()]);
                kept.push((raw, file));
            }
            ctl.send(&()).unwrap();
        }
        // Closing the file would wait as well.
        std::process::exit(0);
    }
);

#[test]
fn a_file_that_nobody_answers_for() {
    if let Err(why) = fuse::possible() {
        return skipped(why);
    }
    let Some(stage) = Stage::new("") else { return };
    let file = fuse::Silent::new().unwrap();
    let attackers = [0, 1].map(|which| {
        let attacker = stage.attacker(sends_a_file(), which);
        attacker.send(file.path()).unwrap();
        attacker
    });
    for attacker in &attackers {
        attacker.send(&true).unwrap();
        let () = attacker.expect();
        file.wait_for(fuse::FLUSH);
        stage.still_serving("a surplus");
    }
    // More than may wait for one user.
    for (n, attacker) in attackers.iter().cycle().take(8).enumerate() {
        attacker.send(&(n % 4 < 2)).unwrap();
        stage.still_serving("more of them");
    }
    let waiting = stage.helpers();
    // The threads that waited go on.
    drop(file);
    drop(attackers);
    stage.until_forgotten(0);
    stage.until_forgotten(1);
    while stage.helpers().len() >= waiting.len() {
        std::thread::yield_now();
    }
}

#[test]
fn helpers_that_are_killed() {
    let Some(stage) = Stage::new("") else { return };
    for round in 0..3 {
        // The one that starts the others, and they.
        for pid in stage.helpers() {
            tranship_sys::process::kill(pid, libc::SIGKILL).unwrap();
        }
        stage.still_serving(&format!("round {round}"));
    }
}

/// The kernel lets no descriptors into a connection that has said nothing, so a domain that joins waits for no helper.
#[test]
fn helpers_that_stand_still_keep_nobody_from_joining() {
    let Some(stage) = Stage::new("") else { return };
    let (near, _far) = tranship_sys::socket::pair().unwrap();
    if !tranship_sys::socket::pass_rights(&near, false).unwrap() {
        return skipped("a kernel without SO_PASSRIGHTS");
    }
    let attacker = stage.attacker(joins(), 0);
    for pid in stage.helpers() {
        tranship_sys::process::kill(pid, libc::SIGSTOP).unwrap();
    }
    let () = attacker.ask(&());
    for pid in stage.helpers() {
        tranship_sys::process::kill(pid, libc::SIGCONT).unwrap();
    }
    stage.still_serving("they go on");
}

child!(
    fn joins(ctl: Control) {
        while let Some(()) = ctl.recv().unwrap() {
            let _raw = Raw::join("joins");
            ctl.send(&()).unwrap();
        }
    }
);
