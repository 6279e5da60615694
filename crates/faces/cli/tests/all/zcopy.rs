//! `tranship zcopy explain` of a cache server that runs, and of one that has ended.

use super::kit::{Served, cache, say};
use std::io::Read;
use std::path::Path;
use tranship_testkit::{Lines, Said, Watchdog, has, tranship};

fn start(folder: Option<&Path>) -> Served {
    let mut command = cache(&["--threads", "1"]);
    if let Some(folder) = folder {
        command.env("TRANSHIP_ZCOPY_EXPLAIN", folder);
    }
    Lines::of(&mut command).into()
}

/// Asks for a long value a few times.
fn use_it(server: &Served) {
    let mut client = server.client();
    let set = [&b"set k 0 0 100000\r\n"[..], &[b'x'; 100_000], b"\r\n"].concat();
    assert_eq!(say(&mut client, &set), "STORED");
    for _ in 0..20 {
        assert_eq!(say(&mut client, b"get k\r\n"), "VALUE k 0 100000");
        let rest = 100_000 + b"\r\nEND\r\n".len();
        client.read_exact(&mut vec![0; rest]).expect("read");
    }
}

fn explain(args: &[&str]) -> Said {
    Said::of(tranship(&["zcopy", "explain"]).args(args))
}

fn check_json(said: Said, pid: u32) {
    let all = said.json();
    let programs = all["programs"].as_array().expect("a list");
    let ours = programs.iter().find(|program| program["pid"] == pid);
    let ours = ours.unwrap_or_else(|| panic!("{pid} is not there: {all}"));
    assert_eq!(ours["program"], "tranship");
    let counts = &ours["counts"];
    let bytes = |name: &str| counts[name].as_u64().expect("a number");
    assert!(bytes("referred_bytes") + bytes("copied_bytes") > 20 * 100_000);
    let choices = ours["choices"].as_array().expect("a list");
    let sends: u64 = choices
        .iter()
        .map(|choice| choice["sends"].as_u64().expect("a number"))
        .sum();
    assert_eq!(sends, bytes("sends"));
    assert!(
        choices.iter().all(|choice| choice["socket"] == "loopback"),
        "{all}"
    );
}

#[test]
fn a_server_that_runs_and_one_that_was_killed() {
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let server = start(None);
    let kept = start(Some(folder.path()));
    use_it(&server);
    use_it(&kept);
    let [pid, kept_pid] = [&server, &kept].map(|server| server.lines.program.0.id());
    for pid in [pid, kept_pid] {
        let text = explain(&[&pid.to_string()]).well();
        let title = format!("tranship (process {pid}): ");
        let parts = ["Ways, and why", "Why bytes were copied", "loopback"];
        has(&text, &[&[&*title][..], &parts].concat());
        check_json(explain(&["--json"]), pid);
    }
    // Killed, as nobody is asked.
    drop(server);
    drop(kept);
    let folder = folder.path().to_str().expect("UTF-8");
    check_json(explain(&[folder, "--json"]), kept_pid);
    let file = format!("{folder}/tranship.{kept_pid}.zcopy");
    has(&explain(&[&file]).well(), &["by reference"]);
    explain(&[&pid.to_string()]).ends(2, &[&format!("no process {pid}")]);
}

#[test]
fn what_has_no_counts_is_said() {
    let _dog = Watchdog::new();
    let empty = tempfile::tempdir().expect("a folder");
    let own = std::process::id().to_string();
    for (what, words) in [
        (
            empty.path().to_str().expect("UTF-8"),
            "TRANSHIP_ZCOPY_EXPLAIN",
        ),
        (&own, "has sent nothing by ZCopy"),
        ("/etc/hostname", "no page of ZCopy"),
        ("/no/such/file", "cannot be read"),
    ] {
        explain(&[what]).ends(2, &[words]);
    }
}
