//! Transfers whose manager is killed: at every stage, with another one started by the test, or by the program that
//! started the first.

use super::kit::has_manager;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use tranship_testkit::{Running, Said, Watchdog, folder, start_manager, tranship};

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
        let mut command = tranship(arguments);
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        if self.named {
            command.arg("--socket").arg(self.socket());
        }
        command
    }

    fn receiver(&self) -> Running {
        Running::start(self.command(&["recv", "film"]).stdout(Stdio::piped()))
    }

    fn sender(&self) -> Running {
        let mut send = self.command(&["send", "film", "--pool", "16MiB"]);
        Running::start(send.stdin(Stdio::piped()))
    }

    /// Returns the process id of a manager that answers.
    fn found(&self) -> u32 {
        loop {
            let stat = Said::of(&mut self.command(&["stat", "--json"])).out;
            let stat = serde_json::from_str(&stat).unwrap_or(serde_json::Value::Null);
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
        let recv = place.receiver();
        Flow::with(place.sender(), recv)
    }

    fn with(mut send: Running, mut recv: Running) -> Flow {
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
    let dog = Watchdog::new();
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
    let dog = Watchdog::new();
    let place = Home::new(false);
    if has_manager() {
        return;
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
    let dog = Watchdog::new();
    let place = Home::new(false);
    if has_manager() {
        return;
    }
    let send = place.sender();
    // Before there is any other program that could start it.
    place.found();
    let mut flow = Flow::with(send, place.receiver());
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
