//! Kills at the named crash points.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tranship_testkit::{Exit, Random, Watchdog};

use crate::stage::{Role, Stage};

/// Crash point, the role that passes it, and the hits at which to die: the first, and in the torture the others too.
type Point = (&'static str, Role, &'static [u32]);

#[rustfmt::skip]
const POINTS: &[Point] = &[
    ("assign.after_answer", Role::Writer, &[1, 2, 3]),
    ("assign.after_answer", Role::Forwarder, &[1, 2, 3]),
    ("assign.before_accept", Role::Writer, &[1, 2]),
    ("assign.before_accept", Role::Forwarder, &[1, 2]),
    ("assign.before_accept", Role::Receiver, &[1, 2, 3]),
    ("assign.before_request", Role::Writer, &[1, 2, 3]),
    ("assign.before_request", Role::Forwarder, &[1, 2, 3]),
    ("close.after_flag", Role::Writer, &[1, 2]),
    ("close.after_flag", Role::Forwarder, &[1, 2]),
    ("collect.after_bump", Role::Writer, &[1, 2, 70, 500]),
    ("collect.after_bump", Role::Forwarder, &[1, 20]),
    ("grow.after_answer", Role::Writer, &[1, 2, 5]),
    ("grow.after_answer", Role::Forwarder, &[1]),
    ("grow.after_grant", Role::Writer, &[1, 2]),
    ("grow.after_make", Role::Writer, &[1, 2, 5]),
    ("grow.after_make", Role::Forwarder, &[1]),
    ("grow.after_show", Role::Writer, &[1, 2, 5]),
    ("grow.after_show", Role::Forwarder, &[1]),
    ("manager.before_action", Role::Manager, &[1, 2, 3, 5, 8, 13, 21, 34, 55, 60, 70, 89, 100, 144, 233, 377]),
    ("manager.before_rename", Role::Manager, &[1]),
    ("manager.before_send", Role::Manager, &[1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]),
    ("manager.between_words", Role::Manager, &[1, 2, 3, 5, 9, 17]),
    ("pass.after_publish", Role::Forwarder, &[1, 20]),
    ("pass.after_publish", Role::Receiver, &[1, 20]),
    ("pass.after_uncount", Role::Forwarder, &[1, 20]),
    ("pass.after_uncount", Role::Receiver, &[1, 20]),
    ("reader.before_unmapped", Role::Forwarder, &[1, 2]),
    ("reader.before_unmapped", Role::Receiver, &[1, 2, 4]),
    ("recv.after_head", Role::Writer, &[1, 100]),
    ("recv.after_head", Role::Forwarder, &[1, 100]),
    ("recv.after_head", Role::Receiver, &[1, 100]),
    ("recv.after_rcvd", Role::Writer, &[1, 100]),
    ("recv.after_rcvd", Role::Forwarder, &[1, 100]),
    ("recv.after_rcvd", Role::Receiver, &[1, 100]),
    ("recv.after_ref", Role::Writer, &[1, 100]),
    ("recv.after_ref", Role::Forwarder, &[1, 100]),
    ("recv.after_ref", Role::Receiver, &[1, 100]),
    ("recv.before_drained", Role::Forwarder, &[1, 2]),
    ("recv.before_drained", Role::Receiver, &[1, 2]),
    ("recv.between_pieces", Role::Writer, &[1, 2, 20]),
    ("recv.between_pieces", Role::Forwarder, &[1, 2, 20]),
    ("recv.between_pieces", Role::Receiver, &[1, 2, 20]),
    ("region::make::mapped", Role::Writer, &[1, 2, 3, 5, 7, 9]),
    ("region::make::mapped", Role::Forwarder, &[1, 2, 3, 5, 7]),
    ("region::make::mapped", Role::Receiver, &[1, 2, 3, 5]),
    ("region::make::mapped", Role::Manager, &[1, 2]),
    ("region::make::sealed", Role::Writer, &[1, 2, 3, 5, 7, 9]),
    ("region::make::sealed", Role::Forwarder, &[1, 2, 3, 5, 7]),
    ("region::make::sealed", Role::Receiver, &[1, 2, 3, 5]),
    ("region::make::sealed", Role::Manager, &[1, 2]),
    ("release.after_drop", Role::Receiver, &[1, 20]),
    ("resume.before_done", Role::Writer, &[1, 2]),
    ("resume.before_done", Role::Forwarder, &[1]),
    ("resume.before_done", Role::Receiver, &[1]),
    ("resume.before_hello", Role::Writer, &[1, 2]),
    ("resume.before_hello", Role::Forwarder, &[1]),
    ("resume.before_hello", Role::Receiver, &[1]),
    ("resume.between_chunks", Role::Writer, &[1, 2]),
    ("return.after_hold", Role::Writer, &[1, 20]),
    ("return.after_uncount", Role::Writer, &[1, 20]),
    ("send.after_generation", Role::Writer, &[1, 100]),
    ("send.after_generation", Role::Forwarder, &[1, 10]),
    ("send.after_let_go", Role::Writer, &[1, 100]),
    ("send.after_let_go", Role::Forwarder, &[1, 10]),
    ("send.after_publish", Role::Writer, &[1, 100]),
    ("send.after_publish", Role::Forwarder, &[1, 100]),
    ("send.after_sent", Role::Writer, &[1, 100]),
    ("send.after_sent", Role::Forwarder, &[1, 100]),
    ("send.between_pieces", Role::Writer, &[1, 2, 20]),
    ("send.between_pieces", Role::Forwarder, &[1, 2, 20]),
    ("shrink.before_return", Role::Writer, &[1, 2]),
];

