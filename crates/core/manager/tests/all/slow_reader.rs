//! Readers that do not read, or never unmap: the cost for the writer, and for the total.

use crate::common::*;
use tranship_manager::{Config, Embedded};
use tranship_proto::{Event, Request, StatRecord};

/// A writer with a pool of some chunks, and a reader of it.
struct Set {
    _dog: Watchdog,
    _manager: Embedded,
    writer: Client,
    reader: Client,
    pool: Pool,
    _kept: (Chan, Assigned),
}

fn set(chunks: u64) -> Set {
    let dog = watchdog();
    let config = Config {
        total: Some(4096 * CHUNK),
        ..Config::default()
    };
    let manager = Embedded::start(config, None).unwrap();
    let mut writer = Client::join(manager.path(), "writer");
    let mut reader = Client::join(manager.path(), "reader");
    let pool = writer.create_pool(chunks);
    let chan = open_channel(&mut writer, &mut reader, "name");
    let assigned = assign(&mut writer, &mut reader, chan.id, pool.id);
    Set {
        _dog: dog,
        _manager: manager,
        writer,
        reader,
        pool,
        _kept: (chan, assigned),
    }
}

impl Set {
    /// Shows one more chunk, for which the writer waits as long as the manager lets it.
    fn grow(&mut self, index: u32, serial: u32) {
        assert_eq!(self.writer.grant(self.pool.id, 1), Ok(1));
        self.writer.show_chunk(&mut self.pool, index, serial);
    }

    fn shrink(&mut self) {
        let (index, serial, ..) = self.pool.chunks.pop().unwrap();
        let pool = self.pool.id;
        let request = Request::ReturnChunk {
            pool,
            index,
            serial,
        };
        self.writer.send(&request, &[]);
    }

    /// Returns all chunks that come until a resync is over.
    fn resync(&mut self) -> Vec<(u32, u32)> {
        let (req, pool) = (self.reader.req(), self.pool.id);
        self.reader.send(&Request::Resync { req, pool }, &[]);
        let mut chunks = Vec::new();
        loop {
            match self.reader.recv().unwrap().0 {
                Event::ChunkAdded { index, serial, .. } => chunks.push((index, serial)),
                Event::Resynced { .. } => return chunks,
                _ => {}
            }
        }
    }
}

#[test]
fn no_writer_waits_for_one_that_reads_nothing() {
    // More than fits into its socket and its queue.
    const MANY: u32 = 800;
    let mut set = set(MANY.into());
    for at in 0..MANY {
        set.grow(at, at + 1);
    }
    // Some of it is in its socket, and it knows nothing of the rest before it asks.
    let chunks = set.resync();
    let all: Vec<_> = (0..MANY).map(|at| (at, at + 1)).collect();
    assert!(chunks.ends_with(&all), "{chunks:?}");
}

#[test]
fn one_that_never_unmaps_strands_no_more_than_twice_the_pool() {
    const CHUNKS: u64 = 4;
    let mut set = set(CHUNKS);
    let stranded = |set: &mut Set| match &set.writer.sync()[0] {
        StatRecord::Manager(m) => m.stranded_bytes,
        other => panic!("{other:?}"),
    };
    let mut shown = Vec::new();
    for serial in 1..50 {
        set.grow(serial % 4, serial);
        // It takes everything.
        set.reader.sync();
        set.shrink();
        assert!(stranded(&mut set) <= 2 * CHUNKS * CHUNK);
    }
    shown.extend(set.reader.inbox.drain(..).filter_map(|(e, _)| match e {
        Event::ChunkAdded { index, serial, .. } => Some((index, serial)),
        _ => None,
    }));
    assert_eq!(shown.len() as u64, 2 * CHUNKS);
    // The requested chunks come when it has unmapped some.
    set.grow(3, 99);
    let (req, pool) = (set.reader.req(), set.pool.id);
    set.reader.send(&Request::Resync { req, pool }, &[]);
    set.reader.sync();
    let pushed = |set: &Set| {
        let mut events = set.reader.inbox.iter().map(|(event, _)| event);
        events.any(|event| matches!(event, Event::ChunkAdded { .. } | Event::Resynced { .. }))
    };
    assert!(!pushed(&set));
    let (index, serial) = shown[0];
    let request = Request::Unmapped {
        pool,
        index,
        serial,
    };
    set.reader.send(&request, &[]);
    let chunk = |event: &Event| matches!(event, Event::ChunkAdded { serial: 99, .. }).then_some(());
    set.reader.wait(chunk);
    let over = |event: &Event| matches!(event, Event::Resynced { .. }).then_some(());
    set.reader.wait(over);
}
