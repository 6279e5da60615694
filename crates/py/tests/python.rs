//! Runs the tests that are in Python, and the type checkers, in a virtual environment of their own under `target/`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tranship::net::Over;
use tranship::transport::Net;
use tranship::transport::net::{Credentials, Timing, certificate};
use tranship::{Domain, Kind, PoolOptions, Role};
use tranship_testkit::{Watchdog, artifact, skipped};

/// What the environment gets, from the package index.
const NEEDS: &[&str] = &[
    "numpy>=2.1",
    "pytest>=8",
    "mypy",
    "pyright[nodejs]",
    "maturin>=1.9,<2",
];

const HOUR: Duration = Duration::from_secs(3600);

/// A Python with all that, and a folder that has the package.
struct Stage {
    python: PathBuf,
    package: PathBuf,
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn output(command: &mut Command) -> Result<Output, String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Err(format!("{command:?}: {}\n{out}{err}", output.status))
}

/// The first that is new enough, and its version.
fn interpreter() -> Option<(String, String)> {
    let named = std::env::var("TRANSHIP_PYTHON").ok();
    let known = [
        "python3",
        "python3.14",
        "python3.13",
        "python3.12",
        "python3.11",
    ];
    let all = named.into_iter().chain(known.map(String::from));
    let version = |python: &String| {
        let say = "import sys; print('%d.%d' % sys.version_info[:2]) if sys.version_info >= (3, 11) else sys.exit(1)";
        let said = output(Command::new(python).args(["-c", say])).ok()?;
        Some(String::from_utf8_lossy(&said.stdout).trim().to_owned())
    };
    all.into_iter().find_map(|python| {
        let version = version(&python)?;
        Some((python, version))
    })
}

/// Made once, and kept for later runs.
fn environment(target: &Path) -> Result<PathBuf, String> {
    let (python, version) = interpreter().ok_or("there is no Python 3.11 or newer")?;
    let folder = target.join(format!("python/{version}"));
    let ready = folder.join("ready");
    let needs = NEEDS.join("\n");
    let inside = folder.join("bin/python");
    if fs::read_to_string(&ready).is_ok_and(|there| there == needs) {
        return Ok(inside);
    }
    let _ = fs::remove_dir_all(&folder); // of a run that was cut off
    output(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ];
    output(Command::new(&inside).args(pip).args(NEEDS))?;
    fs::write(ready, needs).map_err(|error| error.to_string())?;
    Ok(inside)
}

/// The package, as the wheel has it.
fn package(target: &Path, library: &Path) -> PathBuf {
    let folder = target.join("python/package");
    let _ = fs::remove_dir_all(&folder);
    let package = folder.join("tranship");
    fs::create_dir_all(&package).expect("a folder");
    for file in fs::read_dir(here("python/tranship")).expect("the package") {
        let file = file.expect("a file").path();
        let name = file.file_name().expect("a name");
        if file.is_file() {
            fs::copy(&file, package.join(name)).expect("copy");
        }
    }
    fs::copy(library, package.join("_native.abi3.so")).expect("copy");
    folder
}

fn stage() -> &'static Result<Stage, String> {
    static STAGE: OnceLock<Result<Stage, String>> = OnceLock::new();
    STAGE.get_or_init(|| {
        // It downloads.
        let _dog = Watchdog::within(HOUR);
        let library = artifact("tranship-py", "libtranship_py.so");
        let target = library.ancestors().nth(2).expect("a target folder");
        let python = environment(target)?;
        let package = package(target, &library);
        Ok(Stage { python, package })
    })
}

