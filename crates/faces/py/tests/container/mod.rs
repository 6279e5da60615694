//! Programs in C and Python in a container that shares only the directory of the manager's socket. The container has
//! its own users, mounts, processes, network, host name and System V objects. It has no /dev, and so no /dev/shm.

use crate::stage::{Stage, compiled, here, output, stage};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranship_testkit::{Container, Exit, Launch, Running, Watchdog, skipped, start_manager};

/// A folder that other users can look into.
fn open_folder(path: &Path) {
    fs::create_dir_all(path).expect("a folder");
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("its mode");
}

fn copied(from: &Path, to: &Path) {
    open_folder(to);
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copied(&from, &to),
            false => drop(fs::copy(&from, &to).expect("copy")),
        }
    }
}

/// One that every user can run, as it lies below /usr, which the container has.
fn common_python() -> Option<PathBuf> {
    let python = PathBuf::from("/usr/bin/python3");
    let new = "import sys; sys.exit(sys.version_info < (3, 11))";
    output(Command::new(&python).args(["-c", new])).ok()?;
    Some(python)
}

/// Starts `inside` in a container, and asks it from outside.
fn exchange(stage: &Stage, run: &Path, inside: &Launch, own_users: bool) {
    let mut asks = Command::new(&stage.python);
    asks.arg(here("tests/container/asks.py"))
        .env("PYTHONPATH", &stage.package)
        .env("TRANSHIP_SOCKET", run.join("manager.sock"))
        .stdout(Stdio::piped());
    let mut asks = Running(asks.spawn().expect("python"));
    let mut said = BufReader::new(asks.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("its output");
    assert_eq!(line, "listens\n");
    let peer = match inside.start() {
        Err(error) => return skipped(format!("a container: {error}")),
        Ok(peer) => peer,
    };
    let ended = peer.wait();
    assert_eq!(ended, Exit::Code(0), "{}", peer.stderr());
    let mut seen = String::new();
    said.read_to_string(&mut seen).expect("its output");
    assert!(asks.0.wait().expect("its end").success());
    // Outside it is known by its numbers there; inside it is the first process, of the first user.
    let uid = if own_users { 100_000 } else { 0 };
    assert_eq!(seen, format!("{} {uid} 1 0\n", peer.pid()));
}

#[test]
fn a_container_shares_only_the_socket() {
    let _dog = Watchdog::new();
    if let Some(reason) = Container::impossible() {
        return skipped(reason);
    }
    let stage = match stage() {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let folder = tranship_testkit::folder().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    open_folder(folder.path());
    let (run, app) = (at("run"), at("app"));
    open_folder(&run);
    let built = at("built");
    open_folder(&built);
    let answers = compiled("tests/container/answers.c", &built);
    open_folder(&app);
    // A library that is linked there lies where only its owner may look.
    fs::copy(built.join("libtranship.so.0"), app.join("libtranship.so.0")).expect("copy");
    fs::copy(here("tests/container/answers.py"), app.join("answers.py")).expect("copy");
    copied(&stage.package, &app.join("package"));
    let _manager = start_manager(&run.join("manager.sock"), "socket_mode = 0o666");
    for own_users in [true, false] {
        let container = Container::new()
            .share(&run, "/run/tranship")
            .share(&app, "/opt/app");
        let container = match own_users {
            true => container,
            false => container.without_users(),
        };
        let inside = |program: &Path| {
            let launch = Launch::program(program).container(container.clone());
            launch.capture_stderr().env("LD_LIBRARY_PATH", "/opt/app")
        };
        exchange(stage, &run, &inside(&answers), own_users);
        match common_python() {
            None => skipped("/usr/bin/python3 is not Python 3.11 or newer: in a container"),
            Some(python) => {
                let python = inside(&python)
                    .arg("/opt/app/answers.py")
                    .env("PYTHONPATH", "/opt/app/package")
                    .env("PYTHONDONTWRITEBYTECODE", "1");
                exchange(stage, &run, &python, own_users);
            }
        }
    }
}
