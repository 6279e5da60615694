//! Pools whose writers end before all of their readers are back at a new manager.

use crate::common::*;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tranship_manager::{Config, Forward};
use tranship_proto::{Event, PoolId, RefusalCode, Request};
use tranship_region::layout::RefsRw;

/// A time longer than any test.
const LONG: Duration = Duration::from_secs(1 << 30);

fn house(grace: Duration) -> House {
    House::new(Config {
        grace,
        forward: Forward::Readers,
        orphan_interval: Duration::from_millis(1),
        ..Config::default()
    })
}

/// A pool of one chunk with a reader, and perhaps a second reader to which the first one forwards; their manager has
/// ended.
struct Left {
    house: House,
    writer: Client,
    reader: Client,
    pool: Pool,
    way: Way,
}

fn left(grace: Duration) -> Left {
    let mut house = house(grace);
    let (writer, reader, pool, way) = pair(&house, 1, &[(0, 1)]);
    house.restart();
    Left {
        house,
        writer,
        reader,
        pool,
        way,
    }
}

impl Left {
    /// Lets the writer claim everything, and end.
    fn writer_comes_and_goes(&self) {
        let mut writer = self.house.back(&self.writer);
        writer.claim_pool(&self.pool);
        writer.claim_reader_set(&self.pool, &[&self.way], &[&self.way]);
        writer.claim_done();
        writer.goes();
    }

    fn reader_holds(&self, buffers: u32) {
        let refs = &self.way.refs().1;
        refs.get(3).unwrap().store(buffers, Ordering::Release);
    }

    fn reader_claims(&self, reader: &mut Client) {
        reader.claim_reader(&self.pool, &self.way, &[(0, 1)]);
    }
}

/// Lets passes over all orphans happen: a pass gives each of these pools back.
fn passes(house: &House) {
    for _ in 0..3 {
        let (writer, mut reader, pool, way) = pair(house, 1, &[(0, 1)]);
        way.refs().1.get(0).unwrap().store(1, Ordering::Release);
        writer.goes();
        reader.sync();
        way.refs().1.get(0).unwrap().store(0, Ordering::Release);
        gone(&mut reader, pool.id);
        reader.goes();
    }
}

fn gone(reader: &mut Client, pool: PoolId) {
    reader.wait(|e| matches!(e, Event::PoolGone { pool: p } if *p == pool).then_some(()));
}

/// Waits until the reader is told that nothing is left of the pool, and unmaps its chunk.
fn unmaps(reader: &mut Client, pool: PoolId) {
    gone(reader, pool);
    reader.unmaps(pool, (0, 1));
}

/// Waits until memory comes back to the total.
fn until_free(house: &House) {
    let mut guest = house.join("guest");
    while guest.sums() != (0, 0) {
        std::thread::yield_now();
    }
}

/// Chunks that claimed counters hold stay, although their claim was never taken up.
#[test]
fn a_claimed_reference_keeps_a_dead_writer_s_memory() {
    let left = left(Duration::ZERO);
    let mut reader = left.house.back(&left.reader);
    left.reader_holds(1);
    left.reader_claims(&mut reader);
    reader.sync();
    left.writer_comes_and_goes();
    reader.claim_done();
    passes(&left.house);
    assert_eq!(reader.sums().0, CHUNK);
    left.reader_holds(0);
    unmaps(&mut reader, left.pool.id);
    until_free(&left.house);
}

/// A writer that ends within its claims has not named all of its chunks. What a reader holds in the others stays.
#[test]
fn a_chunk_that_a_dead_writer_did_not_claim_stays_with_its_reader() {
    let mut left = left(Duration::ZERO);
    let mut reader = left.house.back(&left.reader);
    left.reader_holds(1);
    left.reader_claims(&mut reader);
    reader.sync();
    left.pool.chunks.clear();
    left.writer_comes_and_goes();
    reader.claim_done();
    passes(&left.house);
    let told = |e: &Event| matches!(e, Event::PoolGone { .. } | Event::ChunkGone { .. });
    assert!(!reader.has_heard(told));
    // Nor is it told so when it comes back.
    let mut reader = left.house.back(&reader);
    left.reader_claims(&mut reader);
    reader.claim_done();
    assert!(!reader.has_heard(told));
    left.reader_holds(0);
    gone(&mut reader, left.pool.id);
    until_free(&left.house);
}