/// Runs a module of Python's over the staged package; or says why not.
fn run(module: &str, arguments: &[&str]) {
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let _dog = Watchdog::new();
    let mut command = Command::new(&stage.python);
    command
        .args(["-m", module])
        .args(arguments)
        .current_dir(here("tests/python"))
        .env("PYTHONPATH", &stage.package)
        .env("MYPYPATH", &stage.package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("TRANSHIP_SOCKET")
        .env_remove("TRANSHIP_BIN");
    if let Err(failed) = output(&mut command) {
        panic!("{failed}");
    }
}

#[test]
fn pytest() {
    let Ok(stage) = stage() else {
        return run("pytest", &[]); // which says why not
    };
    // Not a bound on speed: what takes so long hangs, and is shown.
    let mut arguments = vec![
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "faulthandler_timeout=300",
    ];
    let can_exit = "import pytest; assert pytest.version_tuple >= (9,)";
    if output(Command::new(&stage.python).args(["-c", can_exit])).is_ok() {
        arguments.extend(["-o", "faulthandler_exit_on_timeout=true"]);
    }
    arguments.push(".");
    run("pytest", &arguments);
}

#[test]
fn the_stubs_say_what_the_module_has() {
    let allowed = here("tests/python/stubtest.txt");
    let allowed = allowed.to_str().expect("a path");
    run(
        "mypy.stubtest",
        &[
            "tranship._native",
            "--concise",
            "--ignore-unused-allowlist",
            "--allowlist",
            allowed,
        ],
    );
}

#[test]
fn mypy_takes_a_users_program() {
    let nowhere = ["--strict", "--cache-dir=/dev/null", "typed.py"];
    run("mypy", &nowhere);
}

#[test]
fn pyright_takes_a_users_program() {
    let python = match stage() {
        Ok(stage) => stage.python.to_str().expect("a path"),
        Err(why) => return skipped(why),
    };
    run("pyright", &["--pythonpath", python, "typed.py"]);
}

/// What stands between two lines of a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(here("../..").join(page)).expect("the page");
    let begin = format!("\n```{language}\n");
    let parts = text.split(&begin).skip(1);
    let block = |part: &str| part.split("\n```").next().unwrap_or_default().to_owned();
    parts.map(block).collect()
}

/// What the reader of docs/python.md does: its first line in a clone, and then the programs, in two terminals. It builds everything
/// once more, and gets numpy from the package index.
#[test]
fn the_documented_install_is_all_that_is_needed() {
    if std::env::var_os("TRANSHIP_TORTURE").is_none() {
        return; // `make wheel`
    }
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let _dog = Watchdog::within(HOUR);
    let folder = tranship_testkit::folder().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    let profile = match cfg!(debug_assertions) {
        true => "dev",
        false => "release",
    };
    let install = blocks("docs/python.md", "sh").remove(0);
    assert_eq!(
        install,
        "python3 -m venv env && env/bin/pip install '.[numpy]'"
    );
    let fresh = at("env");
    let env = fresh.to_str().expect("text");
    let install = install.replace(" env ", &format!(" {env} "));
    let install = install.replace("env/bin", &format!("{env}/bin"));
    // The first `python3` is one that is new enough.
    let bin = stage.python.parent().expect("its folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).expect("a path");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &install])
        .current_dir(here("../.."))
        .env("PATH", &path)
        .env("TRANSHIP_PROFILE", profile);
    output(&mut shell).expect("installed");

    let run_time = at("run");
    fs::create_dir(&run_time).expect("a folder");
    let terminal = |name: &str, program: &str| {
        let file = at(name);
        fs::write(&file, program).expect("a program");
        let mut command = Command::new(fresh.join("bin/python"));
        command
            .arg(file)
            .current_dir(folder.path())
            .env("XDG_RUNTIME_DIR", &run_time)
            .env_remove("TRANSHIP_SOCKET")
            .env_remove("TRANSHIP_BIN");
        command
    };
    let readme = blocks("README.md", "python").remove(0);
    let said = output(&mut terminal("video.py", &readme)).expect("the README's program");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.starts_with("[0 0 0] <tranship.Buffer of 8388608 bytes"),
        "{said}"
    );

    let page = blocks("docs/python.md", "python");
    let [sends, receives, ..] = &page[..] else {
        panic!("two programs");
    };
    let mut first = terminal("sends.py", sends).spawn().expect("a terminal");
    let said = output(&mut terminal("receives.py", receives));
    if said.is_err() {
        let _ = first.kill(); // it waits for the other
    }
    let status = first.wait().expect("the first terminal");
    let said = said.expect("the second terminal");
    assert!(status.success());
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.starts_with("255.0 <tranship.Buffer of 6220800 bytes"),
        "{said}"
    );
    // The manager that they started would stay for a minute.
    let end = "import os, signal, tranship\nwith tranship.connect(autostart=False) as d: pid = d.stat()['manager']['pid']\nos.kill(pid, signal.SIGTERM)";
    output(&mut terminal("end.py", end)).expect("its end");
}

