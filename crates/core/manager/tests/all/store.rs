//! The service manager's store: real managers that are killed, with a service manager that this test plays.

use crate::common::*;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use tranship_proto::{Event, Request};
use tranship_sys::{pidfd, socket};
use tranship_testkit::artifact;
use tranship_testkit::service::ServiceManager;

/// A manager as a service.
struct Service {
    _dog: Watchdog,
    systemd: ServiceManager,
    manager: Option<Child>,
    path: PathBuf,
    config: PathBuf,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Service {
    fn new() -> Service {
        let dog = watchdog();
        let systemd = ServiceManager::new();
        let config = systemd.folder().join("manager.toml");
        // A reader is awaited by its process, not for a time.
        std::fs::write(&config, "grace = \"1ms\"\norphan_interval = \"1ms\"\n").expect("writing");
        Service {
            _dog: dog,
            manager: None,
            path: systemd.folder().join("m.sock"),
            config,
            systemd,
        }
    }

    /// Starts a manager with the stored descriptors, and with a socket if one is given; it serves when this returns.
    fn start(&mut self, socket: Option<OwnedFd>) {
        let program = artifact("tranship-cli", "tranship");
        let set = |command: &mut Command| {
            let command = command.args(["manager", "--socket"]).arg(&self.path);
            command.arg("--config").arg(&self.config);
        };
        self.manager = Some(self.systemd.start(&program, set, socket));
    }

    fn kill(&mut self) {
        if let Some(mut manager) = self.manager.take() {
            manager.kill().expect("killing");
            manager.wait().expect("its end");
            self.systemd.catch_up();
        }
    }

    /// Returns the numbers of stored tables, chunks and readers.
    fn has(&self) -> [usize; 3] {
        ["tranship-t.", "tranship-c.", "tranship-r."].map(|kind| {
            self.systemd
                .store
                .keys()
                .filter(|k| k.starts_with(kind))
                .count()
        })
    }

    fn until(&mut self, wanted: [usize; 3]) {
        while self.has() != wanted {
            self.systemd.hear();
        }
    }
}

/// A pool of two chunks with a reader, and one message in its queue, in the first chunk.
struct Left {
    reader: Client,
    pool: Pool,
    way: Way,
}

fn left(service: &Service) -> Left {
    let join = |name| Client::join(&service.path, name);
    let (mut writer, mut reader) = (join("writer"), join("reader"));
    let mut pool = writer.create_pool(2);
    writer.grant(pool.id, 2).expect("memory");
    writer.show_chunk(&mut pool, 0, 1);
    writer.show_chunk(&mut pool, 1, 2);
    let way = Way::new(&mut writer, &mut reader, "way", pool.id);
    // A slot of the first chunk that a reader holds: the second chunk is free.
    way.refs()
        .1
        .get(3)
        .expect("a slot")
        .store(1, Ordering::Release);
    writer.goes();
    Left { reader, pool, way }
}

/// Dead writers cannot show anything again, and a reader may have been shown nothing yet.
#[test]
fn what_a_dead_writer_left_is_there_after_restarts() {
    let mut service = Service::new();
    service.start(None);
    let left = left(&service);
    // The chunk in which nothing is alive goes.
    service.until([1, 1, 1]);
    // Twice: the reader was not told of the second chunks, and they are still stored.
    for _ in 0..2 {
        service.kill();
        std::fs::remove_file(&service.path).expect("the socket's file");
        let socket = socket::listen(&service.path, 0o600).expect("a socket");
        service.start(Some(socket));
        let mut guest = Client::join(&service.path, "guest");
        assert_eq!(guest.sums(), (CHUNK, 0), "what is left is counted");
        assert_eq!(service.has(), [1, 1, 1]);
    }
    let mut reader = Client::join_as(&service.path, "reader", Some(left.reader.domain));
    assert!(reader.resumed);
    // It maps nothing of it.
    reader.claims_to_read(&left.pool, &left.way, &[]);
    let (req, pool) = (reader.req(), left.pool.id);
    reader.send(&Request::Resync { req, pool }, &[]);
    let added = |e: &Event| {
        matches!(
            e,
            Event::ChunkAdded {
                index: 0,
                serial: 1,
                ..
            }
        )
        .then_some(())
    };
    let (_, fds) = reader.wait(added);
    let (_, _, made, _) = &left.pool.chunks[0];
    assert_eq!(inode(&fds[0]), inode(made), "the very memory");
    // The reader drops the buffer that it has taken. Then nothing is left anywhere.
    left.way
        .refs()
        .1
        .get(3)
        .expect("a slot")
        .store(0, Ordering::Release);
    let channel = left.way.chan.id;
    reader.send(&Request::CloseChannel { channel }, &[]);
    reader.wait(|e| matches!(e, Event::PoolGone { .. }).then_some(()));
    let (index, serial) = (0, 1);
    reader.send(
        &Request::Unmapped {
            pool,
            index,
            serial,
        },
        &[],
    );
    while reader.sums() != (0, 0) {
        std::thread::yield_now();
    }
    service.until([0, 0, 0]);
}

/// No reader is awaited for ever.
#[test]
fn a_reader_that_ended_meanwhile_is_not_awaited() {
    let mut service = Service::new();
    service.start(None);
    let _left = left(&service);
    service.until([1, 1, 1]);
    service.kill();
    // Its process is another one, which lives for a while longer.
    let mut process = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("cat");
    let reader = service
        .systemd
        .store
        .keys()
        .find(|k| k.starts_with("tranship-r."))
        .cloned();
    let other = pidfd::open(process.id()).expect("a pidfd");
    service
        .systemd
        .store
        .insert(reader.expect("a reader"), other);
    service.start(None);
    let mut guest = Client::join(&service.path, "guest");
    assert_eq!(guest.sums(), (CHUNK, 0));
    drop(process.stdin.take());
    process.wait().expect("its end");
    service.until([0, 0, 0]);
    while guest.sums() != (0, 0) {
        std::thread::yield_now();
    }
}

/// Descriptors in the store are checked like those from untrusted peers.
#[test]
fn what_no_manager_would_have_stored_is_refused() {
    let mut service = Service::new();
    service.start(None);
    let _left = left(&service);
    service.until([1, 1, 1]);
    service.kill();
    let good: BTreeMap<String, OwnedFd> = service
        .systemd
        .store
        .iter()
        .map(|(k, v)| (k.clone(), v.try_clone().expect("a copy")))
        .collect();
    let key = |kind: &str| {
        good.keys()
            .find(|k| k.starts_with(kind))
            .expect("it")
            .clone()
    };
    let (table, chunk, reader) = (key("tranship-t."), key("tranship-c."), key("tranship-r."));
    let unsealed = || tranship_sys::memfd::create("x").expect("a memfd");
    let pipe = || OwnedFd::from(std::io::pipe().expect("a pipe").0);
    let again = |k: &String| good[k].try_clone().expect("a copy");
    let nobody = |k: &String, n: usize| {
        let mut parts: Vec<&str> = k.split('.').collect();
        parts[n] = "99";
        parts.join(".")
    };
    type Bend<'a> = Box<dyn Fn(&mut BTreeMap<String, OwnedFd>) + 'a>;
    let bends: [(&str, Bend<'_>); 11] = [
        (
            "a pipe for a chunk",
            Box::new(|s| drop(s.insert(chunk.clone(), pipe()))),
        ),
        (
            "unsealed memory",
            Box::new(|s| drop(s.insert(chunk.clone(), unsealed()))),
        ),
        (
            "a table for a chunk",
            Box::new(|s| drop(s.insert(chunk.clone(), again(&table)))),
        ),
        (
            "a chunk for a table",
            Box::new(|s| drop(s.insert(table.clone(), again(&chunk)))),
        ),
        ("no table", Box::new(|s| drop(s.remove(&table)))),
        ("no chunk", Box::new(|s| drop(s.remove(&chunk)))),
        (
            "another place",
            Box::new(|s| drop(s.insert(nobody(&chunk, 2), s[&chunk].try_clone().expect("a copy")))),
        ),
        (
            "a pipe for a process",
            Box::new(|s| drop(s.insert(reader.clone(), pipe()))),
        ),
        (
            "two tables",
            Box::new(|s| drop(s.insert(nobody(&table, 2), again(&table)))),
        ),
        (
            "a size that the table does not say",
            Box::new(|s| {
                let fd = s.remove(&table).expect("it");
                s.insert(nobody(&table, 4), fd);
            }),
        ),
        (
            "names of somebody else",
            Box::new(|s| {
                s.clear();
                for name in ["", "x", "tranship-", "tranship-c.1", "tranship-q.1.2.3"] {
                    s.insert(name.to_owned(), pipe());
                }
            }),
        ),
    ];
    for (what, bend) in bends {
        service.systemd.store = good
            .iter()
            .map(|(k, v)| (k.clone(), v.try_clone().expect("a copy")))
            .collect();
        bend(&mut service.systemd.store);
        service.start(None);
        let mut guest = Client::join(&service.path, "guest");
        let kept = what == "a pipe for a process" || what == "two tables";
        if kept {
            // The right part is enough; no reader is awaited, or one of the two is it.
            while guest.sums() != (0, 0) && what != "two tables" {
                std::thread::yield_now();
            }
        } else {
            assert_eq!(guest.sums(), (0, 0), "{what}");
            while !service.systemd.store.is_empty() {
                service.systemd.hear();
            }
        }
        drop(guest);
        service.kill();
    }
}
