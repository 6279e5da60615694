//! The program from outside: exit codes, output for programs and for pipes.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use tranship_testkit::start_manager;

fn tranship(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG");
    command
}

fn run(arguments: &[&str]) -> Output {
    tranship(arguments).output().expect("running the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[cfg(feature = "net")]
fn the_help_of_a_transfer_shows_every_kind_of_address() {
    for command in ["send", "recv"] {
        let said = text(&run(&[command, "--help"]).stdout);
        for kind in ["shm:", "copy:", "tcp:", "tcp+plain:"] {
            assert!(said.contains(kind), "{command}: {kind} {said}");
        }
    }
}

#[test]
fn help_and_version_are_answers_and_a_wrong_line_is_an_error() {
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
    for wrong in [
        &["no-such-command"][..],
        &["stat", "--no-such-option"],
        &["send"],
        &[],
    ] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{wrong:?}"
        );
    }
}

#[test]
fn doctor_answers_for_people_and_for_programs() {
    let output = run(&["doctor", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let usable = answer["usable"].as_bool().expect("a verdict");
    assert_eq!(output.status.code(), Some(if usable { 0 } else { 1 }));
    let topics = answer["topics"].as_array().expect("topics");
    for topic in topics {
        let findings = topic["findings"].as_array().expect("findings");
        assert!(!findings.is_empty(), "{topic}");
        for finding in findings.iter().filter(|finding| finding["state"] != "ok") {
            assert!(finding["cost"].is_string(), "what does it cost? {finding}");
        }
    }
    let plain = text(&run(&["doctor"]).stdout);
    assert!(
        plain.contains("huge pages") && !plain.contains('\x1b'),
        "{plain}"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = tranship(&["completions", "bash"])
        .stdout(writer)
        .output()
        .expect("running");
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), "")
    );
}

#[test]
fn a_full_disk_is_an_error() {
    if !Path::new("/dev/full").exists() {
        return tranship_testkit::skipped("no /dev/full here");
    }
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let status = tranship(&["doctor"])
        .stdout(full)
        .stderr(Stdio::null())
        .status()
        .expect("running");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn configurations_are_checked_with_the_line() {
    let dir = tranship_testkit::folder().expect("a folder");
    let file = dir.path().join("manager.toml");
    let check = || run(&["manager", "check-config", file.to_str().expect("a path")]);
    let printed = run(&["manager", "default-config"]).stdout;
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../dist/manager.toml");
    assert!(printed == std::fs::read(installed).expect("what is installed"));
    std::fs::write(&file, printed).expect("writing");
    assert_eq!(check().status.code(), Some(0));
    for wrong in [
        "no_such_key = 1",
        "total = 5",
        "connect = [{ name = \"a\" }]",
    ] {
        std::fs::write(&file, format!("forward = \"granted\"\n{wrong}\n")).expect("writing");
        let output = check();
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stdout);
        assert!(said.contains("manager.toml:2:"), "{said}");
    }
    std::fs::remove_file(&file).expect("removing");
    assert_eq!(check().status.code(), Some(2));
}

