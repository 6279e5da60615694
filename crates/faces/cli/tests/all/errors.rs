//! Errors of the program say what is wrong and what would be right.

use super::kit::{copy_program, has_manager, place};
use std::process::Command;
use tranship_testkit::{Home, Running, Said, Watchdog, folder, has, is_root, listening, manager};
use tranship_testkit::{skipped, tranship, until};

#[test]
fn each_mistake_is_named() {
    let home = Home::new("");
    std::fs::write(home.path("file"), "").expect("a file");
    let deep = "p".repeat(120);
    std::fs::create_dir(home.path(&deep)).expect("a folder");
    let long = home.path(&deep).display().to_string();
    let bench = "block bench tcp+plain:127.0.0.1:0/disk";
    let disk = "block serve local:x disk --size 1MiB --nbd unix:LONG";
    let taken = "cache -l 0 --take-over /no/dir/x.sock";
    let cases: [(&str, &[&str]); 19] = [
        // What no socket can be called.
        ("metrics --unix LONG", &["a socket's has at most 107"]),
        (disk, &["a socket's has at most 107"]),
        (
            "cache -l 0 --take-over LONG",
            &["at most 107", "taking over at"],
        ),
        ("manager --socket LONG", &["a socket's has at most 107"]),
        // Which option of a cache it was.
        (taken, &["taking over at /no/dir/x.sock: No such file"]),
        (
            "cache -l 0 --take-over file",
            &["taking over at file: it is no socket"],
        ),
        ("cache -l 0 --memory 100TiB", &["bytes of memory: "]),
        ("cache -l 0 -c 0", &["-c", "1..=1000000"]),
        ("cache -l 0 -t 100000", &["-t", "1..=256"]),
        ("cache -l 0 -m 64", &["such as -m 64MiB"]),
        ("cache -l here", &["or a port alone"]),
        // Sizes and times.
        (
            "send x --wait abc",
            &["a time is a whole number and ms, s, m or h"],
        ),
        (
            "send x --frame 1.5MiB",
            &["a size is a whole number and KiB"],
        ),
        // Files.
        (
            "manager --socket file",
            &["file is no socket: name another path"],
        ),
        (
            "manager --config nofile",
            &["tranship: cannot read nofile: No such file"],
        ),
        ("ls --socket /", &["it is no socket"]),
        // What was to be said and was not.
        ("block bench tcp:127.0.0.1/disk", &["no :PORT"]),
        (bench, &["nobody could connect to port 0"]),
        (
            "cert issue bad!name --ca ca",
            &["`bad!name` is neither a DNS name nor an IP address"],
        ),
    ];
    home.says("cert init ca").ends(0, &[]);
    for (line, words) in cases {
        home.says(&line.replace("LONG", &long)).ends(2, words);
    }
    assert!(!home.path("bad!name").exists());
}

#[test]
fn a_wrong_line_is_not_answered_by_a_wrong_usage() {
    let _dog = Watchdog::new();
    let said = Said::of(&mut tranship(&["send", "x", "f", "--bogus"]));
    said.ends(2, &["--bogus", "--help"]);
    let listed = said.err.contains("<FILE>");
    assert!(!listed, "it is optional: {said:?}");
}

#[test]
fn who_has_a_name_is_said() {
    let home = Home::new("");
    let first = Running::start(&mut home.command(&["send", "k7"]));
    // The domain has the name when another one is listed with it.
    until(|| home.run(&["ls"]).out.contains("k7"));
    let who = format!("the name is taken (by process {}, domain ", first.0.id());
    home.run(&["send", "k7"]).ends(2, &[&who]);
    let cache = home.run(&["cache", "-l", "0", "--shm", "k7"]);
    has(&cache.err, &["showing values at `k7`"]);
}

#[test]
fn which_rule_keeps_somebody_out_is_said() {
    let home = Home::new(
        "[[export]]\nname = \"a\"\n[[bind]]\nname = \"a\"\n[[reserved]]\nname = \"r\"\nuid = 4294967294\n",
    );
    for (arguments, words) in [
        (["send", "films"], "no [[export]] rule lets uid "),
        (["recv", "films"], "no [[bind]] rule lets uid "),
        (["send", "r"], "a [[reserved]] rule keeps that name"),
    ] {
        home.run(&arguments).ends(2, &[words]);
    }
    let strict = Home::new("[[connect]]\nuid = 4294967294\n");
    let words = ["no [[connect]] rule lets uid "];
    strict.run(&["ls"]).ends(2, &words);
}

#[test]
fn looking_makes_nothing_and_the_doctor_looks_where_others_do() {
    let _dog = Watchdog::new();
    if has_manager() {
        return;
    }
    let dir = folder().expect("a folder");
    let socket = dir.path().join("tranship/manager.sock");
    let look = |arguments: &[&str]| {
        let mut look = tranship(arguments);
        look.current_dir(dir.path());
        let Said { out, err, .. } = Said::of(look.env("XDG_RUNTIME_DIR", dir.path()));
        out + &err
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
    let home = Home::new("");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(home.dir.path(), all).expect("a mode");
    // The program where that user can reach it.
    let program = home.path("tranship");
    copy_program(&program);
    let mut top = Command::new(&program);
    top.args(["top", "--once", "--socket"]).arg(home.socket());
    top.uid(54_321).gid(54_321).current_dir("/");
    Said::of(&mut top).ends(2, &["use `tranship stat`"]);
}

#[test]
fn a_hangup_says_that_a_new_configuration_needs_a_new_manager() {
    let _dog = Watchdog::new();
    let (_dir, socket) = place();
    let manager = listening(&manager(&socket, "").capture_stderr(), &socket);
    let looks = || {
        let mut ls = tranship(&["ls", "--socket"]);
        Said::of(ls.arg(&socket)).ends(0, &[]);
    };
    // A process that has answered takes signals.
    looks();
    manager.signal(libc::SIGHUP);
    until(|| manager.stderr().contains("Restart the manager"));
    looks();
}
