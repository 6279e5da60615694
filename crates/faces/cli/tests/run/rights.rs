//! Things that a component cannot do: as root, as another user, and in a program of an ordinary user.

use crate::stage::Stage;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use tranship_testkit::{Said, Watchdog, has, is_root, skipped};

const NOBODY: u32 = 65534;

/// The first component tries what it may not, while it is the receiver of one channel. Another one joins two others.
const PROGRAM: &str = r#"
[component.others]
run = ["COMPONENT", "source", "1", "10"]
ends = { out = "own" }
[component.b]
run = ["COMPONENT", "source", "2", "10"]
ends = { out = "private" }
[component.c]
run = ["COMPONENT", "relay"]
ends = { in = "private", out = "last" }
[component.d]
run = ["cat"]
stdin = "last"
[channel.own]
from = "others"
to = "a"
[channel.private]
from = "b"
to = "c"
[channel.last]
from = "c"
to = "d"
[component.a]
run = ["COMPONENT", "tries", "DIR/out/could"]
restart = "never"
[component.a.sandbox]
write = ["DIR/out"]
"#;

fn open_to_all(path: &Path) {
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(path, all).expect("its mode");
}

fn program(sandbox: &str) -> Stage {
    let stage = Stage::new(&format!("{PROGRAM}{sandbox}"));
    let out = stage.dir.path().join("out");
    std::fs::create_dir(&out).expect("a folder");
    open_to_all(stage.dir.path());
    open_to_all(&out);
    stage
}

/// Without a sandbox most of it succeeds: else the other tests say nothing.
#[test]
fn a_component_with_all_rights_can_do_most() {
    let _dog = Watchdog::new();
    let stage =
        program("files = \"any\"\nnetwork = true\nprocesses = true\nsystem_calls = \"any\"\n");
    stage.runs_well();
    let could = stage.read("out/could");
    let can = [
        "open a file",
        "create a file",
        "a network socket",
        "signal the supervisor",
    ];
    has(&could, &can);
}

#[test]
fn a_confined_component_can_do_nothing_of_it() {
    let _dog = Watchdog::new();
    let stage = program("");
    stage.runs_well();
    assert_eq!(stage.read("out/could"), "could: \n");
}

/// Each lock holds without the others: no system call is refused here, and the supervisor is in sight.
#[test]
fn landlock_alone_keeps_files_and_processes() {
    let _dog = Watchdog::new();
    let stage = program("processes = true\nsystem_calls = \"any\"\n");
    stage.runs_well();
    let could = stage.read("out/could");
    for what in [
        "file",
        "ptrace",
        "process_vm",
        "pidfd_getfd",
        "memory",
        "signal",
    ] {
        assert!(!could.contains(what), "{could}");
    }
}

#[test]
fn another_user_can_do_nothing_of_it_either() {
    let _dog = Watchdog::new();
    if !is_root() {
        return skipped("only root starts components of another user");
    }
    let stage = program("uid = 65534\n");
    Said::of(stage.command(&[]).env("TMPDIR", stage.dir.path())).ends(0, &[]);
    assert_eq!(stage.read("out/could"), "could: \n");
    stage.nothing_is_left();
}

#[test]
fn an_ordinary_users_program_is_confined_as_well() {
    let _dog = Watchdog::new();
    let stage = program("");
    ordinary_user_runs(&stage);
    assert_eq!(stage.read("out/could"), "could: \n");
}

/// The processes in sight do not depend on Landlock, which would hide `/proc`.
#[test]
fn a_component_sees_no_process_but_its_own() {
    let _dog = Watchdog::new();
    let look = |sandbox: &str| {
        let stage = Stage::new(&format!(
            "[component.a]\nrun = [\"sh\", \"-c\", \"echo /proc/[0-9]* > DIR/seen; readlink /proc/self/ns/mnt > DIR/mounts\"]\nsandbox = {{ files = \"any\"{sandbox} }}\n",
        ));
        open_to_all(stage.dir.path());
        stage
    };
    let mounts = std::fs::read_link("/proc/self/ns/mnt").expect("this test's mounts");
    let mounts = format!("{}\n", mounts.display());
    for is_ordinary in [false, true] {
        let stage = look("");
        match is_ordinary {
            true => ordinary_user_runs(&stage),
            false => stage.runs_well(),
        }
        assert_eq!(stage.read("seen"), "/proc/1 /proc/2\n");
        assert_ne!(stage.read("mounts"), mounts);
    }
    let stage = look(", processes = true");
    stage.runs_well();
    let own = format!("/proc/{}", std::process::id());
    let seen = stage.read("seen");
    assert!(seen.split_whitespace().any(|path| path == own), "{seen}");
    assert_eq!(stage.read("mounts"), mounts);
}

/// Runs a program, which must end well, as a user without rights.
fn ordinary_user_runs(stage: &Stage) {
    let mut command = stage.command(&[]);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY).env("HOME", "/nonexistent");
    }
    Said::of(&mut command).ends(0, &[]);
}

/// A component that locks itself down holds the start of others up until it has.
#[test]
fn a_component_locks_itself_down_when_it_is_ready() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        "[component.a]\nrun = [\"COMPONENT\", \"ready\"]\nready_in = \"60s\"\nbackground = true\nsandbox.lock = true\n[component.b]\nrun = [\"sh\", \"-c\", \"grep -l Seccomp_filters:.4 /proc/[0-9]*/status > DIR/seen; true\"]\nafter = [\"a\"]\nsandbox = { files = \"any\", processes = true }\n",
    );
    stage.runs_well();
    has(&stage.read("seen"), &["/proc/"]);
}
