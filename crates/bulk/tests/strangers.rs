//! Strangers at a name of `shm:`: a manager, who offers the name, who binds it honestly and an attacker, of three users.

#[path = "../../testkit/tests/strangers/stage.rs"]
mod stage;

use stage::{Actor, Stage, join};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranship_bulk::raw::{Event, Raw};
use tranship_bulk::{Constraints, Direction, Role, Trust, Wish};
use tranship_core::PeerSocket;
use tranship_ring::{HalfRw, Side};
use tranship_sys::epoll::wait_readable;
use tranship_sys::socket;
use tranship_testkit::{Control, child, fuse};

/// Of a ring of `shm:`.
const LINES: u32 = 2048;
/// The longest single wait.
const ROUND: Duration = Duration::from_millis(5);

fn wish() -> Wish {
    Wish {
        role: Role::Generic,
        trust: Trust::None,
        constraints: Constraints::default(),
    }
}

// Lets in one after the other, for ever.
child!(
    fn offers(ctl: Control) {
        let domain = join("offers");
        let mut open = Vec::new();
        loop {
            let raw = Raw::over(&domain).unwrap();
            let end = raw.create("shm:door", Direction::Sink, wish(), 0, None);
            let end = end.unwrap();
            ctl.send(&()).unwrap();
            loop {
                if let Ok(true) = raw.turn(end)
                    && let Some(Event::Bound(Ok(_))) = raw.poll_event(end)
                {
                    break;
                }
                std::thread::yield_now();
            }
            open.push((raw, end));
        }
    }
);

child!(
    fn binds(ctl: Control) {
        let domain = join("binds");
        let raw = Raw::over(&domain).unwrap();
        let (end, bound) = raw.bind("shm:door", wish(), None).unwrap();
        while bound.result().is_none() {
            raw.turn(end).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(bound.result(), Some(Ok(())));
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// Somebody binds, and the name is offered again.
fn binds_once(stage: &Stage, door: &Actor) {
    stage.honest(binds()).expect::<()>();
    door.expect::<()>();
}

child!(
    fn says_nothing(ctl: Control) {
        let domain = join("taker");
        let silent = [(); 10].map(|()| domain.connect_socket("door").unwrap());
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
        drop(silent);
    }
);

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let door = stage.honest(offers());
    door.expect::<()>();
    let taker = stage.stranger(says_nothing());
    taker.expect::<()>();
    binds_once(&stage, &door);
}

/// Waits a moment for a message or the end, and throws the message away.
fn hear(door: &PeerSocket) {
    wait_readable(&door.socket, Some(ROUND)).unwrap();
    socket::discard(&door.socket, 1);
}

/// Shows what a link is made of, as who binds does, and does not bind.
fn half_a_link(domain: &tranship_core::Domain) -> PeerSocket {
    let door = domain.connect_socket("door").unwrap();
    let (memory, half) = HalfRw::create(Side::Sink, LINES).unwrap();
    let said = socket::sendmsg(&door.socket, b"L", &[memory.as_fd()], true);
    said.unwrap();
    std::mem::forget(half);
    door
}

child!(
    fn begins_and_says_no_more(ctl: Control) {
        let domain = join("taker");
        while let Some(again) = ctl.recv::<bool>().unwrap() {
            let silent = [(); 12].map(|()| half_a_link(&domain));
            let over = || {
                silent
                    .iter()
                    .filter(|one| socket::is_over(&one.socket))
                    .count()
            };
            // Of one user a few may wait, and those not for ever.
            let until = if again { 12 } else { 0 };
            while over() < until {
                silent.iter().for_each(hear);
            }
            ctl.send(&over()).unwrap();
            // They stay as long as this process.
            std::mem::forget(silent);
        }
    }
);

#[test]
fn who_begins_and_says_no_more_keeps_nobody_out() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let door = stage.honest(offers());
    door.expect::<()>();
    let taker = stage.stranger(begins_and_says_no_more());
    taker.ask::<usize>(&false);
    binds_once(&stage, &door);
    assert_eq!(taker.ask::<usize>(&true), 12);
    binds_once(&stage, &door);
}

/// A socket that lingers: with bytes that nobody will ever take, and an hour to wait for that.
fn lingering(listener: &TcpListener) -> (OwnedFd, TcpStream) {
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 1 << 16]).is_ok() {}
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&near, hour).unwrap();
    (near.into(), far)
}

/// What never closes.
fn open(file: &Path) -> OwnedFd {
    std::fs::File::options()
        .read(true)
        .open(file)
        .unwrap()
        .into()
}

/// Says it, and has these open no more if they are to `linger` with who takes them.
fn say(to: &PeerSocket, bytes: &[u8], fds: Vec<OwnedFd>, linger: bool) {
    let all: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    // Who has been thrown out already is content.
    let said = socket::sendmsg(&to.socket, bytes, &all, false);
    if said.is_err() || !linger {
        std::mem::forget(fds);
    } else {
        // Who took them may have closed them already: then this waits.
        std::thread::spawn(move || drop(fds));
    }
}

child!(
    fn sends_what_never_closes(ctl: Control) {
        let (file, how): (PathBuf, usize) = ctl.recv().unwrap().unwrap();
        let domain = join("taker");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut kept = Vec::new();
        let mut met = Vec::new();
        for _ in 0..6 {
            let door = domain.connect_socket("door").unwrap();
            match how {
                // As what is expected first,
                0 => say(&door, b"L", vec![open(&file)], false),
                1 => {
                    let (near, far) = lingering(&listener);
                    say(&door, b"L", vec![near], true);
                    kept.push(far);
                }
                // in greater number than anybody expects,
                2 => say(&door, b"L", (0..16).map(|_| open(&file)).collect(), false),
                // or unread by who has had enough of us already.
                _ => {
                    say(&door, b"nothing like it", Vec::new(), true);
                    say(&door, b"", Vec::new(), true);
                    let (near, far) = lingering(&listener);
                    say(&door, b"", vec![near], true);
                    kept.push(far);
                }
            }
            met.push(door);
        }
        // Until they have been taken.
        for door in &met {
            while !socket::is_over(&door.socket) {
                hear(door);
            }
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
        std::process::abort();
    }
);

#[test]
fn what_never_closes_keeps_nobody_waiting() {
    for how in 0..4 {
        let Some(stage) = Stage::new() else {
            return;
        };
        let door = stage.honest(offers());
        door.expect::<()>();
        let taker = stage.stranger(sends_what_never_closes());
        taker.send(&(stage.file.path(), how)).unwrap();
        if how != 1 && how != 3 {
            stage.file.wait_for(fuse::FLUSH);
        }
        taker.expect::<()>();
        for _ in 0..2 {
            binds_once(&stage, &door);
        }
        // Sockets that linger are let go after a while.
        let helpers = children(door.pid());
        assert!(helpers <= 4 || how % 2 == 1, "way {how}: {helpers} helpers");
        // It has none of it open itself.
        door.kill();
    }
}

fn children(of: u32) -> usize {
    let tasks = format!("/proc/{of}/task/{of}/children");
    let list = std::fs::read_to_string(tasks).unwrap();
    list.split_whitespace().count()
}
