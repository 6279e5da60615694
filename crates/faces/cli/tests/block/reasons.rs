//! Reasons of failures: each is reported in its own words.

use crate::kit::{Home, Said, home, run, start, started};
use crate::nbd::{Client, FLUSH};
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tranship_testkit::{Port, Running, has, tranship};
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

fn begun(mut command: Command) -> Running {
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::piped()))
}

/// Checks that it fails; returns its output.
fn failed(running: Running) -> String {
    let said = running.said();
    said.ends(2, &[]);
    said.err
}

#[test]
fn each_reason_has_its_own_words() {
    let home = home();
    certificates(&home);
    let [port, silent] = [(); 2].map(|()| Port::reserve().expect("a port"));
    let port = port.number();
    let at = format!("tcp:127.0.0.1:{port}/disk");
    let serve = ["block", "serve", &at, "disk.img", "--size", "1MiB"];
    let mut server = with_tls(&home, "ours", &serve);
    let _server = started(&mut server);
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
        has(&failed(child), &[words]);
    }
    assert_eq!(std::fs::read(home.path("precious")).expect("there"), b"x");
}

#[test]
fn levels_that_differ_are_both_said_at_once() {
    let home = home();
    let _server = start(&home, &["serve", "shm:disk", "disk.img", "--size", "1MiB"]);
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
    let home = home();
    certificates(&home);
    let port = Port::reserve().expect("a port");
    let at = format!("tcp:127.0.0.1:{}/disk", port.number());
    let begin = |log: &Path, arguments: &[&str]| {
        let mut service = with_tls(&home, "ours", &[&["-v", "block"], arguments].concat());
        started(service.stderr(File::create(log).expect("a log")))
    };
    let log = home.path("server");
    let serve = [
        "serve", &at, "disk.img", "--size", "1MiB", "--nbd", "unix:s",
    ];
    let server = begin(&log, &serve);
    let bench = |whose: &str| with_tls(&home, whose, &["block", "bench", &at, "--time", "1ms"]);
    home.dog.step("who has another authority");
    failed(begun(bench("theirs")));
    until_said(&log, &["refused: "]);
    home.dog.step("who is one of ours");
    run(&mut bench("ours"));
    until_said(&log, &[": 127.0.0.1:", "is let in", "is gone"]);
    home.dog.step("NBD");
    let who = format!("process {} of user", std::process::id());
    let client = Client::connect(&home.path("s")).expect("a client");
    until_said(&log, &[&who, "NBD: ", " is let in\n"]);
    drop(client);
    let nobody = UnixStream::connect(home.path("s")).expect("connecting");
    drop(nobody);
    until_said(&log, &["is refused in its handshake"]);

    home.dog.step("a proxy whose server goes");
    let log = home.path("proxy");
    let proxy = ["proxy", "--server", &at, "--nbd", "unix:p"];
    let proxy = [&proxy[..], &["--give-up", "1ms"]].concat();
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
    for part in [&["serve"][..], &["proxy"], &["bench"], &[]] {
        let said = Said::of(&mut tranship(&[&["block"], part, &["--help"]].concat())).well();
        has(
            &said,
            &["shm:", "copy:", "tcp:", "tcp+plain:", "local:", "unix:"],
        );
    }
}