/// A program in Rust (this one) sends to one in C and to one in Python, by the address alone: over shared memory, and over TCP with TLS.
#[test]
fn three_languages_share_a_channel() {
    const MESSAGES: u8 = 40;
    let dog = Watchdog::within(std::time::Duration::from_secs(3600));
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let library = artifact("tranship-capi", "libtranship.so");
    let folder = tranship_testkit::folder().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // By the name that programs ask for.
    std::os::unix::fs::symlink(&library, at("libtranship.so.0")).expect("a link");
    let beside = library.parent().expect("its folder").display().to_string();
    output(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(at("reader"))
            .arg(here("tests/languages/reader.c"))
            .arg(format!("-I{}", here("../capi/include").display()))
            .arg(format!("-L{beside}"))
            .arg(format!("-Wl,-rpath,{}", folder.path().display()))
            .arg("-ltranship"),
    )
    .expect("compiled");
    let minute = std::time::Duration::from_secs(3600);
    let authority = certificate::authority("test", minute).expect("an authority");
    let issued = certificate::issue(&authority, "test", &["127.0.0.1".to_owned()], minute);
    let issued = issued.expect("a certificate");
    for (name, text) in [
        ("ca.pem", &authority.cert),
        ("cert.pem", &issued.cert),
        ("key.pem", &issued.key),
    ] {
        fs::write(at(name), text).expect("a file");
    }
    let owner = fs::Permissions::from_mode(0o600);
    fs::set_permissions(at("key.pem"), owner).expect("a file");

    let domain = Domain::embedded().expect("a domain");
    let credentials = Credentials::load(folder.path()).expect("credentials");
    let net = Net::tls(credentials, Timing::default()).expect("a network");
    let port = net.open("127.0.0.1:0".parse().expect("an address"));
    let port = port.expect("a port");
    let carrier = Over::new("tcp", Arc::new(net)).expect("a carrier");
    domain.add_carrier(Arc::new(carrier));
    let pool = domain.create_pool(PoolOptions::new(16 << 20));
    let pool = pool.expect("a pool");
    for address in ["shm:numbers", &format!("tcp:{port}/numbers")] {
        let listener = domain.listen(address, Role::Source).expect("a listener");
        let mut python = Command::new(&stage.python);
        python
            .arg(here("tests/languages/reader.py"))
            .env("PYTHONPATH", &stage.package);
        let mut readers = [Command::new(at("reader")), python].map(|mut reader| {
            reader
                .arg(address)
                .env("TRANSHIP_SOCKET", domain.socket_path().expect("a path"))
                .env("TRANSHIP_TLS", folder.path())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a reader")
        });
        dog.step(format!("readers at {address}"));
        let mut senders = [(); 2].map(|()| {
            loop {
                match listener.accept_sender_within(std::time::Duration::from_millis(100)) {
                    Err(error) if error == Kind::TimedOut => {}
                    sender => return sender.expect("a reader"),
                }
                for reader in &mut readers {
                    let ended = reader.try_wait().expect("a process");
                    assert!(ended.is_none(), "{address}: {ended:?}");
                }
            }
        });
        let mut sum = 0u64;
        for number in 0..MESSAGES {
            let len = 1 + usize::from(number) * usize::from(number) * 97 % 100_000;
            let mut buf = pool.alloc(len).expect("memory");
            buf.write(0, &vec![number; len]).expect("room");
            sum += u64::from(number) * len as u64;
            let buf = buf.freeze();
            for sender in &mut senders {
                sender.send(buf.clone()).expect("sent");
            }
        }
        dog.step(format!("what readers at {address} say"));
        drop(senders);
        for reader in readers {
            let said = reader.wait_with_output().expect("its end");
            assert!(said.status.success(), "{address}: {}", said.status);
            let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            assert_eq!(said, format!("{MESSAGES} {sum}"), "{address}");
        }
    }
}
