//! `tranship trace`: a buffer's life as a time line, and as JSON; switched on and off while programs run.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tranship::{Domain, PoolOptions, Receiver, Sender};
use tranship_testkit::Watchdog;

fn trace(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranship"))
        .arg("trace")
        .args(arguments)
        .arg("--socket")
        .arg(socket)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .expect("running the program")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn a_buffers_life_is_shown() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let camera = Domain::builder().name("camera").socket(&socket);
    let camera = camera.helper_thread(true).embedded().expect("embedded");
    let display = Domain::builder().name("display").socket(&socket);
    let display = display.helper_thread(true).connect().expect("connect");
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

    let none = trace(&socket, &["frames"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(text(&none).contains("tranship trace --on POOL"), "{none:?}");
    let on = text(&trace(&socket, &["--on", "frames"]));
    assert_eq!(on, format!("pool frames#{} is traced\n", pool.id().0));
    // Until both processes have heard of the tracing.
    let (id, word) = loop {
        let (id, word) = pass();
        let output = trace(&socket, &[&id, "--json"]);
        if !output.status.success() {
            continue;
        }
        let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(all["buffers"][0]["buffer"], id.as_str());
        let events = all["buffers"][0]["events"].as_array().expect("events");
        if events.len() == 4 {
            assert_eq!(events[1]["domain_name"], "camera");
            assert_eq!(events[1]["length"], 3000);
            break (id, word.to_string());
        }
    };
    let life = text(&trace(&socket, &[&id]));
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
    let of_one = text(&trace(&socket, &["display"]));
    assert!(
        !of_one.contains("allocated") && of_one.contains("received"),
        "{of_one}"
    );
    let path = text(&trace(&socket, &["--word", &word]));
    let (sent, received) = (
        path.find("sent to display#"),
        path.find("received from camera#"),
    );
    assert!(sent.is_some() && sent < received, "{path}");
    assert!(!path.contains("allocated"), "{path}");
    let path: Value =
        serde_json::from_slice(&trace(&socket, &["--word", &word, "--json"]).stdout).expect("JSON");
    assert_eq!(path["events"][0]["word"].to_string(), word, "{path}");
    let none = trace(&socket, &["--word", "7"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let off = text(&trace(&socket, &["--off", "frames"]));
    assert!(off.ends_with("is not traced\n"), "{off}");

    for (arguments, why) in [
        (&["nothing"][..], "no pool or domain `nothing`"),
        (&["--on", "camera"], "name a pool"),
        (&["--on"], "required"),
        (&["--on", "--off", "frames"], "cannot be used with"),
    ] {
        let output = trace(&socket, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn who_follows_sees_what_happens_meanwhile() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let builder = Domain::builder().name("app").socket(&socket);
    let domain = builder.helper_thread(true).embedded().expect("embedded");
    let pool = domain.create_pool(PoolOptions::new(1 << 20).name("frames"));
    let pool = pool.expect("pool");
    let file = dir.path().join("events");
    // On a slow machine the time may be over before the pool's domain has heard of it: then another one follows.
    let first = loop {
        let mut follows = Command::new(env!("CARGO_BIN_EXE_tranship"));
        follows.args(["trace", "--follow", "frames", "--for", "500ms"]);
        follows.arg("--json").arg("--socket").arg(&socket);
        let written = std::fs::File::create(&file).expect("a file");
        let child = follows.stdin(Stdio::null()).stdout(written).spawn();
        let mut child = child.expect("running");
        let status = loop {
            if let Some(status) = child.try_wait().expect("its state") {
                break status;
            }
            drop(pool.alloc(100).expect("room"));
            std::thread::yield_now();
        };
        assert!(status.success(), "{status}");
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
    let off = text(&trace(&socket, &["--off", "frames"]));
    assert!(off.ends_with("is not traced\n"), "{off}");
}
