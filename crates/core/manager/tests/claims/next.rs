//! Objects that are older than a manager are claimed from it by all domains that have a side of them.

use crate::common::*;
use std::os::fd::AsFd;
use std::time::Duration;
use tranship_manager::{Config, Forward};
use tranship_proto::{ChannelClaim, Event, RefusalCode, Request, Role, StatRecord};
use tranship_region::layout::RefsRw;
use tranship_ring::{HalfRw, Side};

fn config() -> Config {
    Config {
        total: Some(8 * CHUNK),
        forward: Forward::Readers,
        ..Config::default()
    }
}

fn joined(e: &Event) -> bool {
    matches!(e, Event::QueueJoined { .. })
}

fn pool_gone(e: &Event) -> bool {
    matches!(e, Event::PoolGone { .. })
}

/// Waits until the writer is told that a queue has left the reader set.
fn leaves(writer: &mut Client, way: &Way) {
    let id = way.chan.id;
    writer.wait(|e| matches!(e, Event::QueueLeft { channel, .. } if *channel == id).then_some(()));
}

#[test]
fn what_was_shown_is_claimed_from_a_new_manager() {
    let mut house = House::new(config());
    let (mut a, mut b, pool, way) = pair(&house, 4, &[(0, 7)]);
    let instance = a.instance;
    house.restart();
    (b, a) = (house.back(&b), house.back(&a));
    assert!(a.instance != instance);
    // The reader comes first: it claims chunk 7, and a chunk that its writer does not know.
    b.claims_to_read(&pool, &way, &[(0, 7), (1, 3)]);
    a.claims_to_write(&pool, &way);
    let ((epoch, new_reader), _) = a.wait(|e| match e {
        Event::QueueJoined {
            epoch, new_reader, ..
        } => Some((*epoch, *new_reader)),
        _ => None,
    });
    assert_eq!((epoch, new_reader), (2, true));
    assert_eq!(a.sums(), (CHUNK, CHUNK));
    b.wait(|e| match e {
        Event::ChunkGone { index, serial, .. } => ((*index, *serial) == (1, 3)).then_some(()),
        _ => None,
    });
    // New things work again, and new ids are new.
    let other = a.create_pool(2);
    assert_ne!(other.id, pool.id);
    let next = open_channel(&mut a, &mut b, "n");
    assert_ne!(next.id, way.chan.id);
    assign(&mut a, &mut b, next.id, pool.id);
}

fn chunks_shown(client: &mut Client) -> Vec<u32> {
    client.sync();
    let shown = client.inbox.iter().filter_map(|(e, _)| match e {
        Event::ChunkAdded { serial, .. } => Some(*serial),
        _ => None,
    });
    shown.collect()
}

/// A returned reader is shown missing chunks at once, not on demand: the manager may be away then.
#[test]
fn a_reader_that_is_back_is_shown_what_it_misses() {
    let mut house = House::new(config());
    let (mut a, mut b, mut pool, way) = pair(&house, 4, &[(0, 7)]);
    a.show_chunk(&mut pool, 1, 8);
    house.restart();
    (b, a) = (house.back(&b), house.back(&a));
    // The second chunk had not come yet.
    b.claims_to_read(&pool, &way, &[(0, 7)]);
    a.claims_to_write(&pool, &way);
    assert_eq!(chunks_shown(&mut b), [8]);
    // Again over a new connection to the same manager.
    b = house.back(&b);
    b.claims_to_read(&pool, &way, &[(1, 8)]);
    assert_eq!(chunks_shown(&mut b), [7]);
}

/// A reader names a chunk that its writer shows only later: the chunk is in use, and counts once.
#[test]
fn a_chunk_that_its_reader_claimed_first_is_not_stranded() {
    let mut house = House::new(config());
    let (mut a, mut b, mut pool, way) = pair(&house, 4, &[(0, 7)]);
    house.restart();
    (b, a) = (house.back(&b), house.back(&a));
    b.claim_reader(&pool, &way, &[(0, 7), (1, 9)]);
    b.claim_done();
    a.claim_pool(&pool);
    a.claim_reader_set(&pool, &[&way], &[]);
    a.claim_done();
    assert_eq!(a.sums(), (CHUNK, CHUNK));
    a.grant(pool.id, 1).unwrap();
    a.show_chunk(&mut pool, 1, 9);
    assert_eq!(a.sums(), (2 * CHUNK, 0));
    // The writer holds it like any other chunk.
    let (index, serial) = (1, 9);
    let back = Request::ReturnChunk {
        pool: pool.id,
        index,
        serial,
    };
    a.send(&back, &[]);
    assert_eq!(a.sums(), (CHUNK, CHUNK));
}

