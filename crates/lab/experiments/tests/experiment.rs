//! `tranship-lab experiment`, with real processes at a small scale, and simulated.
//!
//! What depends on how fast the machine is, is not asserted of real processes: figures, and most orderings. What holds on every machine (`always`) is.

use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use tranship_testkit::resource::working_in;
use tranship_testkit::{Running, Watchdog, artifact, folder, skipped, until};

/// Builds the web server that figures 9 to 11 are about.
fn build() {
    for (package, file) in [
        ("tranship-cli", "tranship"),
        ("tranship-web", "tranship-web"),
    ] {
        assert!(artifact(package, file).is_file());
    }
}

fn experiment(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranship-lab"))
        .arg("experiment")
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .expect("running the program")
}

/// Its object; the exit code says whether all orderings held. Nothing else was said, except that a server that is short
/// of time refused requests.
#[track_caller]
fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_late = |line: &str| line.ends_with(" requests were refused");
    assert!(said.lines().all(is_late), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let held = answer["held"].as_bool().expect("held");
    let code = if held { 0 } else { 5 };
    assert_eq!(output.status.code(), Some(code), "{}", answer["orderings"]);
    answer
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().expect("a list")
}

fn names(of: &Value) -> Vec<&str> {
    let runs = list(of, "runs").iter();
    runs.filter_map(|run| run["name"].as_str()).collect()
}

/// Checks that the orderings that hold on every machine do, and are there.
#[track_caller]
fn always_held(answer: &Value, count: usize) {
    let always = list(answer, "orderings").iter();
    let always: Vec<_> = always.filter(|o| o["always"] == true).collect();
    assert_eq!(always.len(), count, "{always:?}");
    assert!(always.iter().all(|o| o["held"] == true), "{always:?}");
}

/// Checks that every run was measured, and that its memory stayed within the total.
#[track_caller]
fn ran(run: &Value) {
    let memory = &run["memory"];
    let of = |name: &str| memory[name].as_u64().expect("a number");
    let total = of("total_bytes");
    assert_eq!(total, run["limit_pages"].as_u64().expect("pages") << 16);
    assert!(of("samples") > 0 && of("samples_beyond") == 0, "{memory}");
    for name in ["max_bytes", "granted_max_bytes", "quotas_max_bytes"] {
        assert!((1..=total).contains(&of(name)), "{name}: {memory}");
    }
    let frames = list(run, "frames");
    let last = frames.last().expect("frames")["at_ms"].as_u64();
    assert!(last >= Some(65_000), "{last:?} ms");
    for frame in frames {
        assert_eq!(
            (list(frame, "pools").len(), list(frame, "apps").len()),
            (8, 2)
        );
    }
}

/// The server's and the interferer's requests were served.
fn served(run: &Value) -> bool {
    (0..2).all(|app| {
        let mut rates = list(run, "frames")
            .iter()
            .map(|f| &f["apps"][app]["per_second"]);
        rates.any(|rate| rate.as_f64() > Some(0.0))
    })
}

