//! `tranship topic` and `tranship service`: what they list, measure, print, publish and call, and what they say where
//! nothing comes.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tranship::Domain;
use tranship::queue::Queues as _;
use tranship::service::{ServiceOptions, Services as _};
use tranship::topic::{SubscriberOptions, TopicOptions, Topics as _, WhenBehind};
use tranship_testkit::{Watchdog, start_manager};

/// A manager, and programs that ask it.
struct World {
    _dog: Watchdog,
    _manager: tranship_testkit::Peer,
    folder: tempfile::TempDir,
}

impl World {
    fn new(config: &str) -> World {
        let dog = Watchdog::new();
        let folder = tranship_testkit::folder().expect("a folder");
        let manager = start_manager(&folder.path().join("m.sock"), config);
        World {
            _dog: dog,
            _manager: manager,
            folder,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("m.sock")
    }

    fn domain(&self, name: &str) -> Domain {
        let domain = Domain::builder().name(name).socket(self.socket());
        domain.helper_thread(true).connect().expect("a domain")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tranship(&self.socket(), arguments);
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("running")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn tranship(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command
        .args(arguments)
        .env("TRANSHIP_SOCKET", socket)
        .env_remove("RUST_LOG");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program whose lines are read as they come.
fn started(mut command: Command) -> (Child, impl Iterator<Item = String>) {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    (child, lines.map(|line| line.expect("a line")))
}

/// Returns what a program writes to a terminal.
fn on_a_terminal(mut command: Command) -> String {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let outside = openpt(flags).expect("a terminal");
    grantpt(&outside).expect("it");
    unlockpt(&outside).expect("it");
    let name = ptsname(&outside, Vec::new()).expect("its name");
    let mut inside = File::options();
    inside.write(true).custom_flags(libc::O_NOCTTY);
    let inside = inside.open(name.to_str().expect("text"));
    let child = command.stdout(inside.expect("its other side")).spawn();
    drop(command); // it has the terminal, too
    let (mut said, mut outside) = (Vec::new(), File::from(outside));
    // An error says that nobody has the terminal any more.
    let _ = outside.read_to_end(&mut said);
    assert!(child.expect("started").wait().expect("its end").success());
    text(&said)
}

/// Publishes until it is told to stop.
fn while_published<R>(world: &World, name: &str, go: impl FnOnce() -> R) -> R {
    let camera = world.domain("camera");
    let mut publisher = camera.publish(name).expect("a topic");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut frame = publisher.alloc(3000).expect("memory");
                frame[..5].copy_from_slice(b"frame");
                publisher.send((frame, 60)).expect("published");
                thread::sleep(Duration::from_millis(2)); // the rate that is measured
            }
        });
        let done = go();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn topics_are_listed_with_those_at_them() {
    let world = World::new("");
    assert_eq!(
        world.json(&["topic", "ls", "--json"])["topics"],
        serde_json::json!([])
    );
    while_published(&world, "camera", || {
        let viewer = world.domain("viewer");
        let mut video = viewer.subscribe("camera").expect("a subscription");
        let message = video.recv().expect("a message");
        let mut waits = viewer.subscribe("lidar").expect("a subscription");
        assert!(waits.try_recv().expect("nothing").is_none());

        let listed = text(&world.run(&["topic", "ls"]).stdout);
        let rows: Vec<Vec<&str>> = listed
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["camera", "1", "1", "0"], "{listed}");
        assert_eq!(rows[2], ["lidar", "0", "0", "1"], "{listed}");
        assert_eq!(
            text(&world.run(&["topic", "ls", "--names"]).stdout),
            "camera\nlidar\n"
        );

        let all = world.json(&["topic", "info", "camera", "--json"]);
        let topic = &all["topic"];
        assert_eq!(topic["offered_by"][0]["pid"], std::process::id());
        assert!(
            topic["offered_by"][0]["label"]
                .as_str()
                .expect("a label")
                .starts_with("camera#")
        );
        // The manager looks once a period.
        let keeps =
            || world.json(&["topic", "info", "camera", "--json"])["topic"]["readers"][0].clone();
        while keeps()["kept_buffers"] == 0 {}
        let reader = keeps();
        assert!(
            reader["label"]
                .as_str()
                .expect("a label")
                .starts_with("viewer#"),
            "{reader}"
        );
        assert!(reader["kept_bytes"].as_u64() >= Some(3000), "{reader}");
        // The publisher says of one subscriber after the other what it has still to take.
        while keeps()["behind_ns"] == 0 {}
        assert!(keeps()["behind"].as_u64() >= Some(1));
        let shown = text(&world.run(&["topic", "info", "camera"]).stdout);
        assert!(
            shown.contains("publisher") && shown.contains("subscriber"),
            "{shown}"
        );
        drop(message);
    });
}

/// `top` names the subscriber for which a publisher waits: its process, and for how long it has taken nothing.
#[test]
fn a_subscriber_that_holds_a_publisher_back_is_named() {
    let world = World::new("");
    let (camera, viewer) = (world.domain("camera"), world.domain("viewer"));
    let waits = WhenBehind::Wait(Duration::from_secs(3600));
    let options = TopicOptions::new().depth(4).when_behind(waits);
    let mut publisher = camera.publish_with("camera", options).expect("a topic");
    let reliable = SubscriberOptions::new().reliable();
    let mut stands = viewer
        .subscribe_with("camera", reliable)
        .expect("a subscription");
    while !stands.status().joined {
        assert!(stands.try_recv().expect("nothing").is_none());
    }
    thread::scope(|scope| {
        let sends = scope.spawn(|| {
            for n in 0..5 {
                publisher.send((b"x", n)).expect("published");
            }
        });
        let blocked = loop {
            let top = world.json(&["top", "--once", "--json"]);
            let blocked = top["blocked"][0].clone();
            let on = blocked["on"][0].as_str();
            if on.is_some_and(|on| on.contains("none for")) {
                break blocked;
            }
        };
        let (by, on) = (blocked["label"].as_str(), blocked["on"][0].as_str());
        let process = format!(" (process {}) has 4 to take, none for ", std::process::id());
        assert!(by.is_some_and(|by| by.starts_with("camera#")), "{blocked}");
        assert!(
            on.is_some_and(|on| on.starts_with("viewer#") && on.contains(&process)),
            "{blocked}"
        );
        for n in 0..5 {
            assert_eq!(stands.recv().expect("a message").word, n);
        }
        sends.join().expect("published all");
    });
}

#[test]
fn rates_and_messages_are_printed() {
    let world = World::new("");
    while_published(&world, "camera", || {
        let output = world.run(&["topic", "hz", "camera", "--every", "100ms", "--count", "2"]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(
            said.contains("messages/s, gaps ") && !said.contains('\x1b'),
            "{said}"
        );
        // On a terminal each is written over the one before.
        let hz = ["topic", "hz", "camera", "--every", "50ms", "--count", "3"];
        let said = on_a_terminal(world.command(&hz));
        assert_eq!(said.matches("\r\x1b[K").count(), 3, "{said:?}");
        assert_eq!(said.lines().count(), 1, "{said:?}");

        let rate = world.json(&[
            "topic", "bw", "camera", "--every", "50ms", "--count", "1", "--json",
        ]);
        assert_eq!(rate["topic"], "camera");
        let period = &rate["period"];
        let (messages, bytes) = (period["messages"].as_u64(), period["bytes"].as_u64());
        assert_eq!(bytes, messages.map(|messages| messages * 3000), "{rate}");
        if messages > Some(0) {
            assert_eq!(
                (&period["smallest_bytes"], &period["largest_bytes"]),
                (&3000.into(), &3000.into())
            );
        }

        let said = text(
            &world
                .run(&["topic", "echo", "camera", "--count", "3", "--bytes", "5"])
                .stdout,
        );
        assert_eq!(
            said.lines().last(),
            Some("word 60, 3000 bytes: \"frame\"..."),
            "{said}"
        );
        let one = world.json(&[
            "topic", "echo", "camera", "--count", "1", "--json", "--bytes", "5",
        ]);
        assert_eq!((&one["word"], &one["length"]), (&60.into(), &3000.into()));
        assert_eq!(one["first_bytes"], "6672616d65");
        let raw = world
            .run(&["topic", "echo", "camera", "--count", "1", "--raw"])
            .stdout;
        assert_eq!((raw.len(), &raw[..5]), (3000, &b"frame"[..]));
    });
}

#[test]
fn a_shell_publishes_and_another_prints() {
    let world = World::new("");
    let (mut echo, mut lines) = started(world.command(&["topic", "echo", "words"]));
    let mut publish = tranship(&world.socket(), &["topic", "pub", "words", "--word", "7"]);
    let mut publish = publish.stdin(Stdio::piped()).spawn().expect("started");
    let mut input = publish.stdin.take().expect("its input");
    let long = "x".repeat(100);
    writeln!(input, "one\n\n{long}").expect("written");
    drop(input);
    assert!(publish.wait().expect("its end").success());
    for expected in ["word 7, 3 bytes: \"one\"", "word 7, 0 bytes: \"\""] {
        assert_eq!(lines.next().as_deref(), Some(expected));
    }
    assert!(
        lines
            .next()
            .expect("a line")
            .starts_with("word 7, 100 bytes: \"xxxx")
    );
    // The publisher has ended the topic.
    assert_eq!(lines.next(), None);
    assert!(echo.wait().expect("its end").success());

    let (mut echo, mut lines) = started(world.command(&["topic", "echo", "again"]));
    let args = [
        "topic", "pub", "again", "hello", "--count", "2", "--every", "1ms",
    ];
    assert!(world.run(&args).status.success());
    assert_eq!(
        lines.by_ref().filter(|line| line.contains("hello")).count(),
        2
    );
    assert!(echo.wait().expect("its end").success());
}

#[test]
fn what_does_not_come_is_explained() {
    let nowhere = tranship(Path::new("/nonexistent/socket"), &["topic", "hz", "camera"]);
    let output = { nowhere }.output().expect("running");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("no manager"), "{output:?}");

    let world = World::new("[[bind]]\nname = \"nobody\"\n[[bind]]\nname = \"idle\"\n");
    let wait = |name: &str| world.run(&["topic", "echo", name, "--wait", "20ms"]);
    let output = wait("nobody");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stderr).contains("no domain publishes topic `nobody`"),
        "{output:?}"
    );
    let output = world.run(&["topic", "info", "nobody"]);
    assert!(
        text(&output.stderr).contains("tranship topic ls"),
        "{output:?}"
    );

    // A publisher that is stopped: it takes nobody in.
    let mut idle = tranship(&world.socket(), &["topic", "pub", "idle"]);
    let mut idle = idle.stdin(Stdio::piped()).spawn().expect("started");
    while !text(&world.run(&["topic", "ls", "--names"]).stdout).contains("idle") {}
    let pid = idle.id().to_string();
    let stop = Command::new("kill").args(["-STOP", &pid]).status();
    assert!(stop.expect("kill").success());
    let domain = world.domain("here");
    let _channel = domain
        .listen::<tranship::Sender>("line")
        .expect("a channel");
    let output = wait("idle");
    let said = text(&output.stderr);
    assert!(
        said.contains(&pid) && said.contains("has not taken this subscriber in"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
    idle.kill().expect("killed");
    idle.wait().expect("its end");
    let output = world.run(&["topic", "info", "line"]);
    assert!(
        text(&output.stderr).contains("the name of a channel"),
        "{output:?}"
    );

    let output = wait("secret");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("access rules of the manager do not allow it"),
        "{output:?}"
    );
}