/// A new manager with less memory than exists already takes up the existing chunks, and grants nothing more.
#[test]
fn chunks_that_are_there_are_taken_up_beyond_the_total() {
    let mut house = House::new(config());
    let mut writer = house.join("writer");
    let mut pool = writer.create_pool(4);
    writer.grant(pool.id, 3).unwrap();
    for index in 0..3 {
        writer.show_chunk(&mut pool, index, index + 1);
    }
    house.restart_with(Config {
        total: Some(2 * CHUNK),
        ..config()
    });
    writer = house.back(&writer);
    writer.claim_pool(&pool);
    writer.claim_done();
    for serial in 1..=3 {
        writer.wait(|e| {
            assert!(!matches!(e, Event::Refused { .. }), "{e:?}");
            matches!(e, Event::ChunkReady { serial: s, .. } if *s == serial).then_some(())
        });
    }
    assert!(writer.grant(pool.id, 1).is_err());
}

/// Neither end can rename a channel.
#[test]
fn a_channel_keeps_its_name() {
    let mut house = House::new(config());
    let (a, b, _pool, mut way) = pair(&house, 4, &[]);
    house.restart();
    let (mut a, mut b) = (house.back(&a), house.back(&b));
    let req = a.claim_end(&way);
    // Nothing orders the messages of two clients: this one's claim is to be the first.
    a.sync();
    for other in ["audio", "", "vid\neo"] {
        way.name = other.to_owned();
        let refused = b.claim_end(&way);
        let code = if other == "audio" {
            RefusalCode::Claim
        } else {
            RefusalCode::BadName
        };
        assert_eq!(b.refused(refused), code, "{other:?}");
    }
    way.name = "n".to_owned();
    b.claim_end(&way);
    a.wait(|e| matches!(e, Event::Claimed { req: r } if *r == req).then_some(()));
    let names = a.sync().into_iter().filter_map(|record| match record {
        StatRecord::Channel(channel) => Some((channel.channel, channel.name)),
        _ => None,
    });
    let names: Vec<_> = names.collect();
    assert_eq!(names, [(way.chan.id, "n".to_owned())]);
}

#[test]
fn a_stolen_id_is_no_use_without_the_memory() {
    let mut house = House::new(config());
    let (a, b, pool, way) = pair(&house, 4, &[(0, 7)]);
    house.restart();
    // The owner is back. The thief was quicker than the reader, and makes everything that it can.
    let (mut a, mut thief) = (house.back(&a), house.back(&b));
    a.claim_pool(&pool);
    a.claim_end(&way);
    a.claim_done();
    // The thief shows its own half under the channel's name: it is not the half that the source has mapped, even if the
    // thief guesses the source's.
    let (half, _) = HalfRw::create(Side::Sink, 16).unwrap();
    let req = thief.req();
    let claim = ChannelClaim {
        channel: way.chan.id,
        name: way.name.clone(),
        role: Role::Sink,
        peer: a.domain,
        lines: 16,
        peer_inode: inode(&way.chan.source_half.0),
    };
    thief.send(&Request::ClaimChannel { req, claim }, &[half.as_fd()]);
    assert_eq!(thief.refused(req), RefusalCode::Claim);
    // Counters of a reader that the writer has never named: not taken up, so no chunk is ever shown.
    let (refs, _) = RefsRw::create(SLOTS).unwrap();
    let req = thief.req();
    let reader = Request::ClaimReader {
        req,
        pool: pool.id,
        slots: SLOTS,
        table: inode(&pool.table_fd),
        trust: tranship_proto::Trust::Producer,
        mapped: vec![(0, 7)],
    };
    thief.send(&reader, &[refs.as_fd()]);
    thief.claim_done();
    let req = thief.req();
    thief.send(&Request::Resync { req, pool: pool.id }, &[]);
    assert_eq!(thief.refused(req), RefusalCode::NotYours);
}

/// A writer's reader set changes only once the writer has named everything on it.
#[test]
fn nobody_joins_a_pool_that_its_writer_still_claims() {
    let mut house = House::new(config());
    let (mut writer, mut reader, pool, way) = pair(&house, 1, &[]);
    let other = open_channel(&mut writer, &mut reader, "other");
    house.restart();
    (writer, reader) = (house.back(&writer), house.back(&reader));
    writer.claim_pool(&pool);
    writer.claim_reader_set(&pool, &[&way], &[&way]);
    writer.claim_end(&way);
    writer.claim_assign(&way, pool.id);
    writer.sync();
    reader.claims_to_read(&pool, &way, &[]);
    assert!(!writer.has_heard(joined));
    writer.claim_done();
    assert!(writer.has_heard(joined));
    drop(other);
}

