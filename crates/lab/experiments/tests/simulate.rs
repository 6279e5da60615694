//! `tranship-lab simulate` and `list`: what there is, and what it would do.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranship-lab"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("running the program")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn fails(arguments: &[&str], why: &[&str]) {
    let output = lab(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(why.iter().all(|why| said.contains(why)), "{said}");
}

#[test]
fn what_is_listed_can_be_simulated() {
    let listed = json(&lab(&["list", "--json"]));
    let names = |of: &str| -> Vec<String> {
        let all = listed[of].as_array().expect("a list").iter();
        all.map(|p| p["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let plain = String::from_utf8(lab(&["list"]).stdout).expect("text");
    let policies = names("policies");
    for scenario in names("scenarios") {
        let run = json(&lab(&["simulate", "--scenario", &scenario, "--json"]));
        let runs = run["runs"].as_array().expect("runs");
        let ran: Vec<&str> = runs.iter().filter_map(|r| r["policy"].as_str()).collect();
        assert!(ran.iter().eq(&policies), "{scenario}: {ran:?}");
        assert!(runs.iter().all(|r| r["frames"].is_null()), "not asked for");
        assert!(plain.contains(&scenario), "{plain}");
    }
}

#[test]
fn a_scenario_gives_tables() {
    let chosen = ["--policy", "qos", "--policy", "static"];
    let arguments = [&["simulate", "--scenario", "pressure:0.05"][..], &chosen].concat();
    let plain = String::from_utf8(lab(&arguments).stdout).expect("text");
    assert!(plain.contains("interferer") && plain.contains("qos") && !plain.contains("priority"));
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
    let run = json(&lab(&[
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
