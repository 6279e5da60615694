//! Deaths of processes of a program: what the others see.

use crate::stage::{Stage, wait_for};
use std::io::{BufRead, BufReader};
use tranship_testkit::chaos::rounds;
use tranship_testkit::resource::descendants;
use tranship_testkit::{Random, Running, Watchdog, until};

/// The source sends until there is a file `enough`.
const PIPE: &str = r#"
[component.source]
run = ["COMPONENT", "until", "DIR/enough", "5000"]
ends = { out = "a" }
pause = "1ms"
longest_pause = "50ms"
sandbox.write = ["DIR"]
[component.relay]
run = ["COMPONENT", "relay"]
ends = { in = "a", out = "b" }
pause = "1ms"
longest_pause = "50ms"
[component.sink]
run = ["COMPONENT", "sink", "DIR/seen"]
ends = { in = "b" }
pause = "1ms"
longest_pause = "50ms"
sandbox.write = ["DIR"]
[channel.a]
from = "source"
to = "relay"
pool = "1MiB"
[channel.b]
from = "relay"
to = "sink"
pool = "1MiB"
"#;

/// The length of what the sink writes for more messages than both channels hold.
const ROOM: usize = 2 * (1 << 20) / 5000 * "5000 a\n".len();

impl Stage {
    /// Returns a process with these arguments that is no launcher: the launchers' have a plan.
    fn find(&self, what: &str) -> Option<u32> {
        let all = self.processes().into_iter();
        all.filter(|(_, said)| !said.contains('{') && said.contains(what))
            .map(|(pid, _)| pid)
            .next()
    }

    /// Waits until so much has come to the sink, beyond what it has now.
    fn flows(&self, more: usize) {
        let seen = self.dir.path().join("seen");
        let before = std::fs::read_to_string(&seen).unwrap_or_default().len();
        wait_for(&seen, |text| text.len() > before + more);
    }

    /// Lets the source end, and the program after it: well. No process may be on its way to a channel.
    fn ends_when_told(&self, program: &mut Running) {
        std::fs::write(self.dir.path().join("enough"), "").expect("a file");
        let status = program.0.wait().expect("the program's end");
        assert_eq!(status.code(), Some(0));
        let text = self.read("seen");
        assert!(
            text.ends_with("PeerGone\n"),
            "{}",
            text.lines().last().unwrap_or_default()
        );
        self.nothing_is_left();
    }
}

/// The one in the middle is killed again and again: source and sink live on, and the program ends well.
#[test]
fn a_killed_component_is_started_again_and_no_other_one_ends() {
    let dog = Watchdog::new();
    let stage = Stage::new(PIPE);
    let mut random = Random::printed("run deaths");
    let mut program = Running::start(&mut stage.command(&[]));
    stage.flows(0);
    let others = || [" until ", " sink "].map(|what| stage.find(what));
    let before = others();
    assert!(
        before.iter().all(Option::is_some),
        "{:?}",
        stage.processes()
    );
    for n in 0..rounds(10) {
        dog.step(format_args!("kill {n}"));
        until(|| stage.find(" relay ").is_some());
        for _ in 0..random.below(1000) {
            std::thread::yield_now();
        }
        if let Some(pid) = stage.find(" relay ") {
            // It may have ended by then.
            let _ = tranship_sys::process::kill(pid, libc::SIGKILL);
        }
        stage.flows(0);
        assert_eq!(others(), before, "nobody else was started again");
    }
    // At its end a source fails for what was not taken: the last relay has to be there.
    stage.flows(ROOM);
    stage.ends_when_told(&mut program);
}

/// A component that has locked itself down takes the next sender when the one before it dies.
#[test]
fn a_locked_down_component_connects_again() {
    let dog = Watchdog::new();
    let stage = Stage::new(&PIPE.replace(
        "ends = { in = \"a\", out = \"b\" }",
        "ends = { in = \"a\", out = \"b\" }\nready_in = \"60s\"\nsandbox.lock = true",
    ));
    let mut program = Running::start(&mut stage.command(&[]));
    stage.flows(0);
    let relay = stage.find(" relay ");
    assert!(relay.is_some(), "{:?}", stage.processes());
    for n in 0..3 {
        dog.step(format_args!("kill {n}"));
        until(|| stage.find(" until ").is_some());
        if let Some(pid) = stage.find(" until ") {
            let _ = tranship_sys::process::kill(pid, libc::SIGKILL);
        }
        stage.flows(ROOM);
        assert_eq!(stage.find(" relay "), relay, "it was not started again");
    }
    stage.ends_when_told(&mut program);
}

