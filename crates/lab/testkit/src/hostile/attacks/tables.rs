//! Tables that the manager has to search or keep for a domain.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use tranship_proto::{DomainId, PoolId, Req, Request, Role};

use crate::hostile::Attacker;
use crate::hostile::claimant::{claim_of_nobody, claimant};
use crate::hostile::raw::Raw;
use crate::{Control, child};

const CHUNK: u64 = 64 << 10;
const SLOTS: u32 = 1 << 16;
/// Places of the window; one chunk of it is there.
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

/// Buffers each of which lies in all chunks that there could be, as their dead writer says, and a reader that has them
/// all.
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

fn someone(attacker: &mut Attacker) -> (Raw, PoolId) {
    let mut number = |base: u32| base + attacker.random.below(0xffff) as u32;
    let (domain, pool) = (DomainId(number(0x7fff_0000)), PoolId(number(0x7_0000)));
    (claimant(domain, pool).0, pool)
}

/// Readers and queues that there never were.
pub(super) fn claims_of_what_never_was(attacker: &mut Attacker) {
    let (mut raw, pool) = someone(attacker);
    for n in 0..40u32 {
        raw.send(&claim_of_nobody(pool, 1 + n * 500), &[]);
    }
    raw.sync();
    attacker.keep(raw);
}

/// Chunks of others, channels, and no end of it.
pub(super) fn claims_that_are_never_done(attacker: &mut Attacker) {
    let (mut raw, _) = someone(attacker);
    for n in 0..200u32 {
        let request = Request::ClaimReader {
            req: Req(3),
            pool: PoolId(0x6_0000 + n),
            slots: 64,
            table: u64::from(n),
            trust: tranship_proto::Trust::Producer,
            mapped: (0..500).map(|i| (i, n)).collect(),
        };
        let (refs, _map) = tranship_region::layout::RefsRw::create(64).unwrap();
        raw.send(&request, &[refs.as_fd()]);
    }
    raw.sync();
    attacker.keep(raw);
}
