use super::stage::{Stage, top_at};
use serde_json::Value;
use tranship_testkit::{Exit, Said, Watchdog, folder, has};

fn run(stage: &Stage, more: &[&str]) -> Said {
    Said::of(&mut stage.top(more))
}

fn lines(said: Said) -> Vec<Value> {
    let text = said.well();
    let values = text.lines().map(|l| serde_json::from_str(l).expect("JSON"));
    values.collect()
}

fn named<'a>(all: &'a Value, list: &str, name: &str) -> &'a Value {
    let entries = all[list].as_array().expect("a list");
    let found = entries.iter().find(|e| e["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {all}"))
}

#[test]
fn it_says_what_there_is_and_what_moves() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    let arguments = ["--json", "--count", "2", "--every", "300ms"];
    let said = loop {
        let said = lines(run(&stage, &arguments));
        // The manager may have had no time.
        if said.iter().all(|look| look["silent_ns"] == 0) {
            break said;
        }
    };
    let [_, all] = &said[..] else {
        panic!("{said:?}");
    };
    assert_eq!(all["schema"], 1);
    assert!(all["span_ns"].as_u64() > Some(0));
    let video = named(all, "channels", "video");
    assert_eq!((&video["taken"], &video["depth"]), (&1.into(), &2.into()));
    assert_eq!(
        (&video["stalls"], &video["waiting_ns"]),
        (&0.into(), &0.into())
    );
    let frames = named(all, "pools", "frames");
    assert_eq!(
        frames["writer_label"],
        named(all, "domains", "camera")["label"]
    );
    assert_eq!(frames["waiters"], 0);
    let holder = &all["holders"][0];
    assert_eq!(
        (&holder["buffers"], &holder["bytes"]),
        (&1.into(), &4096.into())
    );
    assert!(holder["held_ms"].as_u64().is_some(), "{holder}");
    assert!(
        holder["label"]
            .as_str()
            .is_some_and(|l| l.starts_with("viewer#"))
    );

    let text = run(&stage, &["--once", "--show", "holders"]).well();
    has(&text, &["viewer#", "frames#"]);
    assert!(!text.contains("channels\n"), "{text}");
}

#[test]
fn who_waits_is_shown_with_whom_it_waits_for() {
    let _dog = Watchdog::new();
    let mut stage = Stage::new();
    let socket = stage.socket();
    let (pool, sender) = (stage.pool.clone(), &mut stage.sender);
    // One buffer is out: the viewer has it.
    let all_memory: Vec<_> = (0..7)
        .map(|_| pool.alloc(64 << 10).expect("room"))
        .collect();
    let all = std::thread::scope(|s| {
        // One caller more than there is memory for, and more than there are lines.
        s.spawn(|| drop(pool.alloc(64 << 10).expect("alloc")));
        s.spawn(|| (0..20).for_each(|_| sender.send(b"x").map(drop).expect("send")));
        let all = loop {
            let mut top = top_at(&socket, &["--json", "--count", "1"]);
            let all = lines(Said::of(&mut top)).remove(0);
            if all["blocked"].as_array().is_some_and(|b| b.len() == 2) {
                break all;
            }
        };
        drop(all_memory);
        for _ in 0..18 {
            drop(stage.receiver.recv().expect("recv"));
        }
        all
    });
    let blocked = all["blocked"].as_array().expect("a list");
    let wants = |what: &str| {
        let found = blocked
            .iter()
            .find(|b| b["wants"].as_str().is_some_and(|w| w.starts_with(what)));
        found.unwrap_or_else(|| panic!("{what}: {blocked:?}"))
    };
    let room = wants("room in video#");
    assert!(
        room["on"][0]
            .as_str()
            .is_some_and(|on| on.starts_with("viewer#")),
        "{room}"
    );
    assert!(room["waiting_ns"].as_u64() > Some(0));
    let memory = wants("memory of frames#");
    assert_eq!(memory["callers"], 1);
    assert!(memory["on"].to_string().contains("viewer#"), "{memory}");
    let video = named(&all, "channels", "video");
    assert_eq!(video["depth"], 16);
    assert!(video["stalls"].as_u64() > Some(0));
}

#[test]
fn a_manager_that_hangs_or_is_dead_is_said_to_be_and_what_was_is_shown() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    lines(run(&stage, &["--once", "--json"]));
    stage.home.manager.signal(libc::SIGSTOP);
    let hung = lines(run(&stage, &["--once", "--json"])).remove(0);
    assert!(hung["silent_ns"].as_u64() > Some(1_000_000_000), "{hung}");
    assert_eq!(hung["manager_state"], "stopped");
    assert_eq!(named(&hung, "channels", "video")["depth"], 2);
    let text = run(&stage, &["--batch", "--count", "1"]).well();
    has(&text, &["has been silent for", "is stopped"]);
    stage.home.manager.signal(libc::SIGCONT);
    // The answer to a question from meanwhile may be older than this.
    while lines(run(&stage, &["--once", "--json"]))[0]["silent_ns"] != 0 {}
    stage.home.manager.signal(libc::SIGKILL);
    let dead = loop {
        let dead = lines(run(&stage, &["--once", "--json"])).remove(0);
        if dead["silent_ns"] != 0 {
            break dead;
        }
    };
    assert_eq!(dead["manager_state"], "ended");
    assert_eq!(
        named(&dead, "pools", "frames")["quota_bytes"],
        8 * (64 << 10)
    );
}

#[test]
fn without_a_page_or_a_terminal_it_says_what_to_do() {
    let _dog = Watchdog::new();
    let dir = folder().expect("a folder");
    let socket = dir.path().join("no.sock");
    Said::of(&mut top_at(&socket, &["--once"])).ends(3, &["no.sock.stat"]);
    Said::of(&mut top_at(&socket, &[])).ends(2, &["--batch"]);
}

/// A page goes with a manager that ends in order, and nothing is left beside the socket.
#[test]
fn a_manager_that_ends_in_order_takes_its_page_along() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    lines(run(&stage, &["--once", "--json"]));
    stage.home.manager.signal(libc::SIGTERM);
    assert_eq!(stage.home.manager.wait(), Exit::Code(0));
    let left = std::fs::read_dir(stage.socket().parent().expect("a folder")).expect("it");
    let left: Vec<_> = left.flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["m.sock.ids"]);
}
