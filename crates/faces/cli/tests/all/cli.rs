//! The program from outside: exit codes, output for programs and for pipes.

use super::kit::copy_program;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tranship_testkit::{Home, Said, folder, has, tranship};

fn run(arguments: &[&str]) -> Said {
    Said::of(&mut tranship(arguments))
}

#[test]
#[cfg(feature = "net")]
fn the_help_of_a_transfer_shows_every_kind_of_address() {
    for command in ["send", "recv"] {
        let said = run(&[command, "--help"]).well();
        has(&said, &["shm:", "copy:", "tcp:", "tcp+plain:"]);
    }
}

#[test]
fn help_and_version_are_answers_and_a_wrong_line_is_an_error() {
    run(&["--help"]).ends(0, &[]);
    run(&["--version"]).ends(0, &[]);
    for wrong in [
        &["no-such-command"][..],
        &["stat", "--no-such-option"],
        &["send"],
        &[],
    ] {
        let said = run(wrong);
        said.ends(2, &[]);
        assert!(said.out.is_empty() && !said.err.is_empty(), "{said:?}");
    }
}

#[test]
fn doctor_answers_for_people_and_for_programs() {
    let said = run(&["doctor", "--json"]);
    let answer: Value = serde_json::from_str(&said.out).expect("JSON");
    let usable = answer["usable"].as_bool().expect("a verdict");
    said.ends(if usable { 0 } else { 1 }, &[]);
    let topics = answer["topics"].as_array().expect("topics");
    for topic in topics {
        let findings = topic["findings"].as_array().expect("findings");
        assert!(!findings.is_empty(), "{topic}");
        for finding in findings.iter().filter(|finding| finding["state"] != "ok") {
            assert!(finding["cost"].is_string(), "what does it cost? {finding}");
        }
    }
    let plain = run(&["doctor"]).out;
    assert!(
        plain.contains("huge pages") && !plain.contains('\x1b'),
        "{plain}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = tranship(&["completions", "bash"]);
    let said = Said::of(command.stdout(writer));
    said.ends(0, &[]);
    assert_eq!(said.err, "");
}

#[test]
fn a_full_disk_is_an_error() {
    if !Path::new("/dev/full").exists() {
        return tranship_testkit::skipped("no /dev/full here");
    }
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut doctor = tranship(&["doctor"]);
    Said::of(doctor.stdout(full.expect("/dev/full"))).ends(2, &[]);
}

#[test]
fn configurations_are_checked_with_the_line() {
    let dir = folder().expect("a folder");
    let file = dir.path().join("manager.toml");
    let check = || run(&["manager", "check-config", file.to_str().expect("a path")]);
    let printed = run(&["manager", "default-config"]).out;
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../dist/manager.toml");
    let installed = std::fs::read_to_string(installed);
    assert!(printed == installed.expect("what is installed"));
    std::fs::write(&file, printed).expect("writing");
    check().ends(0, &[]);
    for wrong in [
        "no_such_key = 1",
        "total = 5",
        "connect = [{ name = \"a\" }]",
    ] {
        std::fs::write(&file, format!("forward = \"granted\"\n{wrong}\n")).expect("writing");
        let said = check();
        said.ends(1, &[]);
        has(&said.out, &["manager.toml:2:"]);
    }
    std::fs::remove_file(&file).expect("removing");
    check().ends(2, &[]);
}

#[test]
fn man_pages_and_completions_for_every_shell() {
    let dir = folder().expect("a folder");
    run(&["man", dir.path().to_str().expect("a path")]).ends(0, &[]);
    assert!(dir.path().join("tranship-doctor.1").exists());
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        has(&run(&["completions", shell]).well(), &["doctor"]);
    }
}

#[test]
fn a_demo_consumer_is_locked_down_and_still_works() {
    let mut input = Vec::new();
    for (offset, bytes) in [(0u64, b"abcd"), (4, b"efgh")] {
        input.extend(offset.to_le_bytes());
        input.extend(4u64.to_le_bytes());
        input.extend(bytes);
    }
    let dir = folder().expect("a folder");
    let [frames, written] = ["frames", "written"].map(|name| dir.path().join(name));
    std::fs::write(&frames, &input).expect("writing");
    for role in ["hash", "lz4", "stats", "writer"] {
        let mut consumer = tranship(&["demo-consumer", "--role", role, "--over", "pipe"]);
        consumer.args(["--total", "8", "--output"]).arg(&written);
        consumer.stdin(std::fs::File::open(&frames).expect("the frames"));
        let lines = Said::of(&mut consumer).well();
        let mut lines = lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line"));
        let ready = lines.next().expect("a first line");
        assert_eq!(ready["ready"]["escaped"], json!([]), "{role}");
        let done = lines.next_back().expect("a last line");
        assert_eq!(done["done"]["progress"]["frames"], 2, "{role}");
        if role == "hash" {
            let expected = blake3::hash(b"abcdefgh").to_hex().to_string();
            assert_eq!(done["done"]["outcome"]["hash"]["hash"], expected);
        }
    }
    assert_eq!(std::fs::read(&written).expect("the output"), b"abcdefgh");
}

