//! `tranship send` and `tranship recv` of files: success is reported only for all of it, and transfers that are not
//! struck succeed.

use std::path::PathBuf;

use tranship::Domain;
use tranship_testkit::chaos::{Harm, Party, alone, rounds};
use tranship_testkit::{Exit, Peer, Random, Watchdog, payload};

use crate::scene::Scene;
use crate::seat::{pass, patiently};

/// Process that may be struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Nobody,
    Sender,
    Receiver,
    Manager,
}

const VICTIMS: [Victim; 4] = [
    Victim::Nobody,
    Victim::Sender,
    Victim::Receiver,
    Victim::Manager,
];

/// One file on its way.
struct Transfer<'a> {
    scene: &'a Scene,
    name: String,
    content: Vec<u8>,
    /// Fresh for each receiver.
    out: PathBuf,
    sender: Option<Peer>,
    receiver: Option<Peer>,
    starts: u64,
}

impl<'a> Transfer<'a> {
    fn new(scene: &'a Scene, number: u64, random: &mut Random) -> Self {
        let len = usize::try_from(1 + random.below(24 << 20)).unwrap_or(0);
        let content = payload::made(len, number, random.next());
        std::fs::write(scene.audit.path("in"), &content).expect("the file");
        Transfer {
            scene,
            name: format!("file {number}"),
            content,
            out: PathBuf::new(),
            sender: None,
            receiver: None,
            starts: 0,
        }
    }

    fn start_sender(&mut self) {
        let send = self
            .scene
            .tranship(&["send", &self.name, "--frame", "64KiB"]);
        let send = send.arg(self.scene.audit.path("in")).capture_stderr();
        self.sender = Some(send.start().expect("send"));
    }

    fn start_receiver(&mut self) {
        self.starts += 1;
        let _ = std::fs::remove_file(&self.out);
        self.out = self.scene.audit.path(&format!("out {}", self.starts));
        let recv = self.scene.tranship(&["recv", &self.name]);
        let recv = recv.arg(&self.out).capture_stderr();
        self.receiver = Some(recv.start().expect("recv"));
    }

    /// Returns whether both are on one channel: a receiver opens its file only then.
    fn is_joined(&self) -> bool {
        self.out.exists()
    }

    fn living(&self) -> Vec<&Peer> {
        self.sender.iter().chain(&self.receiver).collect()
    }

    /// Waits a little, or until one of them ends.
    fn pass(&self, milliseconds: u64) {
        pass(self.living(), milliseconds);
    }

    /// The ends of those that have ended: of the sender, of the receiver.
    fn ended(&mut self) -> [Option<(Exit, String)>; 2] {
        [&mut self.sender, &mut self.receiver].map(|peer| {
            let ended = peer.take_if(|peer| peer.has_ended())?;
            Some((ended.wait(), ended.stderr()))
        })
    }

    fn is_whole(&self) -> bool {
        std::fs::read(&self.out).is_ok_and(|bytes| bytes == self.content)
    }
}

/// Blow: what was done, and what may come of it.
struct Blow {
    victim: Victim,
    harm: Harm,
    /// Both were on one channel before.
    joined: bool,
    /// The blow has fallen.
    done: bool,
}

impl Blow {
    /// Whether a transfer may fail for it. A manager that dies under a channel is nobody's end.
    fn excuses(&self) -> bool {
        let manager = self.victim == Victim::Manager && self.joined;
        self.done && self.harm == Harm::Kill && self.victim != Victim::Nobody && !manager
    }
}

/// One file from beginning to end. A program that failed is started again, until the file is there.
fn transfer(scene: &Scene, manager: &mut Party, number: u64, random: &mut Random) {
    let mut all = Transfer::new(scene, number, random);
    let mut blow = Blow {
        victim: VICTIMS[usize::try_from(random.below(4)).unwrap_or(0)],
        harm: if random.one_in(2) {
            Harm::Kill
        } else {
            Harm::Stop
        },
        joined: random.one_in(2),
        done: false,
    };
    let (before, after) = (random.below(20), random.below(20));
    eprintln!(
        "file {number}, {} bytes: {:?} {:?}, {before} ms after {}; up again after {after} ms",
        all.content.len(),
        blow.harm,
        blow.victim,
        if blow.joined {
            "both had joined"
        } else {
            "the start"
        }
    );
    if random.one_in(2) {
        all.start_sender();
        all.start_receiver();
    } else {
        all.start_receiver();
        all.start_sender();
    }
    while blow.joined && !all.is_joined() && all.living().iter().all(|peer| !peer.has_ended()) {
        all.pass(1);
    }
    all.pass(before);
    strike(&mut all, manager, &mut blow, after);
    finish(&mut all, &blow);
    let _ = std::fs::remove_file(&all.out);
}