/// Buffers on their way to a reader by a queue count if the queue's source may still come back.
#[test]
fn a_queue_with_one_side_counts_as_alive() {
    let left = left(Duration::ZERO);
    let mut reader = left.house.back(&left.reader);
    left.reader_claims(&mut reader);
    reader.claim_end(&left.way);
    reader.claim_assign(&left.way, left.pool.id);
    reader.sync();
    left.writer_comes_and_goes();
    reader.claim_done();
    passes(&left.house);
    assert_eq!(reader.sums().0, CHUNK);
    let channel = left.way.chan.id;
    reader.send(&Request::CloseChannel { channel }, &[]);
    unmaps(&mut reader, left.pool.id);
    until_free(&left.house);
}

/// Something of its next claim may be alive.
#[test]
fn a_reader_in_the_midst_of_its_claims_is_awaited() {
    let left = left(Duration::ZERO);
    let mut reader = left.house.back(&left.reader);
    left.reader_claims(&mut reader);
    reader.sync();
    left.writer_comes_and_goes();
    passes(&left.house);
    assert_eq!(reader.sums().0, CHUNK);
    reader.claim_done();
    unmaps(&mut reader, left.pool.id);
    until_free(&left.house);
}

/// Its mappings stay in the total, as far as they can be known.
#[test]
fn a_reader_that_the_writer_named_is_awaited() {
    let left = left(LONG);
    left.writer_comes_and_goes();
    passes(&left.house);
    let mut reader = left.house.back(&left.reader);
    assert_eq!(reader.sums().0, CHUNK);
    left.reader_claims(&mut reader);
    reader.claim_done();
    unmaps(&mut reader, left.pool.id);
    until_free(&left.house);
}

/// But the wait has an end.
#[test]
fn a_reader_that_does_not_come_back_holds_nothing() {
    let left = left(Duration::ZERO);
    left.writer_comes_and_goes();
    until_free(&left.house);
}

/// A reader that has come and ended is not awaited either.
#[test]
fn a_reader_that_has_ended_is_not_awaited() {
    let left = left(LONG);
    let mut reader = left.house.back(&left.reader);
    left.reader_claims(&mut reader);
    reader.claim_done();
    let mut writer = left.house.back(&left.writer);
    writer.claim_pool(&left.pool);
    writer.claim_reader_set(&left.pool, &[&left.way], &[]);
    writer.claim_done();
    reader.goes();
    writer.goes();
    until_free(&left.house);
}

/// The writer ended while there was no manager: its readers give up its pool.
#[test]
fn a_pool_that_nobody_claims_to_write_is_given_up() {
    let left = left(Duration::ZERO);
    let mut reader = left.house.back(&left.reader);
    left.reader_holds(1);
    left.reader_claims(&mut reader);
    passes(&left.house);
    left.reader_holds(0);
    passes(&left.house);
    let told = |e: &Event| matches!(e, Event::PoolGone { .. });
    // It may still have something to claim.
    assert!(!reader.has_heard(told));
    reader.claim_done();
    gone(&mut reader, left.pool.id);
}

