//! Messages without end.

use std::os::fd::AsFd;

use tranship_proto::{PoolId, Req, Request, encode};
use tranship_sys::socket;
use tranship_testkit::{Control, Peer, child};

use crate::stage::Stage;
use tranship_testkit::hostile::raw::Raw;

child!(
    fn dead(ctl: Control) {
        let raw = Raw::join("dead");
        ctl.send_fds(&(), &[raw.fd.as_fd()]).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn scribe(ctl: Control) {
        let ((), fds) = ctl.recv_fds::<()>().unwrap().unwrap();
        ctl.send(&()).unwrap();
        let nothing = encode(&Request::Ungrant {
            pool: PoolId(1),
            chunks: 1,
        });
        while socket::sendmsg(&fds[0], &nothing, &[], false).is_ok() {}
    }
);

#[test]
fn children_of_the_dead_go_on_writing() {
    let Some(stage) = Stage::new("") else { return };
    let dead = stage.attacker(dead(), 0);
    let ((), fds) = dead.recv_fds::<()>().unwrap();
    let scribes: Vec<Peer> = (0..3).map(|_| stage.attacker(scribe(), 0)).collect();
    for scribe in &scribes {
        scribe.send_fds(&(), &[fds[0].as_fd()]).unwrap();
        let () = scribe.expect();
    }
    stage.still_serving("three that write");
    dead.kill();
    stage.still_serving("the death");
    stage.until_forgotten(0);
}

child!(
    fn ends_badly(ctl: Control) {
        let raw = Raw::join("ends badly");
        ctl.send(&()).unwrap();
        let () = ctl.recv().unwrap().unwrap();
        let nothing = encode(&Request::Ungrant {
            pool: PoolId(1),
            chunks: 1,
        });
        // More messages than are handled at once, so that the end is seen before the last of them.
        for _ in 0..40 {
            socket::sendmsg(&raw.fd, &nothing, &[], false).unwrap();
        }
        socket::sendmsg(&raw.fd, &[0xff; 100], &[], false).unwrap();
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// A client that is thrown out for its last words is gone all the same.
#[test]
fn last_words_that_are_no_request() {
    let Some(stage) = Stage::new("") else { return };
    let attacker = stage.attacker(ends_badly(), 0);
    let () = attacker.expect();
    stage.manager.stop();
    let () = attacker.ask(&());
    attacker.kill();
    stage.manager.resume();
    stage.still_serving("last words");
    stage.until_forgotten(0);
}

child!(
    fn asker(ctl: Control) {
        // Many of them, each of which asks again before it has read anything, and never takes all.
        let all: Vec<Raw> = (0..32).map(|_| Raw::join("asker")).collect();
        ctl.send(&()).unwrap();
        let stat = encode(&Request::Stat { req: Req(1) });
        loop {
            for raw in &all {
                let _ = socket::sendmsg(&raw.fd, &stat, &[], true);
                let _ = socket::recvmsg(&raw.fd, &mut [0; 64], true);
            }
        }
    }
);

#[test]
fn questions_without_end() {
    let Some(stage) = Stage::new("") else { return };
    let askers: Vec<Peer> = (0..4).map(|n| stage.attacker(asker(), n % 2)).collect();
    for asker in &askers {
        let () = asker.expect();
    }
    for round in 0..5 {
        stage.still_serving(&format!("round {round}"));
    }
    drop(askers);
    stage.until_forgotten(0);
    stage.until_forgotten(1);
}
