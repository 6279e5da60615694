//! Messages, and connections, without end.

use std::os::fd::AsFd;

use tranship_proto::{PoolId, Req, Request, encode};
use tranship_sys::socket;

use crate::hostile::Attacker;
use crate::hostile::raw::{Raw, path};
use crate::{Control, child};

/// Messages of a burst.
const MANY: usize = 2000;

/// Connections each of which asks again before it has read anything, and never takes all.
pub(super) fn questions(attacker: &mut Attacker) {
    let all: Vec<Raw> = (0..8).map(|_| Raw::join("asks")).collect();
    let stat = encode(&Request::Stat { req: Req(1) });
    for raw in all.iter().cycle().take(MANY) {
        let _ = socket::sendmsg(&raw.fd, &stat, &[], true);
        let _ = socket::recvmsg(&raw.fd, &mut [0; 64], true);
    }
    attacker.keep(all);
}

child!(
    fn dead(ctl: Control) {
        let raw = Raw::join("dead");
        let _ = ctl.send_fds(&(), &[raw.fd.as_fd()]);
        let _ = ctl.recv::<()>();
    }
);

/// A process that has a dead domain's socket goes on writing into it.
pub(super) fn children_of_the_dead(_: &mut Attacker) {
    let dead = dead().start().unwrap();
    let ((), fds) = dead.recv_fds::<()>().unwrap();
    let nothing = encode(&Request::Ungrant {
        pool: PoolId(1),
        chunks: 1,
    });
    for n in 0..MANY {
        if n == MANY / 4 {
            dead.kill();
        }
        let _ = socket::sendmsg(&fds[0], &nothing, &[], true);
    }
}

/// Connections that say nothing.
pub(super) fn silent_connections(attacker: &mut Attacker) {
    let all: Vec<_> = (0..64)
        .filter_map(|_| socket::connect_now(&path()).ok())
        .collect();
    attacker.keep(all);
}

/// Domains that come and go.
pub(super) fn comings_and_goings(_: &mut Attacker) {
    for _ in 0..64 {
        drop(Raw::try_join("passes by"));
    }
}