#[test]
fn the_manager_serves_a_socket_that_systemd_made() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let dir = folder().expect("a folder");
    let path = dir.path().join("manager.sock");
    let made = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    bind(&made, &SocketAddrUnix::new(&path).expect("an address")).expect("binding");
    listen(&made, 8).expect("listening");
    // Started as systemd does it: descriptor 3, and the process that it is meant for.
    let script = r#"exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" manager"#;
    let mut manager = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tranship")])
        .env("RUNTIME_DIRECTORY", dir.path())
        .stdin(made)
        .spawn()
        .expect("starting");
    // The socket listens already, so nobody is too early.
    let socket = path.to_str().expect("a path");
    let said = run(&["stat", "--json", "--socket", socket]);
    manager.kill().expect("killing");
    manager.wait().expect("waiting");
    said.ends(0, &[]);
    assert!(path.exists(), "the socket is systemd's to remove");
}

#[test]
fn run_puts_a_program_under_the_manager_with_a_limit() {
    let library = tranship_testkit::artifact("tranship-preload", "libtranship_malloc.so");
    let home = Home::new("");
    let mut command = home.command(&["run", "--quota", "64MiB", "--library"]);
    command.arg(&library).arg("--");
    // The program looks at itself.
    command.args([env!("CARGO_BIN_EXE_tranship"), "stat", "--json"]);
    let stat = Said::of(&mut command).json();
    let heap = &stat["heaps"][0];
    assert_eq!(heap["quota_bytes"], 64 << 20, "{stat}");
    assert!(heap["admitted_bytes"].as_u64() > Some(0), "{stat}");
    run(&["run", "--library", "/no/such.so", "--", "true"]).ends(2, &[]);
}

/// The program elsewhere, without its build folder: as it is installed alone, or in a package.
#[test]
fn run_finds_its_library_wherever_the_program_was_installed() {
    let library = tranship_testkit::artifact("tranship-preload", "libtranship_malloc.so");
    let home = Home::new("");
    for folder in ["bin", "lib", "cache"] {
        std::fs::create_dir(home.path(folder)).expect("a folder");
    }
    let program = home.path("bin/tranship");
    copy_program(&program);
    let preloaded = || {
        let mut command = Command::new(&program);
        command.args(["run", "--quota", "64MiB", "--socket"]);
        command.arg(home.socket());
        command.args(["--", "sh", "-c", "echo $LD_PRELOAD"]);
        command.env("XDG_CACHE_HOME", home.path("cache"));
        for name in ["TRANSHIP_MALLOC", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        Said::of(&mut command)
    };
    let path = |said: Said| PathBuf::from(said.well().trim());
    let alone = preloaded();
    if cfg!(debug_assertions) {
        // Only releases have the library in them.
        alone.ends(2, &["bin/tranship", "tranship-preload", "--library"]);
    } else {
        let written = path(alone);
        let cache = home.path("cache");
        assert!(written.starts_with(cache), "{}", written.display());
        assert!(std::fs::read(&written).expect("it").starts_with(b"\x7fELF"));
    }
    for beside in ["lib/libtranship_malloc.so", "bin/libtranship_malloc.so"] {
        let beside = home.path(beside);
        std::fs::copy(&library, &beside).expect("a copy");
        assert_eq!(path(preloaded()), beside.canonicalize().expect("it"));
    }
}

#[test]
fn certificates_are_made_and_the_doctor_finds_them() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (ca, out) = (at("ca"), at("camera"));
    run(&["cert", "init", &ca]).ends(0, &[]);
    let issue = ["cert", "issue", "camera.local", "--address", "10.0.0.1"];
    let to = ["--ca", &ca, "--out", &out];
    run(&[&issue[..], &to].concat()).ends(0, &[]);
    for file in [
        "ca/ca-key.pem",
        "ca/ca.pem",
        "camera/key.pem",
        "camera/cert.pem",
        "camera/ca.pem",
    ] {
        let mode = std::fs::metadata(at(file))
            .expect(file)
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!Path::new(&at("camera/ca-key.pem")).exists());
    run(&["cert", "init", &ca]).ends(2, &["ca-key.pem"]);
    let found = |directory: &str| {
        let mut doctor = tranship(&["doctor"]);
        Said::of(doctor.env("TRANSHIP_TLS", directory)).out
    };
    assert!(found(&out).contains("camera: usable"));
    assert!(found(&ca).contains("key.pem"));
}
