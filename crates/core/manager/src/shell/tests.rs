//! How much one task takes from a client that says more: the manager's own code over a real connection, a task at a
//! time.

use super::conn::{Carrying, Conn};
use super::*;
use crate::state::ClientId;
use std::os::fd::AsFd;
use tranship_proto::{PROTOCOL_VERSION, PoolId, Req, Request, encode};
use tranship_region::layout::ControlPageRw;
use tranship_sys::socket;
use tranship_testkit::Watchdog;

struct Stage {
    shell: Shell,
    client: ClientId,
    /// The client's end.
    socket: OwnedFd,
    /// The descriptor that watches its process.
    pidfd: FdToken,
    dir: tempfile::TempDir,
    _dog: Watchdog,
}

/// Joins; returns the client's end, by which it has said hello.
fn joins(path: &std::path::Path) -> OwnedFd {
    let socket = socket::connect_now(path).expect("a connection");
    let hello = Request::Hello {
        version: PROTOCOL_VERSION,
        name: "one".into(),
        resume: None,
        dumpable: false,
    };
    socket::sendmsg(&socket, &encode(&hello), &[], true).expect("hello");
    socket
}

/// Makes a manager that has let one client in, has no more messages for it, and no turn of its party to do.
fn stage() -> Stage {
    let dog = Watchdog::new();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("manager.sock");
    let listener = Listener::bind(&path, 0o600).expect("a socket");
    let stop = Shutdown::new().expect("eventfd");
    let workers = Workers::new(false, WORKER).expect("workers");
    let mut shell =
        Shell::new(Config::default(), listener, &stop, workers, Notify::new()).expect("a manager");
    let socket = joins(&path);
    let mut ready = Vec::new();
    let joined = |c: &Conn| c.domain.is_some() && c.queue.is_empty();
    while !shell.conns.values().any(joined) || !shell.runnable.is_empty() {
        shell.turn(&mut ready).expect("a turn");
    }
    let client = *shell.conns.keys().next().expect("the client");
    let pidfd = *shell.watches.keys().next().expect("its process");
    Stage {
        shell,
        client,
        socket,
        pidfd,
        dir,
        _dog: dog,
    }
}

impl Stage {
    /// Sends as many requests as its socket takes, each of which has one answer.
    fn ask(&self) {
        let question = encode(&Request::Unmapped {
            pool: PoolId(7),
            index: 0,
            serial: 1,
        });
        while socket::sendmsg(&self.socket, &question, &[], true).is_ok() {}
    }

    /// Runs one task of reading; returns the number of answers that were not sent yet.
    fn read(&mut self) -> usize {
        self.shell.read(self.client);
        self.shell.conns[&self.client].queue.len()
    }
}

#[test]
fn a_task_takes_sixteen_messages() {
    let mut stage = stage();
    stage.ask();
    assert_eq!(stage.read(), 16);
    assert_eq!(stage.read(), 32);
}

#[test]
fn who_does_not_take_answers_is_not_heard() {
    let mut stage = stage();
    for n in 1..100 {
        stage.ask();
        assert_eq!(stage.read(), 512.min(n * 16));
    }
}

/// A client can have hundreds of thousands of waiters on its socket. Each message makes the kernel go through all of
/// them, and each task has one such message.
#[test]
fn a_message_that_takes_long_is_the_last_of_its_task() {
    let mut stage = stage();
    let mut crowd = match tranship_testkit::hostile::Hoard::new() {
        Ok(crowd) => crowd,
        Err(error) => return tranship_testkit::skipped(format!("io_uring: {error}")),
    };
    while socket::recvmsg(&stage.socket, &mut [0; 64], true).is_ok() {}
    crowd.poll(stage.socket.as_fd(), 100_000).expect("waiters");
    stage.ask();
    assert_eq!(stage.read(), 16);
    stage.shell.write(stage.client);
    assert_eq!(stage.shell.conns[&stage.client].queue.len(), 15);
    assert_eq!(crowd.woken().expect("io_uring"), 100_000);
}

