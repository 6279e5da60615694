//! `tranship cache` as a service, with a service manager that these tests play: restarts and upgrades keep the values.

use super::kit::{NO_MANAGER, Served, say};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::service::ServiceManager;
use tranship_testkit::{Lines, Running, Watchdog};

/// Ends it, as a service manager does. Returns its last output.
fn stop(mut server: Served, systemd: &mut ServiceManager) -> String {
    server.lines.program.signal(libc::SIGTERM);
    let said = server.line();
    server.lines.program.ends_well();
    systemd.catch_up();
    said
}

fn start(systemd: &mut ServiceManager, more: &[&str]) -> Served {
    let set = |command: &mut Command| {
        command
            .args(["cache", "--listen", "127.0.0.1:0"])
            .args(more);
        command.env("TRANSHIP_SOCKET", NO_MANAGER);
        command.stdout(Stdio::piped());
    };
    let program = Path::new(env!("CARGO_BIN_EXE_tranship"));
    let program = systemd.start(program, set, None);
    systemd.catch_up();
    Lines::from(Running(program)).into()
}

fn value(n: usize) -> Vec<u8> {
    (0..n * 97 % 40_000)
        .map(|at| (at + n).to_le_bytes()[0])
        .collect()
}

fn fill(client: &mut BufReader<TcpStream>) {
    for n in 0..500 {
        let value = value(n);
        let head = format!("set k{n} {n} 0 {}\r\n", value.len());
        let all = [head.as_bytes(), &value, b"\r\n"].concat();
        assert_eq!(say(client, &all), "STORED");
    }
}

fn check(client: &mut BufReader<TcpStream>) {
    for n in 0..500 {
        let head = say(client, format!("get k{n}\r\n").as_bytes());
        let expected = value(n);
        assert_eq!(head, format!("VALUE k{n} {n} {}", expected.len()));
        let mut got = vec![0; expected.len() + 7];
        client.read_exact(&mut got).expect("a value");
        assert!(got[..expected.len()] == expected, "k{n}");
    }
}

#[test]
fn a_restart_keeps_the_values() {
    let _dog = Watchdog::new();
    let mut systemd = ServiceManager::new();
    let first = start(&mut systemd, &[]);
    assert!(systemd.store.is_empty());
    let address = first.address.clone();
    fill(&mut first.client());
    assert_eq!(
        stop(first, &mut systemd),
        "left 500 values with the service manager"
    );
    assert_eq!(systemd.store.len(), 3, "{:?}", systemd.store);
    // Clients wait at the socket that is kept.
    let waiting = BufReader::new(TcpStream::connect(&address).expect("connect"));
    let mut waiting = Some(waiting);
    for _ in 0..3 {
        let mut next = start(&mut systemd, &[]);
        assert_eq!(next.address, address);
        let said = next.line();
        assert!(
            said.starts_with("took over 500 values")
                && said.contains("from the service manager; 0"),
            "{said}"
        );
        assert!(
            systemd.store.is_empty(),
            "what is used is kept no more: {:?}",
            systemd.store
        );
        check(&mut next.client());
        if let Some(mut waiting) = waiting.take() {
            assert!(say(&mut waiting, b"version\r\n").starts_with("VERSION"));
        }
        // Half of a command changes nothing.
        let mut half = next.client();
        half.get_mut()
            .write_all(b"set k7 7 0 100\r\nhalf")
            .expect("write");
        stop(next, &mut systemd);
    }
}

/// A server that dies leaves nothing that could be mistaken for the present state, though the descriptors are still
/// kept.
#[test]
fn what_was_used_is_not_used_again() {
    let _dog = Watchdog::new();
    let mut systemd = ServiceManager::new();
    let first = start(&mut systemd, &[]);
    fill(&mut first.client());
    stop(first, &mut systemd);
    let copies: Vec<(String, OwnedFd)> = systemd
        .store
        .iter()
        .map(|(name, fd)| {
            (
                name.clone(),
                fd.as_fd().try_clone_to_owned().expect("a copy"),
            )
        })
        .collect();
    let mut second = start(&mut systemd, &[]);
    assert!(second.line().starts_with("took over 500"));
    let mut client = second.client();
    assert_eq!(say(&mut client, b"delete k1\r\n"), "DELETED");
    drop((client, second));
    systemd.catch_up();
    // The service manager did not hear in time that they are not to be kept.
    systemd.store.extend(copies);
    let third = start(&mut systemd, &[]);
    let head = say(&mut third.client(), b"get k1 k2\r\n");
    assert_eq!(head, "END", "it began empty");
}

/// Anything may lie there.
#[test]
fn what_is_none_is_left() {
    let _dog = Watchdog::new();
    let mut systemd = ServiceManager::new();
    for garbage in [&b""[..], b"no image", &[0; 5000]] {
        for name in ["arena", "keys"] {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(garbage).expect("written");
            systemd
                .store
                .insert(format!("tranship-cache-{name}"), file.into());
        }
        let server = start(&mut systemd, &[]);
        assert_eq!(say(&mut server.client(), b"get k1\r\n"), "END");
        assert!(systemd.store.is_empty());
    }
}

#[test]
fn a_signal_starts_a_successor() {
    let _dog = Watchdog::new();
    let mut systemd = ServiceManager::new();
    let socket = systemd.folder().join("cache.sock");
    let socket = socket.to_str().expect("UTF-8").to_owned();
    let mut first = start(&mut systemd, &["--take-over", &socket]);
    assert!(first.line().contains("begins empty"));
    let mut client = first.client();
    fill(&mut client);
    first.lines.program.signal(libc::SIGUSR2);
    let mut main = None;
    while main.is_none() {
        main = systemd
            .hear()
            .strip_prefix("MAINPID=")
            .and_then(|pid| pid.parse::<i32>().ok());
    }
    let status = first.lines.program.0.wait();
    assert!(status.expect("its end").success());
    // The same output goes on with the successor's words.
    let said: Vec<String> = (0..3).map(|_| first.line()).collect();
    let took = said
        .iter()
        .any(|line| line.starts_with("took over 500 values"));
    assert!(
        took && said.iter().any(|line| line == "handed over"),
        "{said:?}"
    );
    // The connection is the same one.
    check(&mut client);
    let main = main.expect("a process");
    // SAFETY: the server, which serves still.
    assert_eq!(unsafe { libc::kill(main, libc::SIGTERM) }, 0);
    while systemd.store.len() < 3 {
        systemd.hear();
    }
    let mut third = start(&mut systemd, &["--take-over", &socket]);
    assert!(third.line().starts_with("took over 500 values"));
    check(&mut third.client());
}

#[test]
fn without_a_socket_there_is_no_successor() {
    let _dog = Watchdog::new();
    let mut systemd = ServiceManager::new();
    let server = start(&mut systemd, &[]);
    let mut client = server.client();
    server.lines.program.signal(libc::SIGUSR2);
    fill(&mut client);
    check(&mut client);
}
