//! The actions that a locked-down process can do, and those that it cannot.

use std::path::PathBuf;

use tranship_core::{Body, Domain, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Embedded};
use tranship_sandbox::{Landlock, Sandbox};
use tranship_testkit::{Control, Watchdog, child};

const CHUNK: usize = 64 << 10;

/// An action that a locked-down process must not be able to do, and whether it could.
type Attempt = (&'static str, fn() -> bool);

const ATTEMPTS: [Attempt; 9] = [
    ("open a file", || {
        std::fs::File::open("/proc/self/status").is_ok()
    }),
    ("create a file", || tempfile().is_ok()),
    ("a network socket", || {
        std::net::UdpSocket::bind("127.0.0.1:0").is_ok()
    }),
    ("a Unix socket", || {
        std::os::unix::net::UnixStream::pair().is_ok()
    }),
    (
        "a pair of datagram sockets, which send to any other",
        || std::os::unix::net::UnixDatagram::pair().is_ok(),
    ),
    ("start a program", || {
        let spawned = std::process::Command::new("true").spawn();
        spawned.is_ok_and(|mut child| child.wait().is_ok())
    }),
    ("map executable memory", || {
        map(libc::PROT_READ | libc::PROT_EXEC)
    }),
    ("signal its parent", || {
        // SAFETY: a system call without pointers; signal 0 does nothing.
        unsafe { libc::kill(libc::getppid(), 0) == 0 }
    }),
    ("lower its limits", || {
        let same = rustix::process::getrlimit(rustix::process::Resource::Core);
        rustix::process::setrlimit(rustix::process::Resource::Core, same).is_ok()
    }),
];

fn tempfile() -> std::io::Result<()> {
    let path = std::env::temp_dir().join(format!("tranship-locked-{}", std::process::id()));
    std::fs::File::create_new(&path)?;
    std::fs::remove_file(path)
}

fn map(protection: i32) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping where the kernel likes; nothing is there before.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    at != libc::MAP_FAILED
}

fn succeeded() -> Vec<String> {
    let tried = ATTEMPTS.iter().filter(|(_, attempt)| attempt());
    tried.map(|(name, _)| (*name).to_owned()).collect()
}

child!(
    /// Tries the actions, locked down or not.
    fn tries(ctl: Control) {
        if ctl.recv().unwrap() == Some(true) {
            Sandbox::new().lock_down().unwrap();
        }
        ctl.send(&succeeded()).unwrap();
    }
);

#[test]
fn what_a_process_can_do_it_cannot_do_when_it_is_locked_down() {
    let _dog = Watchdog::new();
    let can = |locked: bool| {
        let peer = tries().start().expect("a child");
        peer.ask::<Vec<String>>(&locked)
    };
    let all: Vec<_> = ATTEMPTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(can(false), all, "else the other half says nothing");
    assert_eq!(can(true), Vec::<String>::new());
}

child!(
    /// Tells whether the process knows its parent and can open a file, if both calls are allowed; and the protection
    /// that holds it.
    fn allowed(ctl: Control) {
        let _: Option<()> = ctl.recv().unwrap();
        let sandbox = Sandbox::new().also(&[libc::SYS_getppid, libc::SYS_openat]);
        let landlock = sandbox.lock_down().unwrap();
        // SAFETY: a system call without arguments.
        let parent = unsafe { libc::getppid() } > 0;
        let opened = std::fs::File::open("/proc/self/status").is_ok();
        ctl.send(&(parent, opened, landlock != Landlock::Missing))
            .unwrap();
    }
);

/// The two locks hold independently.
#[test]
fn further_calls_are_allowed_and_landlock_holds_all_the_same() {
    let _dog = Watchdog::new();
    let peer = allowed().start().expect("a child");
    let (parent, opened, landlock): (bool, bool, bool) = peer.ask(&());
    assert!(parent);
    assert_ne!(opened, landlock);
}