/// Each of the components, and the manager, at random: what was killed comes back, and messages come through.
#[test]
fn whatever_is_killed_comes_back() {
    let dog = Watchdog::new();
    let stage = Stage::new(PIPE);
    let mut random = Random::printed("whatever_is_killed_comes_back");
    let mut program = Running::start(&mut stage.command(&[]));
    let seen = stage.dir.path().join("seen");
    let all = [" until ", " relay ", " sink ", " manager --socket "];
    let flows = || {
        for _ in 0..2 {
            let before = std::fs::read_to_string(&seen).unwrap_or_default().len();
            wait_for(&seen, |text| text.len() != before);
        }
    };
    for n in 0..rounds(12) {
        flows();
        let what = all[usize::try_from(random.below(4)).expect("small")];
        dog.step(format_args!("kill {n}:{what}"));
        let Some(pid) = stage.find(what) else {
            continue;
        };
        let _ = tranship_sys::process::kill(pid, libc::SIGKILL);
        until(|| stage.find(what).is_some_and(|now| now != pid));
    }
    flows();
    program.signal(libc::SIGTERM);
    assert_eq!(program.0.wait().expect("its end").code(), Some(0));
    stage.nothing_is_left();
}

/// Components and rates, on standard error.
#[test]
fn a_view_shows_components_and_rates() {
    let _dog = Watchdog::new();
    let stage = Stage::new(PIPE);
    let mut command = stage.command(&["--view"]);
    let mut program = Running::start(command.stderr(std::process::Stdio::piped()));
    let said = BufReader::new(program.0.stderr.take().expect("a pipe"));
    let mut lines = said.lines().map(|line| line.expect("text"));
    lines
        .find(|line| line.starts_with("relay ") && line.contains("running"))
        .expect("the relay");
    lines
        .find(|line| line.starts_with("channel ") && line.contains("messages/s"))
        .expect("rates");
    program.signal(libc::SIGTERM);
    assert!(lines.count() < 1000);
    assert_eq!(program.0.wait().expect("its end").code(), Some(0));
    stage.nothing_is_left();
}

const SLEEPERS: &str = r#"
[component.plain]
run = ["sleep", "1000000"]
# The sleeper of this component leaves its group, and has no parent.
[component.daemon]
run = ["sh", "-c", "setsid sh -c 'sleep 1000001 & echo $$ > DIR/started; sleep 1000002' & sleep 1000003"]
sandbox.write = ["DIR"]
"#;

fn sleepers(stage: &Stage) -> Vec<(u32, String)> {
    let all = stage.processes().into_iter();
    let sleeps = |said: &str| {
        said.split(' ')
            .next()
            .is_some_and(|program| program.ends_with("sleep"))
    };
    all.filter(|(_, said)| sleeps(said)).collect()
}

fn started(stage: &Stage) -> Running {
    let program = Running::start(&mut stage.command(&[]));
    wait_for(&stage.dir.path().join("started"), |text| !text.is_empty());
    while sleepers(stage).len() < 4 {
        std::thread::yield_now();
    }
    program
}

/// Returns the supervisor, a child of the first process.
fn supervisor(stage: &Stage) -> u32 {
    let all = stage.processes();
    let found = all.iter().find(|(_, said)| said.contains("--supervise"));
    found.unwrap_or_else(|| panic!("{all:?}")).0
}

#[test]
fn a_request_to_end_ends_all_and_is_no_failure() {
    let _dog = Watchdog::new();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let stage = Stage::new(SLEEPERS);
        let mut program = started(&stage);
        program.signal(signal);
        assert_eq!(program.0.wait().expect("its end").code(), Some(0));
        stage.nothing_is_left();
    }
}

/// The program is told, and not killed.
#[test]
fn a_request_to_end_reaches_the_program() {
    reaches_the_program("");
}

#[test]
fn a_request_to_end_reaches_a_program_of_another_user() {
    match rustix::process::geteuid().is_root() {
        true => reaches_the_program("sandbox.uid = 65534\n"),
        false => tranship_testkit::skipped("only root starts components of another user"),
    }
}

