//! Errors of the program say what is wrong and what would be right.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranship_testkit::{Running, Watchdog, is_root, skipped};

/// A folder, with a manager in it.
struct House {
    dir: tempfile::TempDir,
    manager: Running,
}

impl House {
    fn new(config: &str) -> House {
        let dir = tranship_testkit::folder().expect("a folder");
        let file = dir.path().join("manager.toml");
        std::fs::write(&file, config).expect("the configuration");
        let mut manager = command(dir.path(), &["manager", "--config", "manager.toml"]);
        let manager = manager.stderr(Stdio::piped()).spawn().expect("a manager");
        let house = House {
            dir,
            manager: Running(manager),
        };
        while tranship_sys::socket::connect(&house.at("m.sock")).is_err() {
            std::thread::yield_now();
        }
        house
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its exit code and what it says of it.
    fn said(&self, arguments: &[&str]) -> (Option<i32>, String) {
        said(&mut command(self.dir.path(), arguments))
    }

    fn begin(&self, arguments: &[&str]) -> Running {
        Running(command(self.dir.path(), arguments).spawn().expect("it"))
    }
}

/// The program in a folder, whose manager is at `m.sock`.
fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command
        .args(arguments)
        .current_dir(dir)
        .env("TRANSHIP_SOCKET", dir.join("m.sock"))
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("running");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn each_mistake_is_named() {
    let _dog = Watchdog::new();
    let house = House::new("");
    std::fs::write(house.at("file"), "").expect("a file");
    let deep = "p".repeat(120);
    std::fs::create_dir(house.at(&deep)).expect("a folder");
    let long = house.at(&deep).display().to_string();
    let nbd = format!("unix:{long}");
    let free = ["-l", "0"];
    let disk = ["block", "serve", "local:x", "disk", "--size", "1MiB"];
    let cache = |more: &[&'static str]| [&["cache"], &free[..], more].concat();
    let cases: Vec<(Vec<&str>, &[&str])> = vec![
        // What no socket can be called.
        (
            vec!["metrics", "--unix", &long],
            &["a socket's has at most 107"],
        ),
        (
            [&disk[..], &["--nbd", &nbd]].concat(),
            &["a socket's has at most 107"],
        ),
        (
            [&cache(&["--take-over"])[..], &[&long]].concat(),
            &["a socket's has at most 107", "taking over at"],
        ),
        (
            vec!["manager", "--socket", &long],
            &["a socket's has at most 107"],
        ),
        // Which option of a cache it was.
        (
            cache(&["--take-over", "/no/dir/x.sock"]),
            &["taking over at /no/dir/x.sock: No such file"],
        ),
        (
            cache(&["--take-over", "file"]),
            &["taking over at file: it is no socket"],
        ),
        (cache(&["--memory", "100TiB"]), &["bytes of memory: "]),
        (cache(&["-c", "0"]), &["-c", "1..=1000000"]),
        (cache(&["-t", "100000"]), &["-t", "1..=256"]),
        (cache(&["-m", "64"]), &["such as -m 64MiB"]),
        (vec!["cache", "-l", "here"], &["or a port alone"]),
        // Sizes and times.
        (
            vec!["send", "x", "--wait", "abc"],
            &["a time is a whole number and ms, s, m or h"],
        ),
        (
            vec!["send", "x", "--frame", "1.5MiB"],
            &["a size is a whole number and KiB"],
        ),
        // Files.
        (
            vec!["manager", "--socket", "file"],
            &["file is no socket: name another path"],
        ),
        (
            vec!["manager", "--config", "nofile"],
            &["tranship: cannot read nofile: No such file"],
        ),
        (vec!["ls", "--socket", "/"], &["it is no socket"]),
        // What was to be said and was not.
        (vec!["block", "bench", "tcp:127.0.0.1/disk"], &["no :PORT"]),
        (
            vec!["block", "bench", "tcp+plain:127.0.0.1:0/disk"],
            &["nobody could connect to port 0"],
        ),
        (
            vec!["cert", "issue", "bad name", "--ca", "ca"],
            &["`bad name` is neither a DNS name nor an IP address"],
        ),
    ];
    assert_eq!(house.said(&["cert", "init", "ca"]).0, Some(0));
    for (arguments, words) in cases {
        let (code, said) = house.said(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        for words in words {
            assert!(said.contains(words), "{arguments:?}: {words}: {said}");
        }
    }
    assert!(!house.at("bad name").exists());
}

#[test]
fn a_wrong_line_is_not_answered_by_a_wrong_usage() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let (code, said) = said(&mut command(dir.path(), &["send", "x", "f", "--bogus"]));
    assert_eq!(code, Some(2));
    assert!(
        said.contains("--bogus") && said.contains("--help"),
        "{said}"
    );
    assert!(!said.contains("<FILE>"), "it is optional: {said}");
}

#[test]
fn who_has_a_name_is_said() {
    let _dog = Watchdog::new();
    let house = House::new("");
    let first = house.begin(&["send", "k7"]);
    // The domain has the name when another one is listed with it.
    let listed = || {
        let mut ls = command(house.dir.path(), &["ls"]);
        let ls = ls.output().expect("ls").stdout;
        String::from_utf8_lossy(&ls).contains("k7")
    };
    while !listed() {
        std::thread::yield_now();
    }
    let (code, said) = house.said(&["send", "k7"]);
    assert_eq!(code, Some(2), "{said}");
    let who = format!("the name is taken (by process {}, domain ", first.0.id());
    assert!(said.contains(&who), "{said}");
    let mut cache = command(house.dir.path(), &["cache", "-l", "0", "--shm", "k7"]);
    let (_, said) = self::said(&mut cache);
    assert!(said.contains("showing values at `k7`"), "{said}");
}

#[test]
fn which_rule_keeps_somebody_out_is_said() {
    let _dog = Watchdog::new();
    let house = House::new(
        "[[export]]\nname = \"a\"\n[[bind]]\nname = \"a\"\n[[reserved]]\nname = \"r\"\nuid = 4294967294\n",
    );
    for (arguments, words) in [
        (["send", "films"], "no [[export]] rule lets uid "),
        (["recv", "films"], "no [[bind]] rule lets uid "),
        (["send", "r"], "a [[reserved]] rule keeps that name"),
    ] {
        let (code, said) = house.said(&arguments);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
    let strict = House::new("[[connect]]\nuid = 4294967294\n");
    let (code, said) = strict.said(&["ls"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no [[connect]] rule lets uid "), "{said}");
}

#[test]
fn looking_makes_nothing_and_the_doctor_looks_where_others_do() {
    let _dog = Watchdog::new();
    if Path::new("/run/tranship/manager.sock").exists() {
        return skipped("a manager of the system runs here");
    }
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("tranship/manager.sock");
    let look = |arguments: &[&str]| {
        let mut look = command(dir.path(), arguments);
        look.env_remove("TRANSHIP_SOCKET");
        let output = look.env("XDG_RUNTIME_DIR", dir.path()).output();
        let output = output.expect("running");
        let all = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&all).into_owned()
    };
    // Another place that would do, made earlier, does not come first.
    for arguments in [&["ls"][..], &["doctor"], &["top", "--once"]] {
        let said = look(arguments);
        let named = socket.display().to_string();
        assert!(said.contains(&named), "{arguments:?}: {said}");
        assert!(!dir.path().join("tranship").exists(), "{arguments:?}");
    }
    assert!(look(&["top", "--once"]).contains("`tranship manager` starts one"));
}

#[test]
fn a_page_that_is_not_ours_to_see_is_said_to_be_so() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let _dog = Watchdog::new();
    if !is_root() {
        return skipped("acting as another user needs root");
    }
    let house = House::new("");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(house.dir.path(), all).expect("a mode");
    // The program where that user can reach it.
    let program = house.at("tranship");
    let mut copy = Command::new("cp");
    let copied = copy.arg(env!("CARGO_BIN_EXE_tranship")).arg(&program);
    assert!(copied.status().expect("cp").success());
    let mut top = Command::new(&program);
    let top = top
        .args(["top", "--once", "--socket"])
        .arg(house.at("m.sock"));
    let (code, said) = said(top.uid(54_321).gid(54_321).current_dir("/"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("use `tranship stat`"), "{said}");
}

#[test]
fn a_hangup_says_that_a_new_configuration_needs_a_new_manager() {
    let _dog = Watchdog::new();
    let mut house = House::new("");
    let log = house.manager.0.stderr.take().expect("its log");
    // A process that has answered takes signals.
    assert_eq!(house.said(&["ls"]).0, Some(0));
    let pid = rustix::process::Pid::from_child(&house.manager.0);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("a signal");
    let mut log = BufReader::new(log).lines().map_while(Result::ok);
    assert!(
        log.any(|line| line.contains("Restart the manager")),
        "it ended"
    );
    assert_eq!(house.said(&["ls"]).0, Some(0));
}
