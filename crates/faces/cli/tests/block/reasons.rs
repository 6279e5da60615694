//! Reasons of failures: each is reported in its own words.

use crate::kit::{Home, Running, run, started, watchdog};
use crate::nbd::{Client, FLUSH};
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tranship_testkit::Port;
use tranship_transport::net::certificate;

/// Two authorities, and credentials of each for this machine.
fn certificates(home: &Home) {
    let life = Duration::from_secs(86400);
    for name in ["ours", "theirs"] {
        let ca = home.path(&format!("{name}-ca"));
        certificate::init(&ca, name, life).expect("an authority");
        let at = ["127.0.0.1".to_owned()];
        certificate::issue_into(&ca, name, &at, life, &home.path(name)).expect("issued");
    }
}

fn with_tls(home: &Home, whose: &str, arguments: &[&str]) -> Command {
    let mut command = home.command(arguments);
    command.env("TRANSHIP_TLS", home.path(whose));
    command
}

fn begun(mut command: Command) -> Child {
    let out = command.stdout(Stdio::null()).stderr(Stdio::piped());
    out.spawn().expect("starting")
}

/// Checks that it fails; returns its output.
fn failed(child: Child) -> String {
    let output = child.wait_with_output().expect("its output");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn each_reason_has_its_own_words() {
    let _dog = watchdog();
    let home = Home::new();
    certificates(&home);
    let [port, silent] = [(); 2].map(|()| Port::reserve().expect("a port"));
    let port = port.number();
    let at = format!("tcp:127.0.0.1:{port}/disk");
    let serve = ["block", "serve", &at, "disk.img", "--size", "1MiB"];
    let mut server = with_tls(&home, "ours", &serve);
    let server = server.stdout(Stdio::piped()).spawn().expect("a server");
    let _server: Running = started(server);
    let bench = |whose: &str, at: &str| begun(with_tls(&home, whose, &["block", "bench", at]));
    let nowhere = format!("tcp:127.0.0.1:{}/disk", silent.number());
    let other = format!("tcp:127.0.0.1:{port}/films");
    let cases = [
        ("our authority", bench("theirs", &at)),
        ("nobody has listened", bench("ours", &nowhere)),
        ("films", bench("ours", &other)),
        ("no credentials", {
            let mut command = home.command(&["block", "bench", &at]);
            command
                .env_remove("TRANSHIP_TLS")
                .env("HOME", home.path(""))
                .env_remove("XDG_CONFIG_HOME");
            begun(command)
        }),
        ("no domain offers", bench("ours", "shm:disk")),
        // Somebody else has the port, or the disk's address.
        ("in use", {
            let again = ["block", "serve", &at, "other.img", "--size", "1MiB"];
            begun(with_tls(&home, "ours", &again))
        }),
        ("in use", {
            let nbd = format!("tcp:127.0.0.1:{port}");
            let again = ["serve", "local:x", "third.img", "--size", "1MiB", "--nbd"];
            begun(home.command(&[&["block"], &again[..], &[&nbd]].concat()))
        }),
        ("no socket", {
            std::fs::write(home.path("precious"), b"x").expect("a file");
            let again = ["serve", "local:x", "precious", "--nbd", "unix:precious"];
            begun(home.command(&[&["block"], &again[..]].concat()))
        }),
    ];
    for (words, child) in cases {
        let said = failed(child);
        assert!(said.contains(words), "{words:?}: {said}");
    }
    assert_eq!(std::fs::read(home.path("precious")).expect("there"), b"x");
}

#[test]
fn levels_that_differ_are_both_said_at_once() {
    let _dog = watchdog();
    let home = Home::new();
    let _server = home.start(&["serve", "shm:disk", "disk.img", "--size", "1MiB"]);
    for level in ["none", "full"] {
        let bench = ["block", "bench", "shm:disk", "--trust", level];
        let said = failed(begun(home.command(&bench)));
        let words = format!("level of trust is `producer`, this end's is `{level}`");
        assert!(said.contains(&words), "{said}");
        // The program does not try again, and does not say that it would. It warns once of the pool that was not taken.
        assert!(!said.contains("trying again"), "{said}");
        assert!(said.matches("WARN").count() <= 1, "{said}");
    }
}

/// Waits until it is all said there.
fn until_said(log: &Path, words: &[&str]) {
    let all = || fs::read_to_string(log).expect("the log");
    while !words.iter().all(|words| all().contains(words)) {
        std::thread::yield_now();
    }
}

#[test]
fn who_is_let_in_who_is_refused_and_who_is_gone_for_good_is_said() {
    let dog = watchdog();
    let home = Home::new();
    certificates(&home);
    let port = Port::reserve().expect("a port");
    let at = format!("tcp:127.0.0.1:{}/disk", port.number());
    let begin = |log: &Path, arguments: &[&str]| {
        let mut service = with_tls(&home, "ours", &[&["-v", "block"], arguments].concat());
        let log = File::create(log).expect("a log");
        let service = service.stdout(Stdio::piped()).stderr(log).spawn();
        started(service.expect("starting"))
    };
    let log = home.path("server");
    let serve = [
        "serve", &at, "disk.img", "--size", "1MiB", "--nbd", "unix:s",
    ];
    let server = begin(&log, &serve);
    let bench = |whose: &str| with_tls(&home, whose, &["block", "bench", &at, "--time", "1ms"]);
    dog.step("who has another authority");
    failed(begun(bench("theirs")));
    until_said(&log, &["refused: "]);
    dog.step("who is one of ours");
    run(&mut bench("ours"));
    until_said(&log, &[": 127.0.0.1:", "is let in", "is gone"]);
    dog.step("NBD");
    let who = format!("process {} of user", std::process::id());
    let client = Client::connect(&home.path("s")).expect("a client");
    until_said(&log, &[&who, "NBD: ", " is let in\n"]);
    drop(client);
    let nobody = UnixStream::connect(home.path("s")).expect("connecting");
    drop(nobody);
    until_said(&log, &["is refused in its handshake"]);

    dog.step("a proxy whose server goes");
    let log = home.path("proxy");
    let proxy = [
        "proxy",
        "--server",
        &at,
        "--nbd",
        "unix:p",
        "--give-up",
        "1ms",
    ];
    let _proxy = begin(&log, &proxy);
    let mut client = loop {
        // Refused until the server is reached.
        if let Ok(client) = Client::connect(&home.path("p")) {
            break client;
        }
    };
    drop(server);
    // Waits no longer than it may.
    while client.ask(FLUSH, 0, 0, &[]).expect("an answer") == 0 {}
    until_said(&log, &["away for too long", "is let in"]);
}

#[test]
fn the_help_shows_every_kind_of_address() {
    let help = |arguments: &[&str]| {
        let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_tranship")));
        let output = command.args(arguments).output().expect("running");
        String::from_utf8(output.stdout).expect("text")
    };
    for part in [&["serve"][..], &["proxy"], &["bench"], &[]] {
        let said = help(&[&["block"], part, &["--help"]].concat());
        for kind in ["shm:", "copy:", "tcp:", "tcp+plain:", "local:", "unix:"] {
            assert!(said.contains(kind), "{part:?}: {kind} {said}");
        }
    }
}
