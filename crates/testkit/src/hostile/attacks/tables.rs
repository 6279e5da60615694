//! What the manager has to go through for somebody, or to remember for it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use tranship_proto::{ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Req, Request, Role};
use tranship_region::layout::TableRw;

use crate::hostile::Attacker;
use crate::hostile::raw::Raw;
use crate::{Control, child};

const CHUNK: u64 = 4096;
const SLOTS: u32 = 1 << 16;
/// Of the window; one chunk of it is there.
const PLACES: u64 = 1 << 16;

child!(
    fn writer(ctl: Control) {
        let name: String = ctl.recv().unwrap().unwrap();
        let mut raw = Raw::join("writer");
        let pool = raw.create_pool_of("tomb", SLOTS, PLACES * CHUNK, CHUNK);
        for slot in 0..SLOTS {
            let slot = pool.table.slot(slot).unwrap();
            slot.offset.store(0, Ordering::Relaxed);
            slot.length.store(PLACES * CHUNK, Ordering::Relaxed);
        }
        let mut channel = raw.connect(&name, Role::Source);
        raw.assign(&mut channel, pool.id, SLOTS);
        let _ = ctl.send(&());
        let _ = ctl.recv::<()>();
    }
);

/// Buffers each of which lies in all chunks that there could be, as their dead writer says, and a reader that has them all.
pub(super) fn the_table_of_a_dead_writer(attacker: &mut Attacker) {
    let (mut raw, name) = (Raw::join("reader"), attacker.fresh());
    raw.export(&name, Role::Sink);
    let writer = writer().start().unwrap();
    writer.send(&name).unwrap();
    let mut channel = raw.accept(Role::Sink);
    raw.take_offer(&mut channel);
    for reference in raw.prey.as_ref().unwrap().refs.refs() {
        reference.store(1, Ordering::Relaxed);
    }
    writer.recv::<()>().unwrap();
    writer.kill();
    attacker.keep((raw, channel));
}

/// A domain that says that it was there before, with a pool.
fn claimant(attacker: &mut Attacker) -> Option<(Raw, PoolId)> {
    let mut raw = Raw::silent();
    let id = 0x7fff_0000 + attacker.random.below(0xffff) as u32;
    let hello = Request::Hello {
        version: PROTOCOL_VERSION,
        name: "claimant".into(),
        resume: Some(DomainId(id)),
        dumpable: true,
    };
    raw.send(&hello, &[]);
    raw.wait(|e| matches!(e, Event::Welcome { .. }).then_some(()));
    let (table, _map) = TableRw::create(64, 1 << 20, 1 << 16).unwrap();
    let pool = PoolId(0x7_0000 + attacker.random.below(0xffff) as u32);
    let claim = Request::ClaimPool {
        req: Req(1),
        pool,
        name: "claimed".into(),
        max_bytes: 1 << 20,
        slots: 64,
        chunk_bytes: 1 << 16,
    };
    raw.send(&claim, &[table.as_fd()]);
    Some((raw, pool))
}

/// Readers and queues that there never were.
pub(super) fn claims_of_what_never_was(attacker: &mut Attacker) {
    let Some((mut raw, pool)) = claimant(attacker) else {
        return;
    };
    for n in 0..40u32 {
        let next = |i: u32| 1 + n * 500 + i;
        let request = Request::ClaimRoster {
            req: Req(2),
            pool,
            readers: (0..500).map(|i| (DomainId(next(i)), 1)).collect(),
            queues: (0..500)
                .map(|i| (ChannelId(next(i)), DomainId(next(i)), 1))
                .collect(),
        };
        raw.send(&request, &[]);
    }
    raw.sync();
    attacker.keep(raw);
}

/// Chunks of others, channels, and no end of it.
pub(super) fn claims_that_are_never_done(attacker: &mut Attacker) {
    let Some((mut raw, _)) = claimant(attacker) else {
        return;
    };
    for n in 0..200u32 {
        let request = Request::ClaimReader {
            req: Req(3),
            pool: PoolId(0x6_0000 + n),
            slots: 64,
            table: u64::from(n),
            mapped: (0..500).map(|i| (i, n)).collect(),
        };
        let (refs, _map) = tranship_region::layout::RefsRw::create(64).unwrap();
        raw.send(&request, &[refs.as_fd()]);
    }
    raw.sync();
    attacker.keep(raw);
}
