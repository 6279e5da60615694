//! The limits per user id: each gives a refusal that names it, ends when something is given back, and leaves other
//! users alone.

use crate::common::*;
use std::path::PathBuf;
use tranship_manager::{Config, Embedded, Limits};
use tranship_proto::{Event, RefusalCode, Request, Role};
use tranship_region::layout::TableRw;
use tranship_ring::{HalfRw, Side};

struct Limited {
    _dog: Watchdog,
    _manager: Embedded,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

/// Makes limits of a manager that every user may reach.
fn limited(limits: Limits) -> Limited {
    use std::os::unix::fs::PermissionsExt;
    let dog = watchdog();
    let dir = tranship_testkit::folder().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = dir.path().join("m.sock");
    let config = Config {
        limits,
        socket_mode: Some(0o666),
        ..Config::default()
    };
    Limited {
        _dog: dog,
        _manager: Embedded::start(config, Some(&path)).unwrap(),
        path,
        _dir: dir,
    }
}

impl Limited {
    fn join(&self) -> Client {
        Client::join(&self.path, "one")
    }

    /// Joins as another user: the manager uses the credentials of the connect, which are a thread's own. Returns `None`
    /// if only one user is available.
    fn join_as_nobody(&self) -> Option<Client> {
        let become_nobody = || {
            let user = rustix::thread::Uid::from_raw(65534);
            let same = rustix::process::geteuid();
            rustix::thread::set_thread_res_uid(same, user, same).ok()
        };
        let other = std::thread::scope(|s| {
            let thread = s.spawn(|| become_nobody().map(|()| Client::join(&self.path, "other")));
            thread.join().unwrap()
        });
        if other.is_none() {
            tranship_testkit::skipped("in part: needs root, to be another user too");
        }
        other
    }
}

/// Asks for a pool; returns the refusal, if there is one.
fn make_pool(c: &mut Client) -> Option<RefusalCode> {
    let (fd, _table) = TableRw::create(SLOTS, CHUNK, CHUNK).unwrap();
    let r = c.ask_pool(tranship_proto::Trust::Producer, 1, &fd);
    answer(c, r)
}

fn export(c: &mut Client, name: &str) -> Option<RefusalCode> {
    let r = c.ask_export(name, Role::Source);
    answer(c, r)
}

/// Asks for a name and does not wait for the channel.
fn connect(c: &mut Client, name: &str, wait: bool) -> tranship_proto::Req {
    let half = HalfRw::create(Side::Sink, 16).unwrap();
    c.ask_connect(name, wait, &half.0)
}

/// Returns the refusal, if there is one by the time at which a later question is answered.
fn answer(c: &mut Client, wanted: tranship_proto::Req) -> Option<RefusalCode> {
    c.sync();
    c.inbox.iter().find_map(|(e, _)| match e {
        Event::Refused { req, refusal } if *req == wanted => Some(refusal.code),
        _ => None,
    })
}

const REFUSED: Option<RefusalCode> = Some(RefusalCode::Limit);

/// A domain can make no further pool before one is gone. Another user can.
fn is_full_until_destroyed(m: &Limited, c: &mut Client, first: &Pool) {
    assert_eq!(make_pool(c), REFUSED);
    let mut other = m.join_as_nobody();
    assert!(other.as_mut().is_none_or(|c| make_pool(c).is_none()));
    c.send(&Request::DestroyPool { pool: first.id }, &[]);
    assert_eq!(make_pool(c), None);
}

#[test]
fn connections() {
    let m = limited(Limits {
        connections: 2,
        ..Limits::default()
    });
    let (mut a, mut b) = (m.join(), m.join());
    assert_eq!(Client::raw(&m.path).expelled(), REFUSED);
    let other = m.join_as_nobody();
    // A hang-up is not a death: its process lives, so its domain still counts.
    drop(b);
    while a.sync().iter().any(|r| {
        matches!(r, tranship_proto::StatRecord::Domain(d) if d.domain != a.domain
            && d.connected && other.as_ref().is_none_or(|o| o.domain != d.domain))
    }) {}
    assert_eq!(Client::raw(&m.path).expelled(), REFUSED);
    // A goodbye is.
    b = a;
    b.send(&Request::Goodbye, &[]);
    assert_eq!(b.expelled(), None);
    m.join().sync();
}

#[test]
fn pools() {
    let m = limited(Limits {
        pools: 2,
        ..Limits::default()
    });
    let (mut a, mut b) = (m.join(), m.join());
    let first = a.create_pool(1);
    assert_eq!(make_pool(&mut b), None);
    assert_eq!(make_pool(&mut b), REFUSED, "the user's, not the domain's");
    is_full_until_destroyed(&m, &mut a, &first);
}

#[test]
fn names_that_are_exported_and_names_that_are_waited_for() {
    let m = limited(Limits {
        names: 2,
        ..Limits::default()
    });
    let (mut a, mut b) = (m.join(), m.join());
    assert_eq!(export(&mut a, "x"), None);
    let waits = connect(&mut b, "y", true);
    b.sync();
    assert_eq!(export(&mut a, "z"), REFUSED);
    let again = connect(&mut b, "z", true);
    assert_eq!(answer(&mut b, again), REFUSED);
    assert!(
        m.join_as_nobody()
            .is_none_or(|mut c| export(&mut c, "o").is_none())
    );
    b.send(&Request::CancelConnect { req: waits }, &[]);
    b.sync();
    assert_eq!(export(&mut a, "z"), None);
}

#[test]
fn channel_ends() {
    let m = limited(Limits {
        channels: 4,
        ..Limits::default()
    });
    let (mut a, mut b) = (m.join(), m.join());
    let first = open_channel(&mut a, &mut b, "x");
    open_channel(&mut a, &mut b, "y");
    let third = connect(&mut b, "x", false);
    assert_eq!(answer(&mut b, third), REFUSED);
    if let Some(mut other) = m.join_as_nobody() {
        connect(&mut other, "x", false);
        a.wait(|e| matches!(e, Event::Incoming { .. }).then_some(()));
    }
    for c in [&a, &b] {
        c.send(&Request::CloseChannel { channel: first.id }, &[]);
    }
    a.sync();
    b.sync();
    connect(&mut b, "y", false);
    a.wait(|e| matches!(e, Event::Incoming { .. }).then_some(()));
}

#[test]
fn descriptors() {
    // Each domain has three descriptors (its connection, its process and its control page), each pool one.
    let m = limited(Limits {
        descriptors: 9,
        ..Limits::default()
    });
    let (mut a, mut b) = (m.join(), m.join());
    let first = a.create_pool(1);
    b.create_pool(1);
    b.create_pool(1);
    is_full_until_destroyed(&m, &mut a, &first);
}

#[test]
fn quotas_are_set_by_the_managers_own_user_and_no_other() {
    let m = limited(Limits::default());
    let (mut own, Some(mut other)) = (m.join(), m.join_as_nobody()) else {
        return;
    };
    let set = |c: &mut Client, pool, quota_bytes| {
        let req = c.req();
        let request = Request::SetQuota {
            req,
            pool,
            quota_bytes,
        };
        c.send(&request, &[]);
        c.wait(|e| match e {
            Event::QuotaSet {
                req: r,
                quota_bytes,
            } if *r == req => Some(Ok(*quota_bytes)),
            Event::Refused { req: r, refusal } if *r == req => Some(Err(refusal.code)),
            _ => None,
        })
        .0
    };
    let (mine, theirs) = (own.create_pool(4), other.create_pool(4));
    // Not even its own pool's quota.
    for pool in [mine.id, theirs.id] {
        assert_eq!(set(&mut other, pool, CHUNK), Err(RefusalCode::Access));
    }
    assert_eq!(other.grant(theirs.id, 2), Ok(2));
    assert_eq!(set(&mut own, theirs.id, 3 * CHUNK), Ok(3 * CHUNK));
    assert_eq!(other.grant(theirs.id, 2), Ok(1));
    assert_eq!(other.grant(theirs.id, 1), Err(RefusalCode::Quota));
}