#[test]
fn a_party_that_rests_is_not_heard() {
    let mut stage = stage();
    let uid = stage.shell.conns[&stage.client].uid;
    let mut ready = Vec::new();
    stage
        .shell
        .rest(uid, std::time::Duration::from_secs(1 << 20));
    stage.ask();
    let other = joins(&stage.dir.path().join("manager.sock"));
    while stage.shell.conns.len() < 2 {
        stage.shell.turn(&mut ready).expect("a turn");
    }
    let mut answer = [0; 64];
    let said = |shell: &mut Shell, ready: &mut Vec<Ready>, answer: &mut [u8]| {
        shell.turn(ready).expect("a turn");
        socket::recvmsg(&stage.socket, answer, true).is_ok()
    };
    // A client's message does not end the manager's sleep: another connection does.
    socket::connect_now(&stage.dir.path().join("manager.sock")).expect("a connection");
    // The first message is the welcome.
    assert!(said(&mut stage.shell, &mut ready, &mut answer));
    socket::connect_now(&stage.dir.path().join("manager.sock")).expect("a connection");
    assert!(!said(&mut stage.shell, &mut ready, &mut answer));
    stage.shell.resting[0].0 = Instant::now();
    while !said(&mut stage.shell, &mut ready, &mut answer) {}
    drop(other);
}

/// Other holders of its socket may go on for ever.
#[test]
fn of_a_dead_process_a_thousand_messages_are_heard() {
    let mut stage = stage();
    stage.shell.last_words(stage.pidfd);
    for _ in 1..1024 / 16 {
        stage.ask();
        stage.shell.read(stage.client);
        assert!(stage.shell.conns.contains_key(&stage.client), "too early");
    }
    stage.ask();
    stage.shell.read(stage.client);
    assert!(!stage.shell.conns.contains_key(&stage.client), "not yet");
    assert!(stage.shell.connected.is_empty());
}

/// A message's descriptors are in no user's books before that user has its turn.
#[test]
fn of_a_user_a_dozen_messages_are_fetched_ahead() {
    const CLIENTS: usize = 30;
    let mut stage = stage();
    let path = stage.dir.path().join("manager.sock");
    let others: Vec<OwnedFd> = (1..CLIENTS).map(|_| joins(&path)).collect();
    let mut ready = Vec::new();
    let joined = |c: &&Conn| c.domain.is_some() && c.queue.is_empty();
    while stage.shell.conns.values().filter(joined).count() < CLIENTS {
        stage.shell.turn(&mut ready).expect("a turn");
    }
    let brings = encode(&Request::Stat { req: Req(1) });
    let (memory, _map) = ControlPageRw::create(1, 1).expect("memory");
    for socket in others.iter().chain([&stage.socket]) {
        socket::sendmsg(socket, &brings, &[memory.as_fd()], true).expect("a message");
    }
    // No client has had its turn.
    let clients: Vec<ClientId> = stage.shell.conns.keys().copied().collect();
    clients.into_iter().for_each(|c| stage.shell.read(c));
    let count = |shell: &Shell, is: fn(&Carrying) -> bool| {
        let all = shell.conns.values();
        all.filter(|c| is(&c.carried)).count()
    };
    let away = |c: &Carrying| matches!(c, Carrying::Away);
    while count(&stage.shell, away) > 0 {
        (0..64).for_each(|worker| stage.shell.worker_speaks(worker));
        std::thread::yield_now();
    }
    let arrived = count(&stage.shell, |c| matches!(c, Carrying::Arrived(_)));
    assert!((8..=12).contains(&arrived), "{arrived}");
    // They are expelled for it, one after another.
    while !stage.shell.conns.is_empty() {
        stage.shell.turn(&mut ready).expect("a turn");
    }
}
