//! `tranship topic` and `tranship service`: what they list, measure, print, publish and call, and what they say where
//! nothing comes.

use super::kit::{joined, terminal};
use serde_json::{Value, json};
use std::io::{Read as _, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tranship::queue::Queues as _;
use tranship::service::{ServiceOptions, Services as _};
use tranship::topic::{SubscriberOptions, TopicOptions, Topics as _, WhenBehind};
use tranship_testkit::{Home, Lines, Running, Said, has, skipped, tranship};

/// Returns what a program writes to a terminal.
fn on_a_terminal(mut command: Command) -> String {
    let (mut outside, inside) = terminal();
    let child = Running::start(command.stdout(inside));
    drop(command); // it has the terminal, too
    let mut said = Vec::new();
    // An error says that nobody has the terminal any more.
    let _ = outside.read_to_end(&mut said);
    child.ends_well();
    String::from_utf8_lossy(&said).into_owned()
}

/// Publishes until it is told to stop.
fn while_published<R>(home: &Home, name: &str, go: impl FnOnce() -> R) -> R {
    let camera = joined("camera", &home.socket());
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
    let home = Home::new("");
    assert_eq!(home.says("topic ls --json").json()["topics"], json!([]));
    while_published(&home, "camera", || {
        let viewer = joined("viewer", &home.socket());
        let mut video = viewer.subscribe("camera").expect("a subscription");
        let message = video.recv().expect("a message");
        let mut waits = viewer.subscribe("lidar").expect("a subscription");
        assert!(waits.try_recv().expect("nothing").is_none());

        let listed = home.says("topic ls").well();
        let rows: Vec<Vec<&str>> = listed
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["camera", "1", "1", "0"], "{listed}");
        assert_eq!(rows[2], ["lidar", "0", "0", "1"], "{listed}");
        assert_eq!(home.says("topic ls --names").well(), "camera\nlidar\n");

        let info = || home.says("topic info camera --json").json()["topic"].clone();
        let named = |one: &Value, name: &str| {
            let label = one["label"].as_str().expect("a label");
            assert!(label.starts_with(name), "{one}");
        };
        let offered = &info()["offered_by"][0];
        assert_eq!(offered["pid"], std::process::id());
        named(offered, "camera#");
        // The manager looks once a period.
        let keeps = || info()["readers"][0].clone();
        while keeps()["kept_buffers"] == 0 {}
        let reader = keeps();
        named(&reader, "viewer#");
        assert!(reader["kept_bytes"].as_u64() >= Some(3000), "{reader}");
        // The publisher says of one subscriber after the other what it has still to take.
        while keeps()["behind_ns"] == 0 {}
        assert!(keeps()["behind"].as_u64() >= Some(1));
        let shown = home.says("topic info camera").well();
        has(&shown, &["publisher", "subscriber"]);
        drop(message);
    });
}

/// `top` names the subscriber for which a publisher waits: its process, and for how long it has taken nothing.
#[test]
fn a_subscriber_that_holds_a_publisher_back_is_named() {
    let home = Home::new("");
    let (camera, viewer) = (
        joined("camera", &home.socket()),
        joined("viewer", &home.socket()),
    );
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
            let top = home.says("top --once --json").json();
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
    let home = Home::new("");
    while_published(&home, "camera", || {
        let said = home.says("topic hz camera --every 100ms --count 2").well();
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(
            said.contains("messages/s, gaps ") && !said.contains('\x1b'),
            "{said}"
        );
        // On a terminal each is written over the one before.
        let hz = ["topic", "hz", "camera", "--every", "50ms", "--count", "3"];
        let said = on_a_terminal(home.command(&hz));
        assert_eq!(said.matches("\r\x1b[K").count(), 3, "{said:?}");
        assert_eq!(said.lines().count(), 1, "{said:?}");

        let rate = home
            .says("topic bw camera --every 50ms --count 1 --json")
            .json();
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

        let said = home.says("topic echo camera --count 3 --bytes 5").well();
        assert_eq!(
            said.lines().last(),
            Some("word 60, 3000 bytes: \"frame\"..."),
            "{said}"
        );
        let one = home
            .says("topic echo camera --count 1 --json --bytes 5")
            .json();
        assert_eq!((&one["word"], &one["length"]), (&60.into(), &3000.into()));
        assert_eq!(one["first_bytes"], "6672616d65");
        let raw = home.says("topic echo camera --count 1 --raw").well();
        assert_eq!((raw.len(), &raw[..5]), (3000, "frame"));
    });
}

#[test]
fn a_shell_publishes_and_another_prints() {
    let home = Home::new("");
    let mut echo = Lines::of(&mut home.command(&["topic", "echo", "words"]));
    let mut publish = home.command(&["topic", "pub", "words", "--word", "7"]);
    let mut publish = Running::start(publish.stdin(Stdio::piped()));
    let mut input = publish.0.stdin.take().expect("its input");
    let long = "x".repeat(100);
    writeln!(input, "one\n\n{long}").expect("written");
    drop(input);
    publish.ends_well();
    for expected in ["word 7, 3 bytes: \"one\"", "word 7, 0 bytes: \"\""] {
        assert_eq!(echo.line(), expected);
    }
    assert!(echo.line().starts_with("word 7, 100 bytes: \"xxxx"));
    // The publisher has ended the topic.
    assert_eq!(echo.line(), "");
    echo.program.ends_well();

    let mut echo = Lines::of(&mut home.command(&["topic", "echo", "again"]));
    home.says("topic pub again hello --count 2 --every 1ms")
        .well();
    assert!([(); 2].iter().all(|()| echo.line().contains("hello")));
    assert_eq!(echo.line(), "");
    echo.program.ends_well();
}