/// The sink closed, and the manager that was told did not live to tell the writer.
#[test]
fn a_queue_that_its_sink_has_not_leaves_the_reader_set() {
    let mut house = House::new(config());
    let (mut writer, mut reader, pool, way) = pair(&house, 1, &[]);
    house.restart();
    (writer, reader) = (house.back(&writer), house.back(&reader));
    writer.claim_pool(&pool);
    writer.claim_reader_set(&pool, &[&way], &[&way]);
    writer.claim_end(&way);
    writer.claim_done();
    reader.claim_reader(&pool, &way, &[]);
    reader.claim_done();
    leaves(&mut writer, &way);
}

/// The writer is late, so a reader that wants nothing more is told that the pool is over. Before the writer is told
/// that the queue left, the manager ends again. The reader then has only its identity to show.
#[test]
fn a_sink_that_was_told_that_the_pool_is_over_is_believed() {
    let mut house = House::new(Config {
        grace: Duration::ZERO,
        orphan_interval: Duration::from_millis(1),
        ..config()
    });
    let (mut writer, mut reader, pool, way) = pair(&house, 1, &[]);
    house.restart();
    reader = house.back(&reader);
    reader.claim_reader(&pool, &way, &[]);
    reader.claim_done();
    reader.gives_up(pool.id);
    reader.wait(|e| pool_gone(e).then_some(()));
    house.restart();
    (writer, reader) = (house.back(&writer), house.back(&reader));
    reader.claim_done();
    writer.claim_pool(&pool);
    writer.claim_reader_set(&pool, &[&way], &[&way]);
    writer.claim_done();
    leaves(&mut writer, &way);
}

/// A reader took an offer just as the manager ended, so its writer never had it on the reader set. When the writer
/// comes, the reader no longer wants the pool.
#[test]
fn a_reader_that_the_writer_never_had_may_forget_the_pool() {
    let mut house = House::new(Config {
        grace: Duration::from_secs(1 << 30),
        ..config()
    });
    let (mut writer, mut reader, pool, way) = pair(&house, 1, &[]);
    house.restart();
    (writer, reader) = (house.back(&writer), house.back(&reader));
    reader.claim_reader(&pool, &way, &[]);
    reader.claim_done();
    reader.gives_up(pool.id);
    assert!(!reader.has_heard(pool_gone));
    writer.claim_pool(&pool);
    writer.claim_done();
    reader.wait(|e| pool_gone(e).then_some(()));
}

/// A reader still held a buffer when it was told that a pool is gone, and another still maps a part of the pool.
#[test]
fn a_reader_that_gives_up_a_pool_later_hears_again_that_it_is_gone() {
    let house = House::new(config());
    let (mut writer, mut slow) = (house.join("writer"), house.join("slow"));
    let mut reader = house.join("reader");
    let mut pool = writer.create_pool(1);
    let _ways = [
        Way::new(&mut writer, &mut slow, "slow", pool.id),
        Way::new(&mut writer, &mut reader, "n", pool.id),
    ];
    writer.grant(pool.id, 1).unwrap();
    writer.show_chunk(&mut pool, 0, 1);
    writer.goes();
    let told = |reader: &mut Client| reader.wait(|e| pool_gone(e).then_some(()));
    told(&mut slow);
    told(&mut reader);
    reader.unmaps(pool.id, (0, 1));
    assert_eq!(reader.sums(), (0, CHUNK));
    reader.gives_up(pool.id);
    told(&mut reader);
}

/// The source was told that it may send, and the sink not yet that it may take, when the manager ended, and then the
/// source.
#[test]
fn a_sink_takes_what_a_dead_source_had_sent() {
    for is_other in [false, true] {
        let mut house = House::new(config());
        let mut writer = house.join("writer");
        let (mut middle, mut last) = (house.join("middle"), house.join("last"));
        let pool = writer.create_pool(1);
        let first = Way::new(&mut writer, &mut middle, "first", pool.id);
        let second = Way::new(&mut middle, &mut last, "second", pool.id);
        house.restart();
        (writer, last) = (house.back(&writer), house.back(&last));
        last.claim_reader(&pool, &second, &[]);
        last.claim_end(&second);
        last.claim_assign(&second, pool.id);
        last.claim_done();
        writer.claim_pool(&pool);
        // Not if the writer has other counters on its reader set than the sink shows.
        let queue = if is_other { &first } else { &second };
        writer.claim_reader_set(&pool, &[&first, &second], &[queue]);
        writer.claim_done();
        let open = |e: &Event| matches!(e, Event::PoolOpen { .. });
        assert_eq!(last.has_heard(open), !is_other);
        // It takes everything, and leaves.
        let channel = second.chan.id;
        last.send(&Request::CloseChannel { channel }, &[]);
        last.sync();
        let left = |e: &Event| matches!(e, Event::QueueLeft { .. });
        assert_eq!(writer.has_heard(left), !is_other);
    }
}
