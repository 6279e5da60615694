//! The statistics page's records of waiting callers. A reader of the page misses no state and cannot keep the manager
//! busy.

use crate::kit::*;
use std::path::Path;
use std::time::{Duration, Instant};
use tranship_core::{ChannelOptions, Domain, Sender, WhenFull};
use tranship_manager::page::{Reader, Snapshot};
use tranship_proto::{ChannelStat, StatRecord};

const PATIENCE: Duration = Duration::from_secs(1);

fn reader(domain: &Domain) -> Reader {
    open(&domain.socket_path().expect("a socket"))
}

/// A manager that has just been started has still to make it.
fn open(socket: &Path) -> Reader {
    loop {
        match Reader::open(socket) {
            Ok(reader) => break reader,
            Err(_) => std::thread::yield_now(),
        }
    }
}

/// Looks until a channel is so.
fn until(reader: &mut Reader, name: &str, so: impl Fn(&ChannelStat) -> bool) -> ChannelStat {
    loop {
        let said = reader.look(PATIENCE).unwrap_or_default();
        let channels = said.records.into_iter().filter_map(|r| match r {
            StatRecord::Channel(c) if c.name == name => Some(c),
            _ => None,
        });
        if let Some(found) = channels.into_iter().find(&so) {
            return found;
        }
    }
}

fn names(said: &Snapshot) -> usize {
    let names = said
        .records
        .iter()
        .filter(|r| matches!(r, StatRecord::Channel(_)));
    names.count()
}

#[test]
fn who_awaits_room_is_seen_and_then_not_any_more() {
    let (_dog, a, b) = pair();
    let options = ChannelOptions::new().lines(2);
    let (mut sender, mut receiver) = link_with(&a, &b, "narrow", options);
    let mut reader = reader(&a);
    for _ in 0..2 {
        sender.send(b"x").expect("room");
    }
    let fits = until(&mut reader, "narrow", |c| c.depth == 2);
    assert_eq!((fits.stalls, fits.waiting_ns), (0, 0));
    std::thread::scope(|s| {
        let awaits = s.spawn(|| {
            let sending = sender.send_async(b"y");
            block_on(sending).expect("sent");
        });
        let waits = until(&mut reader, "narrow", |c| c.waiting_ns > 0);
        assert!(waits.stalls == 1 && waits.depth == 2, "{waits:?}");
        drop(receiver.recv().expect("one"));
        awaits.join().expect("no panic");
    });
    let over = until(&mut reader, "narrow", |c| c.waiting_ns == 0 && c.depth == 2);
    assert!(over.stalls >= 1 && over.stalled_ns > 0, "{over:?}");
}

#[test]
fn who_drops_what_has_no_room_stalls_and_waits_for_nobody() {
    let (_dog, a, b) = pair();
    let options = ChannelOptions::new().lines(2).when_full(WhenFull::DropNew);
    let (mut sender, _receiver) = link_with(&a, &b, "narrow", options);
    for _ in 0..5 {
        sender.send(b"x").expect("sent or dropped");
    }
    let found = until(&mut reader(&a), "narrow", |c| c.stalls > 0);
    assert_eq!(
        (found.stalls, found.stalled_ns, found.waiting_ns),
        (3, 0, 0)
    );
    assert_eq!(found.depth, 2);
}

/// More records than the first file has room for: another file takes its place, and a reader of the old file finds it.
#[test]
fn a_page_that_grows_is_found_by_who_has_it_open() {
    let (_dog, a) = watched();
    let mut reader = reader(&a);
    assert_eq!(names(&reader.look(PATIENCE).unwrap_or_default()), 0);
    let listeners: Vec<_> = (0..600)
        .map(|i| a.listen::<Sender>(&format!("name {i}")).expect("listen"))
        .collect();
    while names(&reader.look(PATIENCE).unwrap_or_default()) < 600 {}
    drop(listeners);
    while names(&reader.look(PATIENCE).unwrap_or_default()) > 0 {}
}

#[test]
fn a_manager_that_is_started_anew_has_a_new_page() {
    let _dog = dog();
    let (_dir, path) = place();
    let start = || a_manager(&path);
    let first = start();
    let mut reader = open(&path);
    let mut instance = || loop {
        if let Some(said) = reader.look(PATIENCE) {
            break (said.instance, said.silent);
        }
    };
    let (before, _) = instance();
    drop(first);
    // What it said last stays, without an answer. It may have said something more before its end.
    loop {
        let (last, silent) = instance();
        assert_eq!(last, before);
        if silent.is_some() {
            break;
        }
    }
    let _second = start();
    while instance().0 == before {}
}

/// A reader that opens the page without pause gets no more pages than one that opens it four times a second.
#[test]
fn who_asks_all_the_time_gets_four_pages_a_second() {
    let (_dog, a) = watched();
    let socket = a.socket_path().expect("a socket");
    let page = tranship_manager::page::path_of(&socket);
    let mut reader = reader(&a);
    let first = reader.look(PATIENCE).expect("a page").at_ns;
    let begun = Instant::now();
    let mut seen = std::collections::BTreeSet::from([first]);
    while seen.len() < 6 {
        drop(std::fs::File::open(&page).expect("it"));
        seen.extend(reader.read().map(|said| said.at_ns));
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(4 * 250), "{took:?}");
    a.admin().stat().expect("the manager answers");
}