child!(
    /// Answers each job by as many bytes in its own memory, until there are no more jobs.
    fn worker(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let joined = Domain::builder().name("worker").socket(path).connect();
        let domain = joined.unwrap();
        let mut jobs = domain.open::<Receiver>("jobs").unwrap();
        let mut answers = domain.open::<Sender>("answers").unwrap();
        let options = PoolOptions::new(64 * CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(options).unwrap();
        Sandbox::new().lock_down().unwrap();
        let end = loop {
            let job = match jobs.recv() {
                Ok(job) => job,
                Err(error) => break error.kind(),
            };
            let Body::Buffer(job) = job.body else {
                panic!("{job:?}")
            };
            let mut answer = pool.alloc(job.len()).unwrap();
            let bytes: Vec<u8> = job.to_vec().iter().map(|byte| byte + 1).collect();
            answer.write(0, &bytes).unwrap();
            answers.send(answer.freeze()).unwrap();
        };
        ctl.send(&end.number()).unwrap();
    }
);

/// Both pools grow meanwhile: the manager's messages hand over their memory.
#[test]
fn a_domain_that_is_locked_down_goes_on() {
    let dog = Watchdog::new();
    let domain = Domain::builder()
        .name("boss")
        .embedded()
        .expect("a manager");
    let options = PoolOptions::new(64 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let pool = domain.create_pool(options).expect("a pool");
    let jobs = domain.listen::<Sender>("jobs").expect("a name");
    let answers = domain.listen::<Receiver>("answers").expect("a name");
    let peer = worker().start().expect("a child");
    peer.send(&domain.socket_path())
        .expect("a child that listens");
    let mut jobs = jobs.accept().expect("a channel");
    let mut answers = answers.accept().expect("a channel");
    let mut held = Vec::new();
    for n in 1..=20u8 {
        dog.step(format_args!("{n} jobs"));
        let len = usize::from(n) * CHUNK / 8;
        let mut job = pool.alloc(len).expect("memory");
        job.write(0, &vec![n; len]).expect("within it");
        jobs.send(job.freeze()).expect("sent");
        match answers.recv().expect("an answer").body {
            Body::Buffer(answer) => {
                assert_eq!(answer.to_vec(), vec![n + 1; len]);
                held.push(answer);
            }
            other => panic!("{other:?}"),
        }
    }
    drop(jobs);
    let end: u16 = peer.expect();
    assert_eq!(end, ErrorKind::PeerGone.number());
}

child!(
    /// Tells whether the process is connected again after a change of the manager.
    fn returns(ctl: Control) {
        let (path, reconnects): (PathBuf, bool) = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder().name("returns").socket(path).connect();
        let domain = domain.unwrap();
        match reconnects {
            true => Sandbox::new().reconnects().lock_down().unwrap(),
            false => Sandbox::new().lock_down().unwrap(),
        };
        let stream = rustix::net::SocketType::STREAM;
        let inet = rustix::net::socket(rustix::net::AddressFamily::INET, stream, None);
        assert!(inet.is_err(), "a socket that is no Unix socket");
        ctl.send(&()).unwrap();
        let _another_one: () = ctl.recv().unwrap().unwrap();
        let reached = loop {
            domain.turn().unwrap();
            match domain.create_pool(PoolOptions::new(CHUNK as u64)) {
                Ok(_) => break true,
                Err(error) if error == ErrorKind::CutOff => break false,
                Err(_) => std::thread::yield_now(),
            }
        };
        ctl.send(&reached).unwrap();
    }
);

#[test]
fn a_new_manager_is_reached_by_who_may_and_by_nobody_else() {
    let dog = Watchdog::new();
    for reconnects in [true, false] {
        dog.step(reconnects);
        let dir = tranship_testkit::folder().expect("a folder");
        let path = dir.path().join("m.sock");
        let manager = Embedded::start(Config::default(), Some(&path)).expect("a manager");
        let peer = returns().start().expect("a child");
        let () = peer.ask(&(&path, reconnects));
        drop(manager);
        peer.send(&()).expect("a child that listens");
        let _manager = Embedded::start(Config::default(), Some(&path)).expect("another one");
        assert_eq!(peer.expect::<bool>(), reconnects);
    }
}
