//! `tranship policy`: what there is, and traces of what a manager does.

use serde_json::Value;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use tranship::{Domain, PoolOptions};
use tranship_testkit::Watchdog;

fn policy(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranship"))
        .arg("policy")
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .expect("running the program")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn policies_are_listed() {
    let listed = json(&policy(&["list", "--json"]));
    let plain = String::from_utf8(policy(&["list"]).stdout).expect("text");
    let policies = listed["policies"].as_array().expect("a list");
    let names = policies.iter().map(|p| p["name"].as_str().expect("a name"));
    assert!(policies.len() > 3 && names.clone().all(|name| plain.contains(name)));
}

#[test]
fn what_a_running_manager_tells_is_recorded() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let [socket, file] = ["m.sock", "t.jsonl"].map(|name| dir.path().join(name));
    let builder = Domain::builder().name("camera").socket(&socket);
    let domain = builder.helper_thread(true).embedded().expect("embedded");
    let options = PoolOptions::new(8 << 20)
        .chunk_bytes(1 << 20)
        .name("frames");
    let pool = domain.create_pool(options).expect("a pool");
    let held = pool.alloc(3 << 20).expect("room");
    let (socket, name) = (socket.to_str().expect("text"), file.to_str().expect("text"));
    let record = [
        "record", name, "--every", "10ms", "--for", "50ms", "--socket", socket,
    ];
    let output = policy(&record);
    assert!(output.status.success(), "{output:?}");
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
    let played = Command::new(lab)
        .args(["simulate", name, "--json"])
        .output();
    json(&played.expect("running the simulator"));
    let nobody = dir.path().join("none.sock");
    let nobody = ["record", name, "--socket", nobody.to_str().expect("text")];
    assert_eq!(policy(&nobody).status.code(), Some(3));
}

/// A policy gives a new pool no more than it needs, which is nothing at first.
#[test]
fn a_frame_that_is_larger_than_a_first_quota_is_waited_for() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let text = "policy = \"qos\"\ngrace = \"1ms\"";
    let config = tranship::manager::Config::parse(text).expect("a configuration");
    let builder = Domain::builder().name("app").config(config).socket(&socket);
    let _manager = builder.helper_thread(true).embedded().expect("embedded");
    let bytes: Vec<u8> = (0..2_000_000u32)
        .map(|i| (i % 251).to_le_bytes()[0])
        .collect();
    let film = dir.path().join("film");
    std::fs::write(&film, &bytes).expect("a film");
    let run = |what: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
        command.args([what, "films", "--socket"]).arg(&socket);
        command.stdin(Stdio::null()).env_remove("RUST_LOG");
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