/// Points of other tests: first those of `tests/all/sealed.rs`.
const ELSEWHERE: [&str; 19] = [
    "seal.after_chunk",
    "seal.after_show",
    // Those of `core/queue`.
    "queue.acked",
    "queue.acks",
    "queue.announced",
    "queue.asleep",
    "queue.given_back",
    "queue.kept",
    "queue.left",
    "queue.published",
    "queue.taken",
    // Those of both.
    "readers.connected",
    "readers.joined",
    "readers.leaves",
    // Those of `core/topic`.
    "topic.claimed",
    "readers.held",
    "topic.kept",
    "topic.left",
    "topic.published",
];

fn die_at_all_of(victim: Role) {
    let torture = std::env::var_os("TRANSHIP_TORTURE").is_some();
    let dog = Watchdog::new();
    let mut random = Random::printed("die_at_all_of");
    let mut stage = Stage::new(&mut random);
    let points = POINTS.iter().filter(|(_, role, _)| *role == victim);
    for (name, _, hits) in points {
        for nth in hits.iter().take(if torture { hits.len() } else { 1 }) {
            let point = format!("{name}:{nth}");
            dog.step(&point);
            let began = std::time::Instant::now();
            stage.kill(victim);
            stage.replace_doomed(victim, &point);
            lure(&mut stage, victim, name, &mut random);
            let exit = stage.of(victim).wait();
            assert_eq!(exit, Exit::Signal(libc::SIGKILL), "{victim:?} at {point}");
            stage.pair_goes_on();
            stage.replace(victim);
            if victim == Role::Manager {
                stage.replace(Role::Receiver);
            }
            stage.flows();
            stage.whole_quota();
            stage.pair_goes_on();
            eprintln!("{victim:?} died at {point}: {:?}", began.elapsed());
        }
    }
    stage.ends();
}

/// Brings the victim to the point, where the flow alone does not.
fn lure(stage: &mut Stage, victim: Role, name: &str, random: &mut Random) {
    if name.starts_with("resume.") {
        while stage.is_managed(victim) {
            stage.kill(Role::Manager);
            stage.replace(Role::Manager);
        }
    }
    if name == "reader.before_unmapped" {
        // The chunks of a dead writer's pool go as soon as nothing in them is alive.
        while !stage.of(victim).has_ended() {
            stage.kill(Role::Writer);
            stage.replace(Role::Writer);
            random.instant(Duration::from_millis(100));
        }
    }
    if name.starts_with("shrink.") {
        // The writer needs all of its memory only while a process takes from it; alone only for its spikes.
        let others = [Role::Forwarder, Role::Receiver];
        others.iter().for_each(|role| stage.kill(*role));
        stage.of(victim).wait();
        others.iter().for_each(|role| stage.replace(*role));
    }
    if victim == Role::Manager {
        while !stage.of(victim).has_ended() {
            stage.kill(Role::Receiver);
            stage.replace_doomed(Role::Receiver, "nowhere");
            random.instant(Duration::from_millis(20));
        }
        stage.kill(Role::Receiver);
    }
}

#[test]
fn the_writer_dies_at_every_point() {
    die_at_all_of(Role::Writer);
}

#[test]
fn the_forwarder_dies_at_every_point() {
    die_at_all_of(Role::Forwarder);
}

#[test]
fn the_receiver_dies_at_every_point() {
    die_at_all_of(Role::Receiver);
}

#[test]
fn the_manager_dies_at_every_point() {
    die_at_all_of(Role::Manager);
}

/// The names in the sources of all crates are those of the list, no more and no less.
#[test]
fn every_point_is_on_the_list() {
    let mut found = BTreeSet::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        &mut found,
    );
    let listed = POINTS.iter().map(|(name, ..)| *name).chain(ELSEWHERE);
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(found, listed);
}

fn collect(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in dir.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let calls = text.split("crash::point(\"").skip(1);
            found.extend(calls.filter_map(|c| Some(c.split_once('"')?.0.to_owned())));
        }
    }
}
