//! A process that has as many descriptors as it may when the manager sends it some.

use crate::kit::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::PathBuf;
use tranship_core::ErrorKind;
use tranship_core::error::Limit;
use tranship_manager::{Config, Embedded, Forward};
use tranship_testkit::{Control, child};

const BUFFER: usize = 16 * KIB;

/// Does something with room for so many more descriptors.
fn with_room_for<T>(descriptors: u64, what: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    // The kernel gives the lowest numbers that are free, all below this one when those here are taken.
    let plugs: Vec<_> = (0..descriptors)
        .map(|_| std::fs::File::open("/dev/null").expect("/dev/null"))
        .collect();
    let open = std::fs::read_dir("/proc/self/fd").expect("/proc").count() as u64;
    let mut low: Vec<_> = Vec::new();
    // Fills the holes below the limit.
    let limit = Rlimit {
        current: Some(open + 64),
        maximum: before.maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("setrlimit");
    while let Ok(file) = std::fs::File::open("/dev/null") {
        low.push(file);
    }
    drop(plugs);
    let done = what();
    drop(low);
    setrlimit(Resource::Nofile, before).expect("setrlimit");
    done
}

child!(
    /// A writer, a forwarder and a reader. The manager tells the writer of them when it has no room for the reader's
    /// counters; then the manager dies. In a process of its own, because the limit is the process's.
    fn scene(ctl: Control) {
        let room: u64 = ctl.recv().unwrap().unwrap();
        let (_dir, path) = place();
        let config = Config {
            forward: Forward::Readers,
            ..Config::default()
        };
        let manager = Embedded::start(config.clone(), Some(&path)).unwrap();
        let writer = bare(&path, "writer");
        let forwarder = bare(&path, "forwarder");
        let reader = bare(&path, "reader");
        let pool = pool(&writer, 1);
        let (mut first, mut inward) = link(&writer, &forwarder, "x");
        let (mut outward, mut last) = link(&forwarder, &reader, "y");
        let got = std::thread::scope(|s| {
            let sent = s.spawn(|| first.send(filled(&pool, BUFFER, 1)).unwrap());
            let got = buf(inward.recv().unwrap());
            sent.join().unwrap();
            got
        });
        // The writer looks the other way from here on, so what concerns it stays in its socket.
        let held = std::thread::scope(|s| {
            s.spawn(|| outward.send(got).unwrap());
            buf(last.recv().unwrap())
        });
        drop(manager);
        with_room_for(room, || {
            let error = writer.turn().unwrap_err();
            assert_eq!(error.errno(), libc::EMFILE, "{error}");
            assert_eq!(error.kind(), ErrorKind::System);
        });
        let all_but_the_held = || {
            let mut all: Vec<_> = std::iter::from_fn(|| pool.alloc_now(BUFFER).ok()).collect();
            all.iter_mut().for_each(|buf| buf.fill(9));
            assert_eq!(all.len(), 3);
            assert_eq!(held.to_vec(), [1; BUFFER], "reused while somebody reads it");
        };
        // Without a manager, and with one that only the writer has come back to.
        until(|| !writer.admin().is_managed() || writer.turn().is_err());
        all_but_the_held();
        let manager = Embedded::start(config, Some(&path)).unwrap();
        until(|| {
            let _ = writer.turn();
            writer.admin().is_managed()
        });
        for _ in 0..100 {
            let _ = writer.turn();
            all_but_the_held();
        }
        // And in the end nothing is lost.
        let mut held = Some(held);
        until(|| {
            let _ = (writer.turn(), forwarder.turn(), reader.turn());
            if reader.admin().is_managed() {
                held = None;
            }
            let all: Vec<_> = (0..4).map(|_| pool.alloc_now(BUFFER)).collect();
            all.iter().all(Result::is_ok)
        });
        drop((inward, first, last, outward, manager));
        ctl.send(&()).unwrap();
    }
);

#[test]
fn the_reader_set_waits_for_room() {
    let _dog = dog();
    for room in 0..3 {
        let child = scene().start().expect("a child");
        child.send(&room).expect("a child that listens");
        child.expect::<()>();
    }
}

child!(
    /// A process that may have no more descriptors asks for memory.
    fn asking(ctl: Control) {
        let a = embedded();
        let pool = pool(&a, 2);
        let error = with_room_for(0, || pool.alloc_now(BUFFER)).unwrap_err();
        let limit = Limit::Kernel {
            step: "memfd_create",
            errno: libc::EMFILE,
        };
        assert_eq!(short(&error), Some(limit), "{error}");
        assert!(error.to_string().contains("Too many open files"), "{error}");
        pool.alloc_now(BUFFER).unwrap();
        ctl.send(&()).unwrap();
    }
);

#[test]
fn what_the_kernel_said_is_in_the_error() {
    let _dog = dog();
    asking().start().expect("a child").expect::<()>();
}

child!(
    /// A process that comes back to a manager with hardly any room.
    fn returning(ctl: Control) {
        let (path, room): (PathBuf, u64) = ctl.recv().unwrap().unwrap();
        let (writer, reader) = (bare(&path, "writer"), bare(&path, "reader"));
        let pool = pool(&writer, 8);
        let (mut sender, mut receiver) = link(&writer, &reader, "x");
        let held = std::thread::scope(|s| {
            let sent = s.spawn(|| {
                for i in 0..8 {
                    sender.send(filled(&pool, CHUNK, i)).unwrap();
                }
            });
            let held: Vec<_> = (0..8).map(|_| buf(receiver.recv().unwrap())).collect();
            sent.join().unwrap();
            held
        });
        ctl.send(&()).unwrap();
        let _another: () = ctl.recv().unwrap().unwrap();
        with_room_for(room, || {
            for _ in 0..20 {
                let _ = (writer.turn(), reader.turn());
                std::thread::yield_now();
            }
        });
        until(|| {
            let _ = (writer.turn(), reader.turn());
            writer.admin().is_managed() && reader.admin().is_managed()
        });
        // Whatever the manager makes of the claims it has said by then.
        for _ in 0..3 {
            until(|| writer.admin().stat().is_ok() && reader.admin().stat().is_ok());
        }
        for (i, held) in (0..).zip(&held) {
            assert_eq!(held.to_vec(), [i; CHUNK], "a chunk in use was given up");
        }
        ctl.send(&()).unwrap();
    }
);

#[test]
fn who_comes_back_without_room_keeps_what_it_has() {
    let _dog = dog();
    for room in [0, 1, 2, 3, 5, 8] {
        // Here, for a manager has room.
        let (_dir, path) = place();
        let manager = a_manager(&path);
        let child = returning().start().expect("a child");
        child.send(&(&path, room)).expect("a child that listens");
        child.expect::<()>();
        drop(manager);
        let manager = a_manager(&path);
        child.send(&()).expect("a child that listens");
        child.expect::<()>();
        drop(manager);
    }
}