fn reaches_the_program(more: &str) {
    let _dog = Watchdog::new();
    let stage = Stage::new(&format!(
        "[component.a]\nrun = [\"sh\", \"-c\", \"trap 'echo told > DIR/told; exit 0' TERM; echo > DIR/started; while :; do sleep 1000000 & wait $!; done\"]\nstop_in = \"100h\"\nsandbox.write = [\"DIR\"]\n{more}"
    ));
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(stage.dir.path(), all).expect("permissions");
    let mut program = Running::start(&mut stage.command(&[]));
    wait_for(&stage.dir.path().join("started"), |text| !text.is_empty());
    program.signal(libc::SIGTERM);
    assert_eq!(program.0.wait().expect("its end").code(), Some(0));
    assert_eq!(stage.read("told"), "told\n");
    stage.nothing_is_left();
}

/// A signal to the process that waits for the program, and not to its group, is passed on: once, in order.
#[test]
fn a_signal_to_the_waiting_process_alone_reaches_the_program_once() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        "[component.a]\nrun = [\"sh\", \"-c\", \"trap 'echo told >> DIR/told' USR1; trap 'exit 0' TERM; echo > DIR/started; while :; do sleep 1000000 & wait $!; done\"]\nsandbox.write = [\"DIR\"]\n",
    );
    let mut program = Running::start(&mut stage.command(&[]));
    wait_for(&stage.dir.path().join("started"), |text| !text.is_empty());
    let waiting = stage.processes().into_iter();
    let waiting = waiting.filter(|(_, said)| said.contains(" component {"));
    // The other one that waits is its child, in the namespace.
    let outer = waiting
        .map(|(pid, _)| pid)
        .max_by_key(|pid| descendants(*pid).len());
    let outer = outer.expect("a process that waits");
    tranship_sys::process::kill(outer, libc::SIGUSR1).expect("it waits");
    wait_for(&stage.dir.path().join("told"), |text| !text.is_empty());
    tranship_sys::process::kill(outer, libc::SIGTERM).expect("it waits");
    assert_eq!(program.0.wait().expect("its end").code(), Some(0));
    assert_eq!(stage.read("told"), "told\n");
    stage.nothing_is_left();
}

#[test]
fn nothing_outlives_a_killed_supervisor() {
    let _dog = Watchdog::new();
    let stage = Stage::new(SLEEPERS);
    let mut program = started(&stage);
    tranship_sys::process::kill(supervisor(&stage), libc::SIGKILL).expect("killed");
    assert_eq!(
        program.0.wait().expect("its end").code(),
        Some(128 + libc::SIGKILL)
    );
    stage.nothing_is_left();
}

#[test]
fn nothing_outlives_a_killed_keeper() {
    let _dog = Watchdog::new();
    let stage = Stage::new(SLEEPERS);
    let mut program = started(&stage);
    program.kill();
    while !stage.processes().is_empty() {
        std::thread::yield_now();
    }
    while std::fs::read_dir(stage.dir.path().join("tranship"))
        .is_ok_and(|mut all| all.next().is_some())
    {
        std::thread::yield_now();
    }
}

#[test]
fn the_exit_code_is_that_of_the_first_failure() {
    let _dog = Watchdog::new();
    let stage = Stage::new(
        "[component.a]\nrun = [\"sleep\", \"1000000\"]\n[component.b]\nrun = [\"sh\", \"-c\", \"exit 7\"]\nrestart = \"never\"\n",
    );
    let output = stage.run(&[]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    stage.nothing_is_left();
    let stage = Stage::new(
        "[component.a]\nrun = [\"sh\", \"-c\", \"kill -KILL $$\"]\nrestart = \"never\"\n",
    );
    let killed = 128 + libc::SIGKILL;
    assert_eq!(stage.run(&[]).status.code(), Some(killed));
    let stage = Stage::new(
        "[component.b]\nrun = [\"sh\", \"-c\", \"echo x >> DIR/tries; exit 8\"]\npause = \"1ms\"\ntries = 3\nsandbox.write = [\"DIR\"]\n",
    );
    assert_eq!(stage.run(&[]).status.code(), Some(8));
    assert_eq!(stage.read("tries"), "x\nx\nx\n");
}
