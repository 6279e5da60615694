//! Rust, C and Python together: on one topic, one queue and one service, by the programs of `examples/python` and of the C
//! library's examples.

mod component;
mod typed;

use super::stage::{Stage, compiled, here, staged};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use tempfile::TempDir;
use tranship::Domain;
use tranship::queue::Queues as _;
use tranship::service::Services as _;
use tranship::topic::Topics as _;
use tranship_testkit::{Running, Watchdog};

/// A manager, and the programs of both languages.
struct World {
    _dog: Watchdog,
    stage: &'static Stage,
    folder: TempDir,
    domain: Domain,
    socket: PathBuf,
}

#[derive(Clone, Copy)]
enum Language {
    C,
    Python,
}

use Language::{C, Python};

impl World {
    fn new() -> Option<World> {
        let dog = Watchdog::within(super::stage::HOUR);
        let stage = staged()?;
        let domain = Domain::builder().name("rust").helper_thread(true);
        let domain = domain.embedded().expect("a domain");
        Some(World {
            _dog: dog,
            stage,
            folder: tranship_testkit::folder().expect("a folder"),
            socket: domain.socket_path().expect("a path"),
            domain,
        })
    }

    fn python(&self, script: &Path) -> Command {
        let mut command = Command::new(&self.stage.python);
        command.arg(script).env("PYTHONPATH", &self.stage.package);
        command
    }

    /// Starts the program of a language.
    fn start(&self, language: Language, name: &str, arguments: &[&str]) -> Running {
        let mut command = match language {
            C => {
                let source = format!("../capi/examples/{name}.c");
                Command::new(compiled(&source, self.folder.path()))
            }
            Python => {
                let file = if name == "queue" { "jobs" } else { name };
                self.python(&here(&format!("../../../examples/python/{file}.py")))
            }
        };
        self.spawn(command.args(arguments))
    }

    fn spawn(&self, command: &mut Command) -> Running {
        command.env("TRANSHIP_SOCKET", &self.socket);
        Running::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))
    }
}

/// Returns the output of a program that ended well.
fn said(program: Running) -> String {
    program.said().well()
}

#[test]
fn rust_c_and_python_share_a_topic() {
    let Some(world) = World::new() else { return };
    let viewers = [C, Python].map(|language| world.start(language, "topic", &["view", "rust"]));
    let mut publisher = world.domain.publish("rust").expect("a topic");
    publisher.wait_for(2, None).expect("two viewers");
    for number in 0..10 {
        let mut frame = publisher.alloc(4096).expect("memory");
        frame.fill(number);
        publisher
            .send((frame.freeze(), u64::from(number)))
            .expect("published");
    }
    drop(publisher);
    for viewer in viewers {
        let said = said(viewer);
        assert!(said.contains("frame 9 of 4096 bytes: 9\n"), "{said}");
    }
    for (publisher, viewer) in [(C, Python), (Python, C)] {
        let viewer = world.start(viewer, "topic", &["view", "other"]);
        said(world.start(publisher, "topic", &["publish", "other", "10"]));
        let said = said(viewer);
        assert!(said.contains("frame 9 of 4096 bytes: 9\n"), "{said}");
        assert!(said.contains("missed 0\n"), "{said}");
    }
}

#[test]
fn rust_c_and_python_share_a_queue() {
    let Some(world) = World::new() else { return };
    let mut producer = world.domain.produce("jobs").expect("a producer");
    let consumers =
        [C, Python].map(|language| world.start(language, "queue", &["consume", "jobs", "6"]));
    let producers =
        [C, Python].map(|language| world.start(language, "queue", &["produce", "jobs", "4"]));
    for number in 100..104 {
        producer.send((b"a job of Rust's", number)).expect("sent");
    }
    producer.wait_done(None).expect("done");
    drop(producer); // an idle one would have to be tended: consumers join it first
    producers
        .into_iter()
        .for_each(|producer| drop(said(producer)));
    let mut done: Vec<String> = consumers
        .into_iter()
        .flat_map(|consumer| {
            said(consumer)
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    done.sort();
    let rust = (100..104).map(|number| format!("job {number} of 15 bytes"));
    let others = (0..8).map(|number| format!("job {} of 1000 bytes", number / 2));
    let mut all: Vec<String> = others.chain(rust).collect();
    all.sort();
    assert_eq!(done, all);
}

#[test]
fn rust_c_and_python_call_each_others_services() {
    let Some(world) = World::new() else { return };
    for (server, caller) in [(C, Python), (Python, C)] {
        let serves = world.start(server, "service", &["serve", "sum", "2"]);
        let client = world.domain.client("sum").expect("a client");
        let answer = client.call(&[1, 2, 39]).expect("an answer").to_vec();
        assert_eq!(answer, 42u64.to_ne_bytes());
        assert_eq!(
            said(world.start(caller, "service", &["call", "sum", "AB"])),
            "131\n"
        );
        said(serves);
    }
    let service = world.domain.serve("rust").expect("a service");
    let worker = thread::spawn(move || {
        for _ in 0..2 {
            let request = service.recv().expect("a request");
            let len = request.len() as u64;
            request.reply(&len.to_ne_bytes()).expect("answered");
        }
    });
    for language in [C, Python] {
        let called = world.start(language, "service", &["call", "rust", "seven"]);
        assert_eq!(said(called), "5\n");
    }
    worker.join().expect("the worker");
}
