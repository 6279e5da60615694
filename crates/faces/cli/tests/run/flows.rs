//! Data through a program without deaths.

use crate::stage::Stage;
use tranship_testkit::{Said, Watchdog, has};

const FILTER: &str = r#"
[component.source]
run = ["COMPONENT", "source", "3", "10"]
ends = { out = "small" }
[component.upper]
run = ["tr", "a-z", "A-Z"]
stdin = "small"
stdout = "large"
[component.sink]
run = ["COMPONENT", "sink", "DIR/seen"]
ends = { in = "large" }
sandbox.write = ["DIR"]
[channel.small]
from = "source"
to = "upper"
[channel.large]
from = "upper"
to = "sink"
"#;

/// Two components in Rust, and a filter between them that knows nothing of channels.
#[test]
fn a_filter_takes_part() {
    let _dog = Watchdog::new();
    let stage = Stage::new(FILTER);
    stage.runs_well();
    let seen = stage.read("seen");
    assert!(seen.ends_with(" 30 bytes, PeerGone\n"), "{seen}");
    assert!(seen.contains(" A\n"), "{seen}");
}

#[test]
fn filters_alone_make_a_program() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        r#"
[component.words]
run = ["printf", "%s\\n", "three", "one", "two"]
stdout = "lines"
[component.sorts]
run = ["sort"]
stdin = "lines"
stdout = "sorted"
[component.writes]
run = ["sh", "-c", "cat > DIR/seen"]
stdin = "sorted"
sandbox.write = ["DIR"]
[channel.lines]
from = "words"
to = "sorts"
[channel.sorted]
from = "sorts"
to = "writes"
"#,
    );
    stage.runs_well();
    assert_eq!(stage.read("seen"), "one\nthree\ntwo\n");
}

#[test]
fn a_topic_a_queue_and_a_service_are_found_by_name() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        r#"
[component.eye]
run = ["COMPONENT", "publish", "1000000000"]
background = true
[component.viewer]
run = ["COMPONENT", "subscribe", "100", "DIR/viewed"]
sandbox.write = ["DIR"]
[component.boss]
run = ["COMPONENT", "jobs", "100"]
[component.worker]
run = ["COMPONENT", "work", "DIR/done"]
replicas = 3
background = true
sandbox.write = ["DIR"]
[component.server]
run = ["COMPONENT", "serve"]
ready_in = "60s"
background = true
[component.caller]
run = ["COMPONENT", "call", "100", "DIR/answered"]
after = ["server"]
sandbox.write = ["DIR"]
[topic.news]
from = "eye"
to = "viewer"
[queue.jobs]
from = "boss"
to = "worker"
[service.double]
from = "caller"
to = "server"
"#,
    );
    stage.runs_well();
    assert_eq!(stage.read("viewed"), "all came");
    assert_eq!(stage.read("answered"), "all answered");
    let done = stage.read("done");
    let mut done: Vec<u64> = done
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    done.sort_unstable();
    assert_eq!(done, (0..100).collect::<Vec<_>>());
}

/// What the file says of a channel whose receiver is not there holds: before there was one, as after it was.
#[test]
fn a_sender_without_a_receiver_waits_drops_or_fails() {
    let dog = Watchdog::new();
    for (when_down, became, came) in [
        ("wait", "Sent Sent Sent, lost none", "3 messages, 30 bytes"),
        (
            "drop",
            "Dropped Dropped Dropped, lost some",
            "1 messages, 10 bytes",
        ),
        (
            "fail",
            "NotConnected NotConnected NotConnected, lost none",
            "1 messages, 10 bytes",
        ),
    ] {
        dog.step(when_down);
        let stage = Stage::new(
            &r#"
[component.source]
run = ["COMPONENT", "early", "WHEN", "DIR/became"]
ready_in = "60s"
sandbox.write = ["DIR"]
[component.sink]
run = ["COMPONENT", "sink", "DIR/seen"]
after = ["source"]
ends = { in = "out" }
sandbox.write = ["DIR"]
[channel.out]
from = "source"
to = "sink"
when_down = "WHEN"
"#
            .replace("WHEN", when_down),
        );
        stage.runs_well();
        assert_eq!(stage.read("became"), became, "{when_down}");
        let seen = stage.read("seen");
        has(&seen, &[came]);
    }
}

/// The filter's first process ends after it has read an item, and before it wrote anything.
#[test]
fn an_item_is_done_when_a_filters_output_is_accepted() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        r#"
[component.words]
run = ["printf", "one\ntwo\n"]
stdout = "jobs"
[component.copies]
run = ["sh", "-c", "test -e DIR/once || { touch DIR/once; read word; exit 3; }; exec cat"]
stdin = "jobs"
stdout = "texts"
pause = "1ms"
background = true
sandbox.write = ["DIR"]
[component.writes]
run = ["sh", "-c", "head -c 8 > DIR/seen"]
stdin = "texts"
sandbox.write = ["DIR"]
[queue.jobs]
from = "words"
to = "copies"
[channel.texts]
from = "copies"
to = "writes"
"#,
    );
    stage.runs_well();
    assert_eq!(
        stage.read("seen"),
        "one
two
"
    );
}

/// The last receiver has what it wants: the components before it are ended, as a closed pipe would end them.
#[test]
fn a_source_whose_receivers_have_ended_is_stopped() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        r#"
[component.endless]
run = ["yes"]
stdout = "lines"
[component.few]
run = ["head", "-n", "3"]
stdin = "lines"
[channel.lines]
from = "endless"
to = "few"
"#,
    );
    assert_eq!(Said::from(stage.run(&[])).well(), "y\ny\ny\n");
    stage.nothing_is_left();
}