fn strike(all: &mut Transfer<'_>, manager: &mut Party, blow: &mut Blow, after: u64) {
    let peer = match blow.victim {
        Victim::Nobody => return,
        Victim::Sender => all.sender.as_ref(),
        Victim::Receiver => all.receiver.as_ref(),
        Victim::Manager => {
            match blow.harm {
                Harm::Kill => manager.kill(),
                Harm::Stop => manager.stop(),
            }
            blow.done = true;
            all.pass(after);
            return manager.recover();
        }
    };
    // A program that has ended already did so before anything was done to it.
    let Some(peer) = peer.filter(|peer| !peer.has_ended()) else {
        return;
    };
    blow.done = true;
    match blow.harm {
        Harm::Kill => drop(peer.kill()),
        Harm::Stop => {
            peer.signal(libc::SIGSTOP);
            all.pass(after);
            peer.resume();
        }
    }
}

/// Waits for both, judges each end.
fn finish(all: &mut Transfer<'_>, blow: &Blow) {
    let (mut sent, mut received) = (false, false);
    let mut again = false;
    loop {
        for (sender, end) in [true, false].into_iter().zip(all.ended()) {
            let Some((exit, said)) = end else { continue };
            let who = if sender { "send" } else { "recv" };
            match exit {
                Exit::Code(0) if sender => sent = true,
                Exit::Code(0) => {
                    assert!(
                        all.is_whole(),
                        "recv succeeded, and its file is another\n{said}"
                    );
                    received = true;
                }
                Exit::Code(code) => {
                    assert!(
                        !said.trim().is_empty(),
                        "{who} ended with {code} and does not say why"
                    );
                    assert!(
                        blow.excuses(),
                        "{who} failed with {code} for nothing: {said}"
                    );
                }
                // A signal is allowed only where the test killed it.
                signal => assert!(
                    blow.excuses() && signal == Exit::Signal(libc::SIGKILL),
                    "{who} ended with {signal:?}: {said}"
                ),
            }
        }
        if received {
            break;
        }
        // A file that a killed receiver had taken completely was taken: its sender has ended well, before or after
        // another took its place.
        let killed = blow.done && blow.victim == Victim::Receiver && blow.harm == Harm::Kill;
        if all.receiver.is_none() {
            assert!(
                !sent || killed,
                "send says that all was taken, and nobody has it"
            );
            sent = false;
            all.start_receiver();
        }
        if all.sender.is_none() && (!sent || killed) {
            all.start_sender();
            again = true;
        }
        all.pass(20);
    }
    if let Some(sender) = all.sender.take() {
        // A receiver that was killed after its end had received the whole file. Its successor waits for a sender that
        // never comes.
        if again && !sender.has_ended() {
            sender.kill();
            return;
        }
        // Otherwise the receiver has the end, so the sender was at its end.
        let exit = sender.wait();
        let excused = blow.excuses();
        assert!(
            exit == Exit::Code(0) || excused,
            "send: {exit:?}: {}",
            sender.stderr()
        );
    }
}

#[test]
fn files() {
    let _alone = alone();
    let dog = Watchdog::new();
    let scene = Scene::new("files");
    let mut random = Random::seeded(scene.random.seed());
    let mut manager = scene.manager();
    manager.start();
    // A program that starts before the manager listens ends at once.
    let socket = scene.audit.path("m");
    let first = patiently(|| Domain::builder().name("first").socket(&socket).connect());
    drop(first.expect("a manager"));
    for number in 0..rounds(18) as u64 {
        dog.step(format_args!("{number} files"));
        transfer(&scene, &mut manager, number, &mut random);
        manager.check();
    }
    scene.ends(&mut manager, &["in"]);
}