#[test]
fn services_are_listed_and_called() {
    let world = World::new("");
    let domain = world.domain("upper");
    let service = domain.serve("upper").expect("a service");
    let worker = thread::spawn(move || {
        loop {
            let request = service.recv().expect("a request");
            let said = request.to_vec();
            match &said[..] {
                b"end" => return drop(request.reply(b"ended")),
                b"fail" => drop(request.fail(b"no such word")),
                said => {
                    let mut reply = request.alloc(said.len()).expect("memory");
                    reply.copy_from_slice(&said.to_ascii_uppercase());
                    request.reply(reply).expect("answered");
                }
            }
        }
    });
    let listed = text(&world.run(&["service", "ls"]).stdout);
    let row: Vec<&str> = listed
        .lines()
        .nth(1)
        .expect("a service")
        .split_whitespace()
        .collect();
    assert_eq!(
        (row[0], row[2]),
        ("upper", &*std::process::id().to_string()),
        "{listed}"
    );
    assert_eq!(
        text(&world.run(&["service", "ls", "--names"]).stdout),
        "upper\n"
    );

    let output = world.run(&["service", "call", "upper", "a word"]);
    assert_eq!(text(&output.stdout), "A WORD", "{output:?}");
    let long = "long ".repeat(100);
    assert_eq!(
        text(&world.run(&["service", "call", "upper", &long]).stdout),
        "LONG ".repeat(100)
    );
    let output = world.run(&["service", "call", "upper", "fail"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("the service failed: no such word"),
        "{output:?}"
    );
    let output = world.run(&["service", "call", "lower", "x", "--timeout", "20ms"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no domain serves `lower`"),
        "{output:?}"
    );
    assert_eq!(
        text(&world.run(&["service", "call", "upper", "end"]).stdout),
        "ended"
    );
    worker.join().expect("the worker");
}

#[test]
fn all_processes_that_share_a_service_are_listed() {
    let world = World::new("");
    let shared = ["one", "two"].map(|name| {
        let domain = world.domain(name);
        let options = ServiceOptions::new().shared();
        let service = domain.serve_with("upper", options).expect("a service");
        (domain, service)
    });
    let listed = world.json(&["service", "ls", "--json"]);
    let services = listed["services"].as_array().expect("services");
    let one = services.first().expect("a service");
    assert_eq!(
        (services.len(), &one["name"]),
        (1, &"upper".into()),
        "{listed}"
    );
    let workers = one["workers"].as_array().expect("workers").iter();
    let ids: Vec<_> = workers.map(|worker| worker["domain"].as_u64()).collect();
    for (domain, _) in &shared {
        assert!(ids.contains(&Some(domain.id().0.into())), "{listed}");
    }
    assert_eq!(ids.len(), 2, "{listed}");
}

#[test]
fn bash_completes_the_names_of_topics_and_services() {
    if Command::new("bash").arg("--version").output().is_err() {
        return tranship_testkit::skipped("no bash here");
    }
    let world = World::new("");
    let domain = world.domain("names");
    let _publishers = ["cam 1", "cam2", "lidar"].map(|name| domain.publish(name).expect("a topic"));
    let _service = domain.serve("resize").expect("a service");
    let program = Path::new(env!("CARGO_BIN_EXE_tranship"));
    let complete = |words: &[&str]| {
        let script = format!(
            "PATH={}:$PATH; source <(tranship completions bash); COMP_WORDS=(tranship {}); COMP_CWORD={}; _tranship_names tranship '{}' x; printf '%s\n' \"${{COMPREPLY[@]}}\"",
            program.parent().expect("a folder").display(),
            words
                .iter()
                .map(|word| format!("'{word}' "))
                .collect::<String>(),
            words.len(),
            words[words.len() - 1],
        );
        let mut bash = Command::new("bash");
        bash.args(["-c", &script])
            .env("TRANSHIP_SOCKET", world.socket());
        text(&bash.output().expect("bash").stdout)
    };
    assert_eq!(complete(&["topic", "echo", "c"]), "cam\\ 1\ncam2\n");
    assert_eq!(complete(&["service", "call", ""]), "resize\n");
    assert!(complete(&["topic", "echo", "--"]).contains("--count"));
}

#[test]
fn what_waits_in_a_queue_is_shown_and_thrown_away() {
    let world = World::new("");
    let domain = world.domain("jobs");
    let mut producer = domain.produce("jobs").expect("a producer");
    for number in 0..3 {
        producer.send((b"a job", number)).expect("sent");
    }
    let output = world.run(&["queue", "peek", "nothing"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("no domain produces for queue `nothing`"),
        "{output:?}"
    );
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                producer.tend().expect("tended");
                thread::yield_now();
            }
        });
        let listed = text(&world.run(&["queue", "ls"]).stdout);
        assert!(
            listed
                .lines()
                .nth(1)
                .is_some_and(|line| line.starts_with("jobs ")),
            "{listed}"
        );
        assert_eq!(
            text(&world.run(&["queue", "ls", "--names"]).stdout),
            "jobs\n"
        );
        let said = text(
            &world
                .run(&["queue", "peek", "jobs", "--count", "3", "--wait", "60s"])
                .stdout,
        );
        let expected: Vec<String> = (0..3)
            .map(|n| format!("word {n}, 5 bytes: \"a job\""))
            .collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
        let one = world.json(&[
            "queue", "peek", "jobs", "--count", "1", "--wait", "60s", "--json",
        ]);
        assert_eq!(
            (&one["length"], &one["redelivered"]),
            (&5.into(), &true.into()),
            "{one}"
        );
        let mut gone = 0;
        while gone < 3 {
            let said = text(
                &world
                    .run(&["queue", "purge", "jobs", "--wait", "100ms"])
                    .stdout,
            );
            let count = said
                .split(' ')
                .next()
                .and_then(|count| count.parse::<u64>().ok());
            gone += count.expect("a count");
        }
        assert_eq!(gone, 3);
        stop.store(true, Ordering::Relaxed);
    });
    producer.wait_done(None).expect("nothing is left");
}
