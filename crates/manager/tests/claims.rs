//! What a domain that comes back to the same manager claims otherwise than the manager knows it.

mod common;

use common::*;
use std::os::fd::AsFd;
use tranship_manager::{Config, Embedded};
use tranship_proto::{ChannelClaim, Event, Request, Role};
use tranship_region::{Opts, make};

/// The writer gave a chunk back and put a new one in its place, and its connection broke before the manager read of it.
#[test]
fn a_younger_chunk_takes_an_older_one_s_place() {
    watchdog();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    let _manager = Embedded::start(Config::default(), Some(&path)).unwrap();
    let mut writer = Client::join(&path, "writer");
    let mut reader = Client::join(&path, "reader");
    let mut pool = writer.create_pool(4);
    writer.grant(pool.id, 1).unwrap();
    writer.show_chunk(&mut pool, 0, 7);
    let chan = open_channel(&mut writer, &mut reader, "n");
    let _assigned = assign(&mut writer, &mut reader, chan.id, pool.id);
    reader.wait(|e| matches!(e, Event::ChunkAdded { serial: 7, .. }).then_some(()));
    let (domain, id) = (writer.domain, pool.id);
    drop(writer);

    let mut writer = Client::join_as(&path, "writer", Some(domain));
    assert!(writer.resumed);
    let req = writer.req();
    let claim = Request::ClaimPool {
        req,
        pool: id,
        name: "pool".into(),
        max_bytes: pool.max_bytes,
        slots: SLOTS,
        chunk_bytes: CHUNK,
    };
    writer.send(&claim, &[pool.table_fd.as_fd()]);
    let (young, _map) = make(
        "chunk",
        usize::try_from(CHUNK).expect("small"),
        Opts::default(),
    )
    .expect("a chunk");
    let claim = |serial, writer: &mut Client| {
        let (req, pool) = (writer.req(), id);
        let (index, fd) = (0, young.as_fd());
        let claim = Request::ClaimChunk {
            req,
            pool,
            index,
            serial,
        };
        writer.send(&claim, &[fd]);
        req
    };
    claim(8, &mut writer);
    let ready = |e: &Event| matches!(e, Event::ChunkReady { serial: 8, .. }).then_some(());
    let old = claim(7, &mut writer);
    // An older one than is known is none.
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
    let req = writer.req();
    writer.send(&Request::ClaimDone { req }, &[]);
    // One chunk of quota and total, and one that the reader has still to unmap.
    let records = writer.sync();
    let tranship_proto::StatRecord::Manager(sums) = &records[0] else {
        panic!("{records:?}");
    };
    assert_eq!((sums.granted_bytes, sums.stranded_bytes), (CHUNK, CHUNK));
}

fn inode(fd: &std::os::fd::OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::File::from(fd.try_clone().unwrap());
    file.metadata().unwrap().ino()
}

/// What was claimed over a connection that broke before `ClaimDone` is claimed again, from the start.
#[test]
fn a_claimant_that_was_interrupted_begins_again() {
    watchdog();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    let manager = Embedded::start(Config::default(), Some(&path)).unwrap();
    let mut writer = Client::join(&path, "writer");
    let mut reader = Client::join(&path, "reader");
    let pool = writer.create_pool(4);
    let chan = open_channel(&mut writer, &mut reader, "n");
    let assigned = assign(&mut writer, &mut reader, chan.id, pool.id);
    let (domain, peer) = (reader.domain, writer.domain);
    drop(manager);
    let _manager = Embedded::start(Config::default(), Some(&path)).unwrap();
    for _ in 0..3 {
        let mut reader = Client::join_as(&path, "reader", Some(domain));
        assert!(reader.resumed);
        let claim = ChannelClaim {
            channel: chan.id,
            role: Role::Sink,
            peer,
            lines: 16,
            peer_inode: inode(&chan.source_half.0),
        };
        let req = reader.req();
        reader.send(
            &Request::ClaimChannel { req, claim },
            &[chan.sink_half.0.as_fd()],
        );
        let (req, channel) = (reader.req(), chan.id);
        let claim = Request::ClaimAssign {
            req,
            channel,
            pool: pool.id,
        };
        reader.send(&claim, &[assigned.rcvd.0.as_fd()]);
        reader.sync();
        let refused = |(e, _): &(Event, _)| matches!(e, Event::Refused { .. });
        assert!(!reader.inbox.iter().any(refused), "{:?}", reader.inbox);
    }
}

/// A new manager has less to give than there is already: what is there is taken up, and nothing more is granted.
#[test]
fn chunks_that_are_there_are_taken_up_beyond_the_total() {
    watchdog();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.sock");
    let manager = Embedded::start(Config::default(), Some(&path)).unwrap();
    let mut writer = Client::join(&path, "writer");
    let mut pool = writer.create_pool(4);
    writer.grant(pool.id, 3).unwrap();
    for index in 0..3 {
        writer.show_chunk(&mut pool, index, index + 1);
    }
    drop(manager);
    let config = Config {
        total: Some(2 * CHUNK),
        ..Config::default()
    };
    let _manager = Embedded::start(config, Some(&path)).unwrap();
    let mut writer = Client::join_as(&path, "writer", Some(writer.domain));
    let req = writer.req();
    let claim = Request::ClaimPool {
        req,
        pool: pool.id,
        name: "pool".into(),
        max_bytes: pool.max_bytes,
        slots: SLOTS,
        chunk_bytes: CHUNK,
    };
    writer.send(&claim, &[pool.table_fd.as_fd()]);
    for (index, serial, fd, _) in &pool.chunks {
        let claim = Request::ClaimChunk {
            req: writer.req(),
            pool: pool.id,
            index: *index,
            serial: *serial,
        };
        writer.send(&claim, &[fd.as_fd()]);
    }
    let req = writer.req();
    writer.send(&Request::ClaimDone { req }, &[]);
    for serial in 1..=3 {
        writer.wait(|e| {
            assert!(!matches!(e, Event::Refused { .. }), "{e:?}");
            matches!(e, Event::ChunkReady { serial: s, .. } if *s == serial).then_some(())
        });
    }
    assert!(writer.grant(pool.id, 1).is_err());
}
