//! A domain that comes back to the manager that it left, and makes claims that agree with the known state, or not.

use crate::common::*;
use std::sync::atomic::Ordering;
use tranship_manager::Config;
use tranship_proto::Event;
use tranship_region::{Opts, make};

/// The writer gave a chunk back and put a new one in its place. Its connection broke before the manager read that.
#[test]
fn a_younger_chunk_takes_an_older_one_s_place() {
    let house = House::new(Config::default());
    let (writer, mut reader, mut pool, _way) = pair(&house, 4, &[(0, 7)]);
    reader.wait(|e| matches!(e, Event::ChunkAdded { serial: 7, .. }).then_some(()));
    pool.chunks.clear();

    let mut writer = house.back(&writer);
    writer.claim_pool(&pool);
    let bytes = usize::try_from(CHUNK).expect("small");
    let (young, _map) = make("chunk", bytes, Opts::default()).expect("a chunk");
    writer.claim_chunk(pool.id, 0, 8, &young);
    let ready = |e: &Event| matches!(e, Event::ChunkReady { serial: 8, .. }).then_some(());
    let old = writer.claim_chunk(pool.id, 0, 7, &young);
    // A chunk older than the known one is refused.
    writer.refused(old);
    writer.wait(ready);
    for serial in [7, 8] {
        let heard = |e: &Event| match *e {
            Event::ChunkGone { serial, .. } => Some(serial),
            Event::ChunkAdded { serial, .. } => Some(serial),
            _ => None,
        };
        assert_eq!(reader.wait(heard).0, serial);
    }
    writer.claim_done();
    // One chunk of quota and total, and one that the reader must still unmap.
    assert_eq!(writer.sums(), (CHUNK, CHUNK));
}

/// Readers were told that a pool is over. The pool is not taken up again with a reader set that the manager does not
/// know.
#[test]
fn a_pool_that_was_given_up_does_not_come_back() {
    let house = House::new(Config::default());
    let (mut writer, mut reader, pool, way) = pair(&house, 1, &[]);
    writer = house.back(&writer);
    writer.claim_done();
    reader.wait(|e| matches!(e, Event::PoolGone { .. }).then_some(()));
    writer = house.back(&writer);
    writer.claim_pool(&pool);
    writer.claim_reader_set(&pool, &[&way], &[&way]);
    writer.claim_done();
    assert!(!writer.has_heard(|e| matches!(e, Event::PoolCreated { .. })));
}

/// Claims over a connection that broke before `ClaimDone` are claimed again, from the start.
#[test]
fn a_claimant_that_was_interrupted_begins_again() {
    let mut house = House::new(Config::default());
    let (_writer, mut reader, pool, way) = pair(&house, 4, &[]);
    house.restart();
    for _ in 0..3 {
        reader = house.back(&reader);
        reader.claim_end(&way);
        reader.claim_assign(&way, pool.id);
        assert!(!reader.has_heard(|e| matches!(e, Event::Refused { .. })));
    }
}

/// A claim that waits for the other end is answered over the present connection of its claimant.
#[test]
fn who_waits_for_the_other_end_is_answered_where_it_is() {
    let mut house = House::new(Config::default());
    let (mut source, mut sink, _pool, way) = pair(&house, 1, &[]);
    house.restart();
    sink = house.back(&sink);
    sink.claim_end(&way);
    sink.claim_done();
    sink = house.back(&sink);
    // Another number than the first time.
    sink.req();
    let waits = sink.claim_end(&way);
    sink.claim_done();
    source = house.back(&source);
    source.claim_end(&way);
    sink.claimed(waits);
}

/// The control page of a writer that left says so, so that a process that still collects by it stops.
#[test]
fn an_old_control_page_allows_no_collection() {
    let house = House::new(Config::default());
    let mut writer = house.join("writer");
    let pool = writer.create_pool(1);
    let back = house.back(&writer);
    let old = writer.control_page.as_ref().unwrap();
    let epoch = old.epoch(pool.entry).unwrap().load(Ordering::Acquire);
    assert_eq!(epoch, u64::MAX);
    drop(back);
}

/// A sink that may have missed the message is told again that it may take.
#[test]
fn a_returning_sink_hears_that_its_pools_are_open() {
    let house = House::new(Config::default());
    let (_writer, mut reader, pool, way) = pair(&house, 1, &[]);
    reader = house.back(&reader);
    reader.claim_reader(&pool, &way, &[]);
    reader.claim_end(&way);
    let claim = reader.claim_assign(&way, pool.id);
    reader.claimed(claim);
    let open = |e: &Event| matches!(e, Event::PoolOpen { .. });
    assert!(reader.has_heard(open));
}