/// A living source was never told that it may send from a pool, and its sink has made counters for it.
#[test]
fn a_queue_that_never_opened_keeps_nothing() {
    let mut house = house(Duration::ZERO);
    let mut writer = house.join("writer");
    let (mut middle, mut last) = (house.join("middle"), house.join("last"));
    let mut pool = writer.create_pool(1);
    writer.grant(pool.id, 1).unwrap();
    writer.show_chunk(&mut pool, 0, 1);
    let first = Way::new(&mut writer, &mut middle, "first", pool.id);
    let second = Way::new(&mut middle, &mut last, "second", pool.id);
    house.restart();
    let mut writer = house.back(&writer);
    (middle, last) = (house.back(&middle), house.back(&last));
    middle.claim_reader(&pool, &first, &[(0, 1)]);
    middle.claim_end(&second);
    middle.sync();
    last.claim_reader(&pool, &second, &[(0, 1)]);
    last.claim_end(&second);
    last.claim_assign(&second, pool.id);
    last.claim_done();
    writer.claim_pool(&pool);
    writer.claim_reader_set(&pool, &[&first, &second], &[&first]);
    writer.claim_done();
    writer.goes();
    // The pool stays until it is known that the source has not sent anything.
    passes(&house);
    assert_eq!(last.sums().0, CHUNK);
    middle.claim_done();
    unmaps(&mut last, pool.id);
    unmaps(&mut middle, pool.id);
    until_free(&house);
}

/// Asks for the chunks of a pool; returns whether there are any.
fn shown(reader: &mut Client, pool: PoolId) -> Result<Vec<(u32, u32)>, RefusalCode> {
    let req = reader.req();
    reader.send(&Request::Resync { req, pool }, &[]);
    let mut chunks = Vec::new();
    loop {
        let event = reader.wait(|e| match e {
            Event::ChunkAdded { pool: p, .. } if *p == pool => Some(e.clone()),
            Event::Resynced { req: r, .. } | Event::Refused { req: r, .. } if *r == req => {
                Some(e.clone())
            }
            _ => None,
        });
        match event.0 {
            Event::ChunkAdded { index, serial, .. } => chunks.push((index, serial)),
            Event::Refused { refusal, .. } => return Err(refusal.code),
            _ => return Ok(chunks),
        }
    }
}

/// Its writer may have sent it something in a chunk that neither the last manager nor this one showed it.
#[test]
fn a_reader_that_is_late_is_shown_what_its_writer_has_left() {
    let left = left(LONG);
    left.writer_comes_and_goes();
    let mut reader = left.house.back(&left.reader);
    reader.claim_reader(&left.pool, &left.way, &[]);
    reader.claim_end(&left.way);
    reader.claim_assign(&left.way, left.pool.id);
    assert_eq!(shown(&mut reader, left.pool.id), Err(RefusalCode::NotYours));
    reader.claim_done();
    assert_eq!(shown(&mut reader, left.pool.id), Ok(vec![(0, 1)]));
    // The reader is awaited as long as it lives.
    passes(&left.house);
    assert_eq!(reader.sums().0, CHUNK);
    reader.goes();
    until_free(&left.house);
}

/// A reader from before is shown them too, whose writer did not reach the end of its claims.
#[test]
fn a_reader_that_waits_for_its_writer_is_shown_what_that_one_leaves() {
    let left = left(LONG);
    let mut reader = left.house.back(&left.reader);
    reader.claim_reader(&left.pool, &left.way, &[]);
    reader.claim_end(&left.way);
    reader.claim_assign(&left.way, left.pool.id);
    reader.claim_done();
    let mut writer = left.house.back(&left.writer);
    writer.claim_pool(&left.pool);
    writer.claim_reader_set(&left.pool, &[&left.way], &[&left.way]);
    writer.sync();
    assert_eq!(shown(&mut reader, left.pool.id), Err(RefusalCode::NotYours));
    writer.goes();
    assert_eq!(shown(&mut reader, left.pool.id), Ok(vec![(0, 1)]));
}

/// A domain without the counters that the writer has named is shown nothing.
#[test]
fn another_domain_is_shown_nothing_of_what_a_writer_has_left() {
    let mut left = left(LONG);
    left.writer_comes_and_goes();
    let mut other = left.house.back(&left.reader);
    left.way.counts.refs = Some(RefsRw::create(SLOTS).unwrap());
    other.claim_reader(&left.pool, &left.way, &[]);
    other.claim_done();
    shown(&mut other, left.pool.id).expect_err("not its counters");
}