/// The answer at the smallest scale at which requests were served, and the scale: a run of seconds can be over before a machine that has much
/// else to do has served one.
#[track_caller]
fn at_a_scale(arguments: &[&str]) -> (Value, &'static str) {
    let mut scales = ["0.05", "0.1", "0.2", "0.4"].into_iter();
    loop {
        let scale = scales.next().expect("requests are served at scale 0.4");
        let more = ["--scale", scale, "--json", "--frames"];
        let output = experiment(&[arguments, &more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("the server has answered nothing") {
            continue;
        }
        let answer = json(&output);
        list(&answer, "runs").iter().for_each(ran);
        if list(&answer, "runs").iter().all(served) {
            return (answer, scale);
        }
    }
}

#[test]
fn figure_9_compares_servers() {
    let _dog = Watchdog::new();
    build();
    let arguments = ["cbuf-fig9", "--quick", "--json"];
    let output = experiment(&arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    // A machine without the peers, or without a client, measures what it has.
    if said.contains("not measured") || said.contains("no client") {
        return skipped(said.trim());
    }
    let answer = json(&output);
    let points = list(&answer, "points");
    assert_eq!(points.len(), 7, "{points:?}");
    assert!(points.iter().all(|p| p["per_second"].as_f64() > Some(0.0)));
    assert!(points.iter().all(|p| p["failed"] == 0), "{points:?}");
    let always = if answer["machine"]["debug_build"] == true {
        2
    } else {
        3
    };
    always_held(&answer, always);
}

#[test]
fn figure_10_runs_with_processes() {
    let _dog = Watchdog::new();
    build();
    let (answer, scale) = at_a_scale(&["cbuf-fig10", "--policy", "throughput"]);
    assert_eq!(names(&answer), ["unlimited", "throughput"]);
    assert_eq!(
        (answer["scale"].as_f64(), answer["page_bytes"].as_u64()),
        (scale.parse().ok(), Some(64 << 10))
    );
    always_held(&answer, 2);
}

#[test]
fn figure_11_runs_with_processes() {
    let _dog = Watchdog::new();
    build();
    let (answer, _) = at_a_scale(&["cbuf-fig11", "--target", "0.25"]);
    assert_eq!(names(&answer), ["unlimited", "qos 25 %", "static"]);
    always_held(&answer, 3);
    // Quotas that nobody changes.
    let fixed = &list(&answer, "runs")[2];
    let each = fixed["limit_pages"].as_u64().expect("pages") / 8;
    let frames = list(fixed, "frames");
    let quotas = |frame: &Value| -> Vec<_> {
        let pools = list(frame, "pools").iter();
        pools.map(|p| p["quota_bytes"].as_u64()).collect()
    };
    assert!(frames.iter().all(|f| quotas(f) == [Some(each << 16); 8]));
}

/// Signals to the experiment's process alone. SIGKILL leaves it no time to end anything.
#[test]
fn a_web_server_ends_with_its_experiment() {
    let dog = Watchdog::new();
    build();
    for signal in [Signal::TERM, Signal::KILL] {
        dog.step(format_args!("{signal:?}"));
        let dir = folder().expect("a folder");
        let mut running = Running::start(
            Command::new(env!("CARGO_BIN_EXE_tranship-lab"))
                .args(["experiment", "cbuf-fig10", "--policy", "throughput"])
                .env("TMPDIR", dir.path())
                .env_remove("RUST_LOG")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        // The client starts when the server answers.
        let is_client = |said: &str| said.contains(" part client ");
        until(|| {
            working_in(dir.path())
                .iter()
                .any(|(_, said)| is_client(said))
        });
        running.signal(signal.as_raw());
        running.0.wait().expect("its end");
        until(|| working_in(dir.path()).is_empty());
    }
}

#[test]
fn figure_7_runs_with_processes() {
    let _dog = Watchdog::new();
    let output = experiment(&["cbuf-fig7", "--scale", "0.02", "--json"]);
    let answer = json(&output);
    let points = list(&answer, "points");
    assert_eq!(points.len(), 4 * 7);
    assert!(points.iter().all(|p| p["ns"].as_f64() > Some(0.0)));
    assert!(points.iter().all(|p| p["allocs"].as_u64() >= Some(2000)));
    always_held(&answer, 3);
}

/// Nothing of it depends on the machine, so all of it is asserted.
#[test]
fn simulated_figures_keep_their_orderings() {
    for (figure, runs, orderings) in [("cbuf-fig10", 5, 12), ("cbuf-fig11", 5, 12)] {
        let play = || json(&experiment(&[figure, "--simulated", "--json"]));
        let (once, again) = (play(), play());
        assert_eq!(once["held"], true, "{figure}: {}", once["orderings"]);
        assert_eq!(once["runs"], again["runs"], "{figure}");
        let found = (list(&once, "runs").len(), list(&once, "orderings").len());
        assert_eq!(found, (runs, orderings), "{figure}");
    }
}

#[test]
fn what_did_not_hold_is_said_and_has_its_own_code() {
    // No policy can make the server wait for so long: the interferer has no callers for all that memory.
    let output = experiment(&["cbuf-fig11", "--simulated", "--target", "0.97"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(
        said.contains("did not hold  qos holds the server within 2 points of 97.0 %"),
        "{said}"
    );
    assert!(said.contains("held          "), "{said}");
}

#[test]
fn what_cannot_be_run_says_why() {
    for (arguments, why) in [
        (
            &["cbuf-fig8"][..],
            "cbuf-fig7, cbuf-fig9, cbuf-fig10, cbuf-fig11",
        ),
        (&["cbuf-fig10", "--scale", "0"], "0.02 to 10"),
        (&["cbuf-fig10", "--policy", "best"], "\"best\""),
        (
            &["cbuf-fig11", "--policy", "priority"],
            "no run under priority",
        ),
        (&["cbuf-fig11", "--target", "0.1,1"], "below 1"),
        (&["cbuf-fig7", "--simulated"], "nothing to simulate"),
        (&["cbuf-fig9", "--simulated"], "nothing to simulate"),
    ] {
        let output = experiment(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}
