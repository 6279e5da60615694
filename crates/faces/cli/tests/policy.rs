//! `tranship policy`: the list, and the simulation.

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

#[track_caller]
fn fails(arguments: &[&str], why: &[&str]) {
    let output = policy(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(why.iter().all(|why| said.contains(why)), "{said}");
}

#[test]
fn what_is_listed_can_be_simulated() {
    let listed = json(&policy(&["list", "--json"]));
    let names = |of: &str| -> Vec<String> {
        let all = listed[of].as_array().expect("a list").iter();
        all.map(|p| p["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let plain = String::from_utf8(policy(&["list"]).stdout).expect("text");
    let policies = names("policies");
    for scenario in names("scenarios") {
        let run = json(&policy(&["simulate", "--scenario", &scenario, "--json"]));
        let runs = run["runs"].as_array().expect("runs");
        let ran: Vec<&str> = runs.iter().filter_map(|r| r["policy"].as_str()).collect();
        assert!(ran.iter().eq(&policies), "{scenario}: {ran:?}");
        assert!(runs.iter().all(|r| r["frames"].is_null()), "not asked for");
        assert!(plain.contains(&scenario), "{plain}");
    }
}

#[test]
fn a_scenario_gives_tables_pictures_and_a_page() {
    let dir = tranship_testkit::folder().expect("a folder");
    let [svg, html] = ["a.svg", "a.html"].map(|name| dir.path().join(name));
    let (svg_name, html_name) = (svg.to_str().expect("text"), html.to_str().expect("text"));
    let chosen = ["--policy", "qos", "--policy", "static"];
    let mut arguments = vec!["simulate", "--scenario", "pressure:0.05"];
    arguments.extend(chosen);
    arguments.extend(["--svg", svg_name, "--html", html_name]);
    let plain = policy(&arguments);
    let plain = String::from_utf8(plain.stdout).expect("text");
    assert!(plain.contains("interferer") && plain.contains("qos") && !plain.contains("priority"));
    let [svg, html] = [svg, html].map(|path| std::fs::read_to_string(path).expect("a picture"));
    // Three plots for each policy.
    assert_eq!(svg.matches("<svg ").count(), 1 + 6);
    assert_eq!(svg.matches("</svg>").count(), 1 + 6);
    assert_eq!(html.matches("<svg ").count(), 6);
    assert_eq!(html.matches("<table>").count(), 2);
    // The namespace's name is no file.
    assert!(
        !html
            .replace("http://www.w3.org/2000/svg", "")
            .contains("http"),
        "of itself alone"
    );
}

#[test]
fn a_trace_is_played_as_it_was_recorded() {
    let dir = tranship_testkit::folder().expect("a folder");
    let file = dir.path().join("trace.jsonl");
    let mut text = "{\"tranship_trace\":1}\n".to_owned();
    for number in 1u64..=40 {
        let at = number * 250_000_000;
        let (blocked, quota) = (8 * at, 32 << 16);
        text += &format!(
            r#"{{"at_ns":{at},"limit_bytes":8388608,"pools":[{{"id":3,"name":"video","blocked_ns":{blocked},"live_bytes":2097152,"live_buffers":32,"quota_bytes":{quota},"grain_bytes":65536}}]}}"#
        );
        text.push('\n');
    }
    std::fs::write(&file, text).expect("writing");
    let file = file.to_str().expect("text");
    let run = json(&policy(&[
        "simulate",
        file,
        "--policy",
        "throughput",
        "--json",
        "--frames",
    ]));
    assert_eq!(run["limit_bytes"], 8 << 20);
    let frames = run["runs"][0]["frames"].as_array().expect("frames");
    let last = &frames.last().expect("frames")["pools"][0];
    // 32 in use and 8 that were waited for; and some headroom.
    let quota = last["quota_bytes"].as_u64().expect("bytes");
    assert!((40 << 16..50 << 16).contains(&quota), "{last}");
}

#[test]
fn what_cannot_be_played_is_an_error_that_says_what_can() {
    fails(&["simulate"], &["name a TRACE", "--scenario"]);
    fails(
        &["simulate", "--scenario", "storm"],
        &["`storm`", "paper", "pressure:TARGET"],
    );
    fails(
        &["simulate", "--scenario", "pressure:1.5"],
        &["`pressure:1.5`", "below 1"],
    );
    let unknown = ["simulate", "--scenario", "step", "--policy", "best"];
    fails(&unknown, &["\"best\"", "\"throughput\""]);
    fails(&["simulate", "no-such-file"], &["opening no-such-file"]);
    let dir = tranship_testkit::folder().expect("a folder");
    let file = dir.path().join("t.jsonl");
    let name = file.to_str().expect("text");
    std::fs::write(&file, "{\"tranship_trace\":1}\n{\"at_ns\":1}\n").expect("writing");
    fails(
        &["simulate", name],
        &["t.jsonl:2: no snapshot", "limit_bytes"],
    );
    std::fs::write(&file, "{\"tranship_trace\":1}\n").expect("writing");
    fails(&["simulate", name], &["a trace of 0 snapshots"]);
}

#[test]
fn what_a_running_manager_tells_is_recorded_and_can_be_played() {
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
    json(&policy(&["simulate", name, "--json"]));
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
