//! Two containers that share nothing but the directory of the manager's socket exchange buffers; each one's memory
//! is charged to its own cgroup.

use std::os::unix::fs::PermissionsExt;

use tranship_core::{Body, Domain, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_manager::Config;
use tranship_testkit::{Cgroup, Container, Control, Exit, Watchdog, child, payload, skipped};

const SOCKET: &str = "/run/tranship/manager.sock";
const FRAME: usize = 1 << 20;
const FRAMES: u64 = 48;
const ANSWERS: u64 = 8;

fn namespace(kind: &str) -> String {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
    link.to_string_lossy().into_owned()
}

type Met = (u32, u32, u32, String);

// Sends frames, takes answers, holds everything until told to end.
child!(
    fn left(ctl: Control) {
        let domain = Domain::builder()
            .name("left")
            .socket(SOCKET)
            .connect()
            .unwrap();
        let pool = domain
            .create_pool(PoolOptions::new(64 << 20).name("left"))
            .unwrap();
        let mut sender = domain.open::<Sender>("there").unwrap();
        let mut held = Vec::new();
        for id in 0..FRAMES {
            let mut buf = pool.alloc(FRAME).unwrap();
            payload::fill(&mut buf, id, 1);
            let buf = buf.freeze();
            sender.send((buf.clone(), id)).unwrap();
            held.push(buf);
        }
        let mut answers = domain.open::<Receiver>("back").unwrap();
        let mut kept = Vec::new();
        for id in 0..ANSWERS {
            let message = answers.recv().unwrap();
            payload::verify(&message.to_vec(), 1000 + id).unwrap();
            kept.push(message);
        }
        let status = sender.status();
        let (pid, uid) = (status.peer_pid, status.peer_uid);
        let met: Met = (std::process::id(), pid, uid, namespace("pid"));
        ctl.send(&met).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn right(ctl: Control) {
        let domain = Domain::builder()
            .name("right")
            .socket(SOCKET)
            .connect()
            .unwrap();
        let inward = domain.listen::<Receiver>("there").unwrap();
        let outward = domain.listen::<Sender>("back").unwrap();
        let mut receiver = inward.accept().unwrap();
        let mut held = Vec::new();
        for id in 0..FRAMES {
            let message = receiver.recv().unwrap();
            assert_eq!(message.word, id);
            payload::verify(&message.to_vec(), id).unwrap();
            if id % 4 == 0 {
                held.push(message);
            }
        }
        let pool = domain
            .create_pool(PoolOptions::new(16 << 20).name("right"))
            .unwrap();
        let mut sender = outward.accept().unwrap();
        for id in 0..ANSWERS {
            let mut buf = pool.alloc(FRAME).unwrap();
            payload::fill(&mut buf, 1000 + id, 1);
            sender.send(buf.freeze()).unwrap();
        }
        let status = receiver.status();
        let (pid, uid) = (status.peer_pid, status.peer_uid);
        let met: Met = (std::process::id(), pid, uid, namespace("pid"));
        ctl.send(&met).unwrap();
        // The other container dies as a whole: its sent buffers stay readable, the link ends.
        assert_eq!(receiver.recv().unwrap_err().kind(), ErrorKind::PeerDied);
        for message in &held {
            assert!(matches!(message.body, Body::Buffer(_)));
            payload::verify(&message.to_vec(), message.word).unwrap();
        }
        ctl.send(&held.len()).unwrap();
    }
);

fn exchange(container: &Container, uid: u32) {
    let dir = tranship_testkit::folder().expect("dir");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("mode");
    let config = Config {
        socket_mode: Some(0o777),
        ..Config::default()
    };
    let manager = Domain::builder().name("manager").config(config);
    let manager = manager.socket(dir.path().join("manager.sock"));
    let _manager = manager.embedded().expect("embedded");
    let groups = match (Cgroup::new("left"), Cgroup::new("right")) {
        (Ok(l), Ok(r)) => Some((l, r)),
        (Err(e), _) | (_, Err(e)) => {
            skipped(format!("charging: {e}"));
            None
        }
    };
    let container = container.clone().share(dir.path(), "/run/tranship");
    let start = |launch: tranship_testkit::Launch, group: Option<&Cgroup>| {
        let launch = launch.container(container.clone()).capture_stderr();
        let launch = match group {
            Some(group) => launch.cgroup(group),
            None => launch,
        };
        launch.start().expect("start")
    };
    let r = start(right(), groups.as_ref().map(|g| &g.1));
    let l = start(left(), groups.as_ref().map(|g| &g.0));
    let (l_inside, l_peer, l_uid, l_ns): Met = l.expect();
    let (r_inside, r_peer, r_uid, r_ns): Met = r.expect();

    // Each is process 1 of a namespace of its own; peers are told the numbers that the manager sees.
    assert_eq!((l_inside, r_inside), (1, 1));
    assert!(l_ns != r_ns && l_ns != namespace("pid"));
    assert_eq!((l_peer, r_peer), (r.pid(), l.pid()));
    assert_eq!((l_uid, r_uid), (uid, uid));

    if let Some((left, right)) = &groups {
        let (left, right) = (left.usage().expect("usage"), right.usage().expect("usage"));
        let mib = 1 << 20;
        assert!(
            left >= FRAMES * mib,
            "the writer of {FRAMES} MiB is charged {left} B"
        );
        assert!(
            (ANSWERS * mib..FRAMES * mib / 2).contains(&right),
            "who reads them and wrote {ANSWERS} MiB is charged {right} B"
        );
    }
    assert_eq!(l.kill(), Exit::Signal(libc::SIGKILL));
    assert_eq!(r.expect::<u64>(), FRAMES / 4);
    assert_eq!(r.wait(), Exit::Code(0), "{}", r.stderr());
}

#[test]
fn two_containers_exchange_buffers() {
    let _dog = Watchdog::new();
    if let Some(reason) = Container::impossible() {
        return skipped(reason);
    }
    exchange(&Container::new(), 100_000);
}

#[test]
fn two_containers_that_share_users_exchange_buffers() {
    let _dog = Watchdog::new();
    if let Some(reason) = Container::impossible() {
        return skipped(reason);
    }
    exchange(&Container::new().without_users(), 0);
}
