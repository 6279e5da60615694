//! Through the kernel: every attack of the library on every shared object that the attacker was given, with its
//! descriptor and with the mapping alone, and on every victim's process. The victims' own sums over those
//! objects must stay the same.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tranship_proto::{BufferId, Role};
use tranship_sys::map;
use tranship_testkit::attack::{self, Attempt, Outcome, Target};
use tranship_testkit::{Control, Peer, child};

use crate::cast::{Answer, Ask};
use crate::shared::{self, Written};
use crate::stage::Stage;
use tranship_testkit::hostile::raw::{Raw, SLOTS};

/// A shared object that somebody else writes, as the attacker has it.
#[derive(Debug, Serialize, Deserialize)]
struct Given {
    name: String,
    inode: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    attack: usize,
    /// Which of the objects, and whether through its descriptor too.
    target: usize,
    with_fd: bool,
    pid: Option<u32>,
    victim_map: Option<usize>,
    victim_fd: Option<i32>,
}

child!(
    fn besieger(ctl: Control) {
        let mut raw = Raw::join("besieger");
        // A reader of the writer's pool: its table, a chunk, the source's half of the link.
        let mut reading = raw.connect("still", Role::Sink);
        raw.take_offer(&mut reading);
        raw.prey
            .as_ref()
            .unwrap()
            .retain(BufferId(reading.line(0)[2]));
        // A writer to the third domain: its counters, the sink's half of the link.
        let bait = raw.create_pool("bait");
        let mut writing = raw.connect("sink", Role::Source);
        raw.assign(&mut writing, bait.id, SLOTS);
        raw.wait(|e| matches!(e, tranship_proto::Event::QueueJoined { .. }).then_some(()))
            .1
            .into_iter()
            .for_each(|fd| raw.kept.push(fd));
        raw.keep_all();

        let mine: BTreeSet<u64> = shared::written().iter().map(|w| w.inode).collect();
        let objects = shared::memfds()
            .into_iter()
            // The process's stderr is a memfd, too.
            .filter(|(_, name, inode, _)| name.starts_with("tranship-") && !mine.contains(inode));
        let mut given = Vec::new();
        let mut targets = Vec::new();
        for (fd, name, inode, len) in objects {
            let len = usize::try_from(len).unwrap();
            // SAFETY: the number is of a descriptor that stays open in `raw`.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            let at = map::map_shared(borrowed, map::Access::Read, len, 0).unwrap();
            given.push(Given { name, inode });
            targets.push(Target {
                fd: Some(fd),
                map: Some((at.addr().get(), len)),
                ..Target::default()
            });
            at.as_ptr().expose_provenance();
        }
        ctl.send(&given).unwrap();
        let all = attack::all();
        while let Some(order) = ctl.recv::<Order>().unwrap() {
            let given = &targets[order.target];
            let target = Target {
                fd: given.fd.filter(|_| order.with_fd),
                map: given.map,
                pid: order.pid,
                victim_map: order.victim_map,
                victim_fd: order.victim_fd,
            };
            ctl.send(&attack::run(&all[order.attack], &target, &mut || Ok(())).outcome)
                .unwrap();
        }
        drop((bait, reading, writing));
    }
);

/// Returns checksums of the attacker's memory that the victims write.
fn sums(stage: &Stage, inodes: &[u64]) -> BTreeSet<(u64, u64)> {
    let of = |peer: &Peer| match peer.ask(&Ask::Sums(inodes.to_vec())) {
        Answer::Sums(sums) => sums,
        other => panic!("{other:?}"),
    };
    stage
        .victims_by_name()
        .iter()
        .flat_map(|(_, peer)| of(peer))
        .collect()
}

fn written(peer: &Peer) -> Vec<Written> {
    match peer.ask(&Ask::Written) {
        Answer::Written(written) => written,
        other => panic!("{other:?}"),
    }
}

/// Returns the objects that have changed.
fn changed(given: &[Given], before: &BTreeSet<(u64, u64)>, after: &BTreeSet<(u64, u64)>) -> String {
    let changed: BTreeSet<u64> = before
        .symmetric_difference(after)
        .map(|(i, _)| *i)
        .collect();
    let named = given.iter().filter(|g| changed.contains(&g.inode));
    let names: Vec<&str> = named.map(|g| g.name.as_str()).collect();
    format!("{names:?} changed")
}

pub fn play(stage: &Stage) {
    let besieger = stage.attacker(besieger());
    let given: Vec<Given> = besieger.expect();
    let inodes: Vec<u64> = given.iter().map(|g| g.inode).collect();
    // Words that the manager writes after its last message to the besieger are there when it has answered others.
    stage.still_serving("what was given");
    let before = sums(stage, &inodes);
    let names: BTreeSet<&str> = given.iter().map(|g| g.name.as_str()).collect();
    eprintln!("the attacker was given {names:?}");
    assert!(
        names.len() >= 7,
        "control page, table, chunk, both kinds of halves, refs, rcvd: {names:?}"
    );
    assert_eq!(
        before.len(),
        given.len(),
        "each has one writer among the victims: {before:?} of {given:?}"
    );

    let mut attempts = Vec::new();
    let mut tried = |what: &str, order: &Order| {
        let outcome: Outcome = besieger.ask(order);
        let after = sums(stage, &inodes);
        let harm = (after != before).then(|| changed(&given, &before, &after));
        let attempt = Attempt {
            attack: attack::all()[order.attack],
            outcome,
            harm,
        };
        if !attempt.held() {
            eprintln!("{what}: {}", attack::table(std::slice::from_ref(&attempt)));
        }
        attempts.push(attempt);
    };
    for (target, object) in given.iter().enumerate() {
        for with_fd in [true, false] {
            for attack in 0..attack::all().len() {
                let order = Order {
                    attack,
                    target,
                    with_fd,
                    pid: None,
                    victim_map: None,
                    victim_fd: None,
                };
                tried(&object.name, &order);
            }
        }
        stage.still_serving(&object.name);
    }
    for (name, victim) in stage.victims_by_name() {
        let own = written(victim);
        let known = own
            .iter()
            .find(|w| inodes.contains(&w.inode))
            .expect("each victim writes one");
        let victim_fd = own.iter().find_map(|w| w.fd);
        for (attack, a) in attack::all().iter().enumerate() {
            if !a.name.starts_with("victim_") {
                continue;
            }
            let pid = Some(victim.pid());
            let order = Order {
                attack,
                target: 0,
                with_fd: true,
                pid,
                victim_map: Some(known.at),
                victim_fd,
            };
            tried(name, &order);
        }
        stage.still_serving(name);
    }
    let broke = attempts.iter().filter(|a| !a.held()).count();
    eprintln!("{} attempts", attempts.len());
    assert_eq!(broke, 0, "{broke} attacks got through");
}