#[test]
fn man_pages_and_completions_for_every_shell() {
    let dir = tranship_testkit::folder().expect("a folder");
    assert_eq!(
        run(&["man", dir.path().to_str().expect("a path")])
            .status
            .code(),
        Some(0)
    );
    assert!(dir.path().join("tranship-doctor.1").exists());
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(
            output.status.success() && text(&output.stdout).contains("doctor"),
            "{shell}"
        );
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
    let dir = tranship_testkit::folder().expect("a folder");
    let (frames, written) = (dir.path().join("frames"), dir.path().join("written"));
    std::fs::write(&frames, &input).expect("writing");
    for role in ["hash", "lz4", "stats", "writer"] {
        let output = tranship(&[
            "demo-consumer",
            "--role",
            role,
            "--over",
            "pipe",
            "--total",
            "8",
            "--output",
        ])
        .arg(&written)
        .stdin(std::fs::File::open(&frames).expect("the frames"))
        .output()
        .expect("running");
        let lines = text(&output.stdout);
        assert!(
            output.status.success(),
            "{role}: {lines} {}",
            text(&output.stderr)
        );
        let mut lines = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line"));
        let ready = lines.next().expect("a first line");
        assert_eq!(ready["ready"]["escaped"], serde_json::json!([]), "{role}");
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
    let dir = tranship_testkit::folder().expect("a folder");
    let path = dir.path().join("manager.sock");
    let made = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    bind(&made, &SocketAddrUnix::new(&path).expect("an address")).expect("binding");
    listen(&made, 8).expect("listening");
    // Started as systemd does it: descriptor 3, and the process that it is meant for.
    let script = r#"exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" manager"#;
    let mut manager = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tranship")])
        .env("RUNTIME_DIRECTORY", dir.path())
        .stdin(made)
        .spawn()
        .expect("starting");
    // The socket listens already, so nobody is too early.
    let socket = path.to_str().expect("a path");
    let output = run(&["stat", "--json", "--socket", socket]);
    manager.kill().expect("killing");
    manager.wait().expect("waiting");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(path.exists(), "the socket is systemd's to remove");
}

#[test]
fn run_puts_a_program_under_the_manager_with_a_limit() {
    let library = tranship_testkit::artifact("tranship-preload", "libtranship_malloc.so");
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = &dir.path().join("manager.sock").display().to_string();
    let _manager = start_manager(Path::new(socket), "");
    let mut command = tranship(&["run", "--quota", "64MiB", "--socket", socket, "--library"]);
    let command = command.arg(&library).arg("--");
    // The program looks at itself.
    let looks = [
        env!("CARGO_BIN_EXE_tranship"),
        "stat",
        "--json",
        "--socket",
        socket,
    ];
    let output = command.args(looks).output().expect("running it");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let stat: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let heap = &stat["heaps"][0];
    assert_eq!(heap["quota_bytes"], 64 << 20, "{stat}");
    assert!(heap["admitted_bytes"].as_u64() > Some(0), "{stat}");
    let missing = run(&["run", "--library", "/no/such.so", "--", "true"]);
    assert_eq!(missing.status.code(), Some(2));
}

/// The program elsewhere, without its build folder: as it is installed alone, or in a package.
#[test]
fn run_finds_its_library_wherever_the_program_was_installed() {
    let library = tranship_testkit::artifact("tranship-preload", "libtranship_malloc.so");
    let dir = tranship_testkit::folder().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    for folder in ["bin", "lib", "cache"] {
        std::fs::create_dir(at(folder)).expect("a folder");
    }
    let program = at("bin/tranship");
    // Another process copies the file: a child that another thread of this one starts would have it open for writing,
    // and then no process could run it.
    let mut copy = Command::new("cp");
    let copied = copy.arg(env!("CARGO_BIN_EXE_tranship")).arg(&program);
    assert!(copied.status().expect("cp").success());
    let socket = dir.path().join("manager.sock").display().to_string();
    let _manager = start_manager(Path::new(&socket), "");
    let preloaded = || {
        let mut command = Command::new(&program);
        command.args(["run", "--quota", "64MiB", "--socket", &socket]);
        command.args(["--", "sh", "-c", "echo $LD_PRELOAD"]);
        command.env("XDG_CACHE_HOME", at("cache"));
        for name in ["TRANSHIP_MALLOC", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        command.output().expect("running it")
    };
    let path = |output: &std::process::Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        std::path::PathBuf::from(text(&output.stdout).trim())
    };
    let alone = preloaded();
    if cfg!(debug_assertions) {
        // Only releases have the library in them.
        assert_eq!(alone.status.code(), Some(2));
        let said = text(&alone.stderr);
        for what in ["bin/tranship", "tranship-preload", "--library"] {
            assert!(said.contains(what), "{said}");
        }
    } else {
        let written = path(&alone);
        assert!(written.starts_with(at("cache")), "{}", written.display());
        assert!(std::fs::read(&written).expect("it").starts_with(b"\x7fELF"));
    }
    for beside in ["lib/libtranship_malloc.so", "bin/libtranship_malloc.so"] {
        std::fs::copy(&library, at(beside)).expect("a copy");
        assert_eq!(path(&preloaded()), at(beside).canonicalize().expect("it"));
    }
}

#[test]
fn certificates_are_made_and_the_doctor_finds_them() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tranship_testkit::folder().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (ca, out) = (at("ca"), at("camera"));
    let must = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    };
    must(&["cert", "init", &ca]);
    must(&[
        "cert",
        "issue",
        "camera.local",
        "--address",
        "10.0.0.1",
        "--ca",
        &ca,
        "--out",
        &out,
    ]);
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
    let again = run(&["cert", "init", &ca]);
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr).contains("ca-key.pem"),
        "{}",
        text(&again.stderr)
    );
    let found = |directory: &str| {
        let mut doctor = tranship(&["doctor"]);
        doctor.env("TRANSHIP_TLS", directory);
        text(&doctor.output().expect("doctor").stdout)
    };
    assert!(found(&out).contains("camera: usable"));
    assert!(found(&ca).contains("key.pem"));
}
