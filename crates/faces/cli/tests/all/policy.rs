//! `tranship policy`: what there is, and traces of what a manager does.

use super::kit::{MIB, embedded, place, pool};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::{Said, Watchdog, folder, tranship};

fn policy(arguments: &[&str]) -> Said {
    Said::of(tranship(&["policy"]).args(arguments))
}

#[test]
fn policies_are_listed() {
    let listed = policy(&["list", "--json"]).json();
    let plain = policy(&["list"]).well();
    let policies = listed["policies"].as_array().expect("a list");
    let names = policies.iter().map(|p| p["name"].as_str().expect("a name"));
    assert!(policies.len() > 3 && names.clone().all(|name| plain.contains(name)));
}

#[test]
fn what_a_running_manager_tells_is_recorded() {
    let _dog = Watchdog::new();
    let dir = folder().expect("a folder");
    let file = dir.path().join("t.jsonl");
    let domain = embedded("camera", &dir.path().join("m.sock"), "");
    let pool = pool(&domain, "frames", 8 * MIB, MIB);
    let held = pool.alloc(3 << 20).expect("room");
    let name = file.to_str().expect("text");
    let record = |socket: &Path| {
        let times = ["--every", "10ms", "--for", "50ms", "--socket"];
        let mut record = tranship(&["policy", "record", name]);
        Said::of(record.args(times).arg(socket))
    };
    record(&dir.path().join("m.sock")).ends(0, &[]);
    let text = std::fs::read_to_string(&file).expect("a trace");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("{\"tranship_trace\":1}"));
    let seen: Vec<Value> = lines
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    let frames = &seen.last().expect("a snapshot")["pools"][0];
    assert_eq!(
        (&frames["name"], &frames["live_bytes"]),
        (&"frames".into(), &(3 << 20).into())
    );
    assert_eq!(seen.len(), 6);
    drop(held);
    // What it is played by.
    let lab = tranship_testkit::artifact("tranship-lab", "tranship-lab");
    Said::of(Command::new(lab).args(["simulate", name, "--json"])).json();
    record(&dir.path().join("none.sock")).ends(3, &[]);
}

/// A policy gives a new pool no more than it needs, which is nothing at first.
#[test]
fn a_frame_that_is_larger_than_a_first_quota_is_waited_for() {
    let _dog = Watchdog::new();
    let (dir, socket) = place();
    let _manager = embedded("app", &socket, "policy = \"qos\"\ngrace = \"1ms\"");
    let bytes: Vec<u8> = (0..2_000_000u32)
        .map(|i| (i % 251).to_le_bytes()[0])
        .collect();
    let film = dir.path().join("film");
    std::fs::write(&film, &bytes).expect("a film");
    let run = |what: &str| {
        let mut command = tranship(&[what, "films", "--socket"]);
        command.arg(&socket);
        command
    };
    // Whether the policy comes before the program's look is chance.
    for _ in 0..10 {
        let sending = run("send").arg(&film).stderr(Stdio::piped()).spawn();
        let mut receiving = run("recv").stdout(Stdio::piped()).spawn().expect("recv");
        let mut out = receiving.stdout.take().expect("its output");
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            out.read_to_end(&mut all).map(|_| all)
        });
        let sent = sending.expect("send").wait_with_output().expect("its end");
        if !sent.status.success() {
            receiving.kill().expect("SIGKILL");
        }
        let ended = receiving.wait().expect("its end");
        assert!(sent.status.success(), "{sent:?}");
        let received = reading.join().expect("no panic").expect("what came");
        assert!(
            ended.success() && received == bytes,
            "{} bytes",
            received.len()
        );
    }
}
