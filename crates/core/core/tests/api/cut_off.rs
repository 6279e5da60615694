//! A domain that is locked down after it has joined keeps its channels when the manager is gone. It is told that
//! nothing new comes.

use crate::kit::*;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tranship_core::error::{Barrier, Limit, RefusalCode};
use tranship_core::{Domain, Error, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Embedded, Rule, Who};
use tranship_testkit::{Control, child, is_root, skipped};

/// More chunks than any queue to a reader holds.
const MANY: usize = 900;

/// No new socket, or, where 0, another root directory.
fn lock_down(errno: i32) {
    if errno == 0 {
        let dir = tranship_testkit::folder().expect("a folder");
        rustix::process::chroot(dir.path()).expect("chroot");
        std::env::set_current_dir("/").expect("chdir");
        std::mem::forget(dir); // its file is not there any more
        return;
    }
    let rules = BTreeMap::from([
        (libc::SYS_socket, Vec::new()),
        (libc::SYS_connect, Vec::new()),
    ]);
    let no = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("a processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, no, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter_all_threads(&program).expect("seccomp");
}

fn cut_off(domain: &Domain, what: &str, error: &Error) {
    let barrier = domain.admin().cut_off();
    assert!(error.find() == barrier.as_ref(), "{what}: {error}");
    assert_eq!(error.kind(), ErrorKind::CutOff, "{what}");
}

child!(
    fn confined(ctl: Control) {
        let (path, errno): (PathBuf, i32) = ctl.recv().unwrap().unwrap();
        let domain = bare(&path, "confined");
        let pool = pool(&domain, 2);
        let mut receiver = domain.open::<Receiver>("frames").unwrap();
        assert_eq!(receiver.recv().unwrap().word, 1);
        lock_down(errno);
        let barrier = match errno {
            0 => Barrier::OtherRoot,
            errno => Barrier::Denied { errno },
        };
        ctl.send(&()).unwrap();
        let _it_is_gone: () = ctl.recv().unwrap().unwrap();
        // What it was shown arrives; what it was not shown is said not to, however it is asked for.
        assert_eq!(receiver.recv().unwrap().word, 2);
        let never = |error: &Error| {
            assert!(error.find() == Some(&barrier), "{error}");
            assert_eq!(error.kind(), ErrorKind::ChunkPending);
        };
        never(&receiver.recv().unwrap_err());
        assert_eq!(domain.admin().cut_off(), Some(barrier));
        assert_eq!(first_ready(&mut [&mut receiver], None), Some(0));
        never(&receiver.try_recv().unwrap_err());
        let late = receiver.recv_timeout(std::time::Duration::from_secs(1000));
        never(&late.unwrap_err());
        // Nor does anything else that needs a manager; the rest goes on.
        domain.turn().unwrap();
        assert!(!domain.admin().is_managed());
        let options = PoolOptions::new(1 << 20);
        for (what, done) in [
            ("pool", domain.create_pool(options).map(drop)),
            ("open", domain.open::<Receiver>("others").map(drop)),
            ("listen", domain.listen::<Receiver>("mine").map(drop)),
            ("stat", domain.admin().stat().map(drop)),
        ] {
            cut_off(&domain, what, &done.unwrap_err());
        }
        let error = pool.alloc_now(2 * CHUNK).unwrap_err();
        assert_eq!(short(&error), Some(Limit::CutOff), "{error}");
        ctl.send(&()).unwrap();
    }
);

#[test]
fn who_is_locked_down_is_told_that_nothing_new_comes() {
    let dog = dog();
    for errno in [libc::EPERM, libc::EAFNOSUPPORT, 0] {
        dog.step(errno);
        if errno == 0 && !is_root() {
            return skipped("another root directory is root's to choose");
        }
        let (_dir, path) = place();
        let manager = a_manager(&path);
        let writer = bare(&path, "writer");
        let pool = pool(&writer, MANY + 3);
        let listener = writer.listen::<Sender>("frames").expect("listen");
        let confined = confined().start().expect("a child");
        confined.send(&(&path, errno)).expect("send");
        let mut sender = listener.accept().expect("accept");
        let early = filled(&pool, CHUNK, 2);
        sender.send((filled(&pool, CHUNK, 1), 1)).expect("send");
        confined.expect::<()>();
        // It does not read while the pool grows beyond what the manager can tell it.
        let held: Vec<_> = (0..MANY).map(|_| filled(&pool, CHUNK, 3)).collect();
        drop(manager);
        sender.send((early, 2)).expect("what it has goes on");
        let youngest = held.last().expect("many").clone();
        sender.send((youngest, 3)).expect("send");
        confined.ask::<()>(&());
    }
}

#[test]
fn whom_the_next_manager_refuses_is_told_so_until_one_does_not() {
    let _dog = dog();
    let (_dir, path) = place();
    let start = |config| Embedded::start(config, Some(&path)).expect("a manager");
    let manager = start(Config::default());
    let domain = bare(&path, "unwanted");
    drop(manager);
    let nobody = Rule {
        uid: Who::All,
        gid: Who::All,
        name: None,
        allow: false,
    };
    let manager = start(Config {
        connect: vec![nobody],
        ..Config::default()
    });
    let options = PoolOptions::new(1 << 20);
    let error = domain.create_pool(options.clone()).expect_err("unwanted");
    cut_off(&domain, "pool", &error);
    let barrier = domain.admin().cut_off();
    assert!(
        matches!(barrier, Some(Barrier::Refused(refusal)) if refusal.code == RefusalCode::Access),
        "{barrier:?}"
    );
    drop(manager);
    let _manager = start(Config::default());
    until(|| domain.turn().is_ok() && domain.admin().is_managed());
    assert_eq!(domain.admin().cut_off(), None);
    domain.create_pool(options).expect("wanted again");
}
