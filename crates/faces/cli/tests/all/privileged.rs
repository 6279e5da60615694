//! A set-uid program does not run a program that its starter's environment names, nor join a manager that it names.

use super::kit::{copy_program, has_manager};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tranship_testkit::{Said, folder, is_root, skipped};

/// Returns the user that starts it and the user that the program belongs to: nobody else here, because they leave
/// folders by their number.
fn users() -> [u32; 2] {
    let number = std::process::id() % 5_000;
    [50_000 + number, 55_000 + number]
}

#[test]
fn a_set_uid_program_heeds_no_environment() {
    if !is_root() {
        return skipped("a set-uid program of another user needs root");
    }
    if has_manager() {
        return;
    }
    let dir = folder().expect("a folder");
    let [starter, owner] = users();
    let mount = rustix::fs::statvfs(dir.path()).expect("statvfs");
    if mount.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID) {
        return skipped("the temporary folder is mounted nosuid");
    }
    let mode = |path: &std::path::Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("a mode");
    };
    mode(dir.path(), 0o777);
    let program = dir.path().join("tranship");
    copy_program(&program);
    std::os::unix::fs::chown(&program, Some(owner), None).expect("its owner");
    let script = dir.path().join("evil.sh");
    let mark = dir.path().join("started");
    let text = format!("#!/bin/sh\nid >{}\nexit 1\n", mark.display());
    std::fs::write(&script, text).expect("a script");
    mode(&script, 0o755);
    let evil = dir.path().join("evil.sock");
    let _listener = tranship_sys::socket::listen(&evil, 0o666).expect("listen");
    let run = |variable: &str, value: &std::path::Path| {
        let mut command = Command::new(&program);
        command.args(["recv", "x"]).stdin(Stdio::null());
        command.env_clear().env(variable, value);
        // Without the set-uid bit it would follow the environment.
        command.uid(starter).gid(starter).current_dir("/");
        let said = Said::of(&mut command);
        for user in [starter, owner] {
            let _ = std::fs::remove_dir(format!("/tmp/tranship-{user}")); // made for a socket
        }
        said
    };

    mode(&program, 0o755);
    let said = run("TRANSHIP_BIN", &script);
    assert!(mark.exists(), "a plain program starts it: {said:?}");
    std::fs::remove_file(&mark).expect("the mark");

    mode(&program, 0o4755);
    for (variable, value) in [("TRANSHIP_BIN", &script), ("TRANSHIP_SOCKET", &evil)] {
        let said = run(variable, value);
        said.ends(3, &["privileged process"]);
        assert!(!said.err.contains("evil"), "{variable}: {said:?}");
        assert!(!mark.exists(), "{variable} was run");
    }
}