#[test]
fn what_does_not_come_is_explained() {
    let mut nowhere = tranship(&["topic", "hz", "camera"]);
    nowhere.env("TRANSHIP_SOCKET", "/nonexistent/socket");
    Said::of(&mut nowhere).ends(3, &["no manager"]);

    let home = Home::new("[[bind]]\nname = \"nobody\"\n[[bind]]\nname = \"idle\"\n");
    let wait = |name: &str| home.says(&format!("topic echo {name} --wait 20ms"));
    wait("nobody").ends(1, &["no domain publishes topic `nobody`"]);
    has(&home.says("topic info nobody").err, &["tranship topic ls"]);

    // A publisher that is stopped: it takes nobody in.
    let mut idle = home.command(&["topic", "pub", "idle"]);
    let idle = Running::start(idle.stdin(Stdio::piped()));
    while !home.says("topic ls --names").well().contains("idle") {}
    idle.signal(libc::SIGSTOP);
    let domain = joined("here", &home.socket());
    let _channel = domain
        .listen::<tranship::Sender>("line")
        .expect("a channel");
    let pid = idle.0.id().to_string();
    wait("idle").ends(1, &[&pid, "has not taken this subscriber in"]);
    drop(idle);
    has(
        &home.says("topic info line").err,
        &["the name of a channel"],
    );

    wait("secret").ends(2, &["access rules of the manager do not allow it"]);
}

#[test]
fn services_are_listed_and_called() {
    let home = Home::new("");
    let domain = joined("upper", &home.socket());
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
    let listed = home.says("service ls").well();
    let row: Vec<&str> = listed
        .lines()
        .nth(1)
        .expect("a service")
        .split_whitespace()
        .collect();
    let pid = std::process::id().to_string();
    assert_eq!((row[0], row[2]), ("upper", &*pid), "{listed}");
    assert_eq!(home.says("service ls --names").well(), "upper\n");

    let call = |word: &str| home.run(&["service", "call", "upper", word]);
    assert_eq!(call("a word").well(), "A WORD");
    let long = "long ".repeat(100);
    assert_eq!(call(&long).well(), "LONG ".repeat(100));
    call("fail").ends(2, &["the service failed: no such word"]);
    let lower = home.says("service call lower x --timeout 20ms");
    lower.ends(1, &["no domain serves `lower`"]);
    assert_eq!(call("end").well(), "ended");
    worker.join().expect("the worker");
}

#[test]
fn all_processes_that_share_a_service_are_listed() {
    let home = Home::new("");
    let shared = ["one", "two"].map(|name| {
        let domain = joined(name, &home.socket());
        let options = ServiceOptions::new().shared();
        let service = domain.serve_with("upper", options).expect("a service");
        (domain, service)
    });
    let listed = home.says("service ls --json").json();
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
        return skipped("no bash here");
    }
    let home = Home::new("");
    let domain = joined("names", &home.socket());
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
            .env("TRANSHIP_SOCKET", home.socket());
        Said::of(&mut bash).out
    };
    assert_eq!(complete(&["topic", "echo", "c"]), "cam\\ 1\ncam2\n");
    assert_eq!(complete(&["service", "call", ""]), "resize\n");
    assert!(complete(&["topic", "echo", "--"]).contains("--count"));
}

#[test]
fn what_waits_in_a_queue_is_shown_and_thrown_away() {
    let home = Home::new("");
    let domain = joined("jobs", &home.socket());
    let mut producer = domain.produce("jobs").expect("a producer");
    for number in 0..3 {
        producer.send((b"a job", number)).expect("sent");
    }
    let peek = home.says("queue peek nothing");
    peek.ends(2, &["no domain produces for queue `nothing`"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                producer.tend().expect("tended");
                thread::yield_now();
            }
        });
        let listed = home.says("queue ls").well();
        assert!(
            listed
                .lines()
                .nth(1)
                .is_some_and(|line| line.starts_with("jobs ")),
            "{listed}"
        );
        assert_eq!(home.says("queue ls --names").well(), "jobs\n");
        let said = home.says("queue peek jobs --count 3 --wait 60s").well();
        let expected: Vec<String> = (0..3)
            .map(|n| format!("word {n}, 5 bytes: \"a job\""))
            .collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
        let one = home
            .says("queue peek jobs --count 1 --wait 60s --json")
            .json();
        assert_eq!(
            (&one["length"], &one["redelivered"]),
            (&5.into(), &true.into()),
            "{one}"
        );
        let mut gone = 0;
        while gone < 3 {
            let said = home.says("queue purge jobs --wait 100ms").out;
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
