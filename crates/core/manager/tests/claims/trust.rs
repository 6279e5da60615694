//! Levels of trust: chunks are sealed according to their pool's level, and the level does not change at a restart.

use crate::common::*;
use std::os::fd::AsFd;
use tranship_manager::Config;
use tranship_proto::{Event, Levels, Refusal, RefusalCode, Request, Trust};
use tranship_region::{Opts, Sealing, make};

/// Returns a level whose chunks have other seals.
fn other(trust: Trust) -> Trust {
    match trust.all_write() {
        true => Trust::Producer,
        false => Trust::Full,
    }
}

#[test]
fn a_chunk_is_sealed_as_its_pool_s_level_says() {
    for trust in Trust::ALL {
        let mut house = House::new(Config::default());
        let mut writer = house.join("writer");
        let mut pool = writer.create_pool_of(trust, 4);
        writer.grant(pool.id, 3).unwrap();
        let (strange, _map) = chunk(other(trust));
        let req = writer.try_show(pool.id, 0, 7, &strange);
        assert_eq!(writer.refused(req), RefusalCode::BadDescriptor, "{trust}");
        writer.show_chunk(&mut pool, 0, 7);

        // Nor is it taken from the claiming domain, nor the pool's chunk for one of another level.
        house.restart();
        let mut writer = house.back(&writer);
        writer.claim_pool(&pool);
        let req = writer.claim_chunk(pool.id, 1, 8, &strange);
        assert_eq!(writer.refused(req), RefusalCode::BadDescriptor, "{trust}");
        writer.claim_done();
        house.restart();
        let mut writer = house.back(&writer);
        pool.trust = other(trust);
        let [(index, serial, fd, _)] = &pool.chunks[..] else {
            panic!("one chunk")
        };
        let (index, serial, fd) = (*index, *serial, fd.try_clone().unwrap());
        pool.chunks.clear();
        writer.claim_pool(&pool);
        let req = writer.claim_chunk(pool.id, index, serial, &fd);
        assert_eq!(writer.refused(req), RefusalCode::BadDescriptor, "{trust}");
    }
}

/// Memory of the library's own kinds has one writer at every level.
#[test]
fn tables_and_counters_have_one_writer_at_every_level() {
    let house = House::new(Config::default());
    let mut writer = house.join("writer");
    let opts = Opts {
        sealing: Sealing::Shared,
        ..Opts::default()
    };
    let (shared, map) = make("table", 8192, opts).unwrap();
    let (table, _) = tranship_region::layout::TableRw::create(SLOTS, CHUNK, CHUNK).unwrap();
    let good = tranship_region::RoMapping::map(&table, map.len()).unwrap();
    let bytes = good.view();
    // SAFETY: of equal length, and no other code has the memory.
    unsafe { bytes.copy_to(map.at::<u8>(0).as_ptr()) };
    let req = writer.ask_pool(Trust::Full, 1, &shared);
    assert_eq!(writer.refused(req), RefusalCode::BadDescriptor);
}

/// A reader that reads at another level than the writer's says so, or lies: in either case it is no reader.
#[test]
fn a_reader_of_another_level_is_none() {
    for (claimed, taken) in [(Trust::Full, true), (Trust::Half, false)] {
        let mut house = House::new(Config::default());
        let (mut writer, mut reader) = (house.join("writer"), house.join("reader"));
        let mut pool = writer.create_pool_of(Trust::Full, 4);
        writer.grant(pool.id, 1).unwrap();
        writer.show_chunk(&mut pool, 0, 7);
        let way = Way::new(&mut writer, &mut reader, "n", pool.id);
        house.restart();
        (writer, reader) = (house.back(&writer), house.back(&reader));
        writer.claims_to_write(&pool, &way);
        pool.trust = claimed;
        reader.claims_to_read(&pool, &way, &[(0, 7)]);
        let req = reader.req();
        reader.send(&Request::Resync { req, pool: pool.id }, &[]);
        let resynced = reader.wait(|e| match e {
            Event::Resynced { req: r, .. } if *r == req => Some(true),
            Event::Refused { req: r, .. } if *r == req => Some(false),
            _ => None,
        });
        assert_eq!(resynced.0, taken, "{claimed}");
    }
}

#[test]
fn a_veto_for_the_level_says_what_is_taken() {
    let house = House::new(Config::default());
    let (mut source, mut sink) = (house.join("source"), house.join("sink"));
    let pool = source.create_pool_of(Trust::Full, 1);
    let chan = open_channel(&mut source, &mut sink, "n");
    let one: Levels = [Trust::Producer].into_iter().collect();
    for (levels, code, numbers) in [
        (
            Some(one),
            RefusalCode::Trust,
            (Trust::Full as u64, one.bits()),
        ),
        // Its words say that it would take the pool: that is not the reason.
        (
            Some(Levels::ALL),
            RefusalCode::PeerGone,
            (u64::from(pool.id.0), 1),
        ),
        (None, RefusalCode::PeerGone, (u64::from(pool.id.0), 1)),
    ] {
        let counts = Counts::new();
        let req = source.req();
        let assign = Request::Assign {
            req,
            channel: chan.id,
            pool: pool.id,
        };
        source.send(&assign, &[counts.sent.0.as_fd()]);
        let (trust, _) = sink.wait(|e| match e {
            Event::PoolOffer { shape, .. } => Some(shape.trust),
            _ => None,
        });
        assert_eq!(trust, Trust::Full);
        let veto = Request::VetoPool {
            channel: chan.id,
            pool: pool.id,
            levels,
        };
        sink.send(&veto, &[]);
        let (refusal, _): (Refusal, _) = source.wait(|e| match e {
            Event::Refused { req: r, refusal } if *r == req => Some(*refusal),
            _ => None,
        });
        assert_eq!(
            (refusal.code, refusal.asked, refusal.available),
            (code, numbers.0, numbers.1)
        );
    }
}
