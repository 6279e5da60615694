//! Transfers whose manager is killed: at every stage, with another one started by the test, or by the program that
//! started the first.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use tranship_testkit::{Running, Watchdog, folder, start_manager};

const TRANSHIP: &str = env!("CARGO_BIN_EXE_tranship");

fn dog() -> Watchdog {
    Watchdog::new()
}

/// Place of the manager: a socket of the test's, or the one where a program that starts a manager finds it.
struct Home {
    dir: tempfile::TempDir,
    named: bool,
}

impl Home {
    fn new(named: bool) -> Home {
        let dir = folder().expect("a folder");
        Home { dir, named }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join(if self.named {
            "m.sock"
        } else {
            "tranship/manager.sock"
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TRANSHIP);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .env("XDG_RUNTIME_DIR", self.dir.path())
            .env_remove("TRANSHIP_SOCKET")
            .env_remove("RUST_LOG");
        if self.named {
            command.arg("--socket").arg(self.socket());
        }
        command
    }

    /// The process id of a manager that answers.
    fn found(&self) -> u32 {
        loop {
            let stat = self.command(&["stat", "--json"]).output().expect("stat");
            let stat = serde_json::from_slice(&stat.stdout).unwrap_or(serde_json::Value::Null);
            if let Some(pid) = stat["manager"]["pid"].as_u64() {
                return u32::try_from(pid).expect("a process id");
            }
        }
    }
}

/// A sender that reads from the test, and a receiver that writes to it.
struct Flow {
    send: Running,
    recv: Running,
    from: ChildStdin,
    to: ChildStdout,
    passed: u64,
}

/// Bytes of a step: several frames.
const STEP: usize = 5 << 20;

impl Flow {
    fn start(place: &Home) -> Flow {
        let mut recv = place.command(&["recv", "film"]);
        let mut recv = Running::start(recv.stdout(Stdio::piped()));
        let mut send = place.command(&["send", "film", "--pool", "16MiB"]);
        let mut send = Running::start(send.stdin(Stdio::piped()));
        Flow {
            from: send.0.stdin.take().expect("its input"),
            to: recv.0.stdout.take().expect("its output"),
            send,
            recv,
            passed: 0,
        }
    }

    /// Checks that so much more goes through.
    fn passes(&mut self, dog: &Watchdog, when: &str) {
        dog.step(when);
        let first = self.passed;
        let bytes = |at: usize| (first + at as u64).wrapping_mul(0x9e37_79b9).to_le_bytes()[3];
        let mut sent: Vec<u8> = (0..STEP).map(bytes).collect();
        sent[STEP - 1] = b'\n'; // standard output is written line by line
        let mut got = vec![0; STEP];
        std::thread::scope(|s| {
            s.spawn(|| self.from.write_all(&sent).expect("the sender reads"));
            self.to.read_exact(&mut got).expect("the receiver writes");
        });
        assert!(got == sent, "{when}: other bytes");
        self.passed += STEP as u64;
    }

    fn ends_well(self) {
        drop(self.from);
        self.send.ends_well();
        self.recv.ends_well();
    }
}

#[test]
fn a_transfer_goes_on_without_its_manager_and_with_the_next_one() {
    let dog = dog();
    let place = Home::new(true);
    let mut manager = start_manager(&place.socket(), "");
    let mut flow = Flow::start(&place);
    flow.passes(&dog, "with the first");
    for round in 0..4 {
        manager.kill();
        flow.passes(&dog, &format!("without the manager, round {round}"));
        flow.passes(&dog, &format!("still without, round {round}"));
        manager = start_manager(&place.socket(), "");
        flow.passes(&dog, &format!("with the next, round {round}"));
    }
    flow.ends_well();
}

#[test]
fn who_started_a_manager_starts_it_again() {
    let dog = dog();
    let place = Home::new(false);
    if Path::new("/run/tranship/manager.sock").exists() {
        return tranship_testkit::skipped("a manager of the system runs here");
    }
    let mut flow = Flow::start(&place);
    flow.passes(&dog, "with the first");
    let mut pid = place.found();
    for round in 0..3 {
        kill(pid);
        flow.passes(&dog, &format!("round {round}"));
        let next = place.found();
        assert_ne!(next, pid);
        pid = next;
    }
    flow.ends_well();
    kill(pid);
}

/// A sender that waits for its input calls nothing of the library; its manager comes back all the same.
#[test]
fn an_idle_sender_that_started_a_manager_starts_it_again() {
    let dog = dog();
    let place = Home::new(false);
    if Path::new("/run/tranship/manager.sock").exists() {
        return tranship_testkit::skipped("a manager of the system runs here");
    }
    let mut send = place.command(&["send", "film", "--pool", "16MiB"]);
    let mut send = Running::start(send.stdin(Stdio::piped()));
    // Before there is any other program that could start it.
    place.found();
    let mut recv = place.command(&["recv", "film"]);
    let mut recv = Running::start(recv.stdout(Stdio::piped()));
    let mut flow = Flow {
        from: send.0.stdin.take().expect("its input"),
        to: recv.0.stdout.take().expect("its output"),
        send,
        recv,
        passed: 0,
    };
    flow.passes(&dog, "with the first");
    for round in 0..3 {
        dog.step(format!("killed while all are idle, round {round}"));
        kill(place.found());
        place.found();
    }
    flow.passes(&dog, "with the last");
    flow.ends_well();
    kill(place.found());
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process id");
    let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let fd = fd.expect("it runs");
    rustix::process::pidfd_send_signal(&fd, rustix::process::Signal::KILL).expect("killed");
    let mut poll = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    rustix::event::poll(&mut poll, None).expect("it ends");
}
