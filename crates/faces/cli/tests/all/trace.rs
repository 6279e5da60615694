//! `tranship trace`: a buffer's life as a time line, and as JSON; switched on and off while programs run.

use super::kit::{embedded, joined, place};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tranship::{PoolOptions, Receiver, Sender};
use tranship_testkit::{Running, Said, Watchdog, tranship};

fn command(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = tranship(&["trace"]);
    command.args(arguments).arg("--socket").arg(socket);
    command
}

fn trace(socket: &Path, arguments: &[&str]) -> Said {
    Said::of(&mut command(socket, arguments))
}

#[test]
fn a_buffers_life_is_shown() {
    let _dog = Watchdog::new();
    let (_dir, socket) = place();
    let trace = |arguments: &[&str]| trace(&socket, arguments);
    let camera = embedded("camera", &socket, "");
    let display = joined("display", &socket);
    let pool = camera.create_pool(PoolOptions::new(1 << 20).name("frames"));
    let pool = pool.expect("pool");
    let listener = display.listen::<Receiver>("video").expect("listen");
    let accepts = std::thread::spawn(move || listener.accept().expect("receiver"));
    let mut sender = camera.open::<Sender>("video").expect("sender");
    let mut receiver = accepts.join().expect("no panic");
    // The receiver agrees to the pool when it is asked.
    let mut receive = move || loop {
        if let Some(message) = receiver.try_recv().expect("alive") {
            return message.into_buffer().expect("a buffer");
        }
    };
    // Each buffer has a word of its own: one that passed before both had heard of the tracing has half of a path.
    let mut word = 4710;
    let mut pass = || {
        word += 1;
        let buf = pool.alloc(3000).expect("room");
        sender.send((buf.freeze(), 7 << 32 | word)).expect("sent");
        let buf = receive();
        let id = buf.id();
        let id = format!("{}:{}:{}", id.pool().0, id.slot(), id.generation());
        (id, word)
    };
    pass();

    let none = trace(&["frames"]);
    none.ends(1, &[]);
    assert!(none.out.contains("tranship trace --on POOL"), "{none:?}");
    let on = trace(&["--on", "frames"]).well();
    assert_eq!(on, format!("pool frames#{} is traced\n", pool.id().0));
    // Until both processes have heard of the tracing.
    let (id, word) = loop {
        let (id, word) = pass();
        let said = trace(&[&id, "--json"]);
        if said.code != Some(0) {
            continue;
        }
        let all = said.json();
        assert_eq!(all["buffers"][0]["buffer"], id.as_str());
        let events = all["buffers"][0]["events"].as_array().expect("events");
        if events.len() == 4 {
            assert_eq!(events[1]["domain_name"], "camera");
            assert_eq!(events[1]["length"], 3000);
            break (id, word.to_string());
        }
    };
    let life = trace(&[&id]).well();
    let order = [
        "camera#",
        "allocated",
        "sent to display#",
        "received from camera#",
        "released",
    ];
    let mut rest = life.as_str();
    for part in order {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part}: {life}"));
        rest = &rest[at + part.len()..];
    }
    let of_one = trace(&["display"]).well();
    assert!(
        !of_one.contains("allocated") && of_one.contains("received"),
        "{of_one}"
    );
    let path = trace(&["--word", &word]).well();
    let (sent, received) = (
        path.find("sent to display#"),
        path.find("received from camera#"),
    );
    assert!(sent.is_some() && sent < received, "{path}");
    assert!(!path.contains("allocated"), "{path}");
    let path = trace(&["--word", &word, "--json"]).json();
    assert_eq!(path["events"][0]["word"].to_string(), word, "{path}");
    trace(&["--word", "7"]).ends(1, &[]);
    let off = trace(&["--off", "frames"]).well();
    assert!(off.ends_with("is not traced\n"), "{off}");

    for (arguments, why) in [
        (&["nothing"][..], "no pool or domain `nothing`"),
        (&["--on", "camera"], "name a pool"),
        (&["--on"], "required"),
        (&["--on", "--off", "frames"], "cannot be used with"),
    ] {
        trace(arguments).ends(2, &[why]);
    }
}

#[test]
fn who_follows_sees_what_happens_meanwhile() {
    let _dog = Watchdog::new();
    let (dir, socket) = place();
    let domain = embedded("app", &socket, "");
    let pool = domain.create_pool(PoolOptions::new(1 << 20).name("frames"));
    let pool = pool.expect("pool");
    let file = dir.path().join("events");
    // On a slow machine the time may be over before the pool's domain has heard of it: then another one follows.
    let first = loop {
        let written = std::fs::File::create(&file).expect("a file");
        let mut follows = command(&socket, &["--follow", "frames", "--for", "500ms", "--json"]);
        let mut follows = Running::start(follows.stdout(written));
        while follows.0.try_wait().expect("its state").is_none() {
            drop(pool.alloc(100).expect("room"));
            std::thread::yield_now();
        }
        let text_of = std::fs::read_to_string(&file).expect("its output");
        if let Some(first) = text_of.lines().next() {
            break serde_json::from_str::<Value>(first).expect("JSON");
        }
    };
    assert_eq!(first["domain_name"], "app");
    assert!(
        first["did"] == "allocated" || first["did"] == "released",
        "{first}"
    );
    // The follower has left, and nothing is traced any more.
    let off = trace(&socket, &["--off", "frames"]).well();
    assert!(off.ends_with("is not traced\n"), "{off}");
}
