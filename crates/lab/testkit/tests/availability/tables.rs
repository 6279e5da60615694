//! Tables that the manager has to search or keep for a domain.

use std::sync::atomic::Ordering;

use tranship_proto::{DomainId, Event, PoolId, RefusalCode, Req, Role};
use tranship_testkit::{Control, child};

use crate::stage::Stage;
use tranship_testkit::hostile::claimant::{claim_of_nobody, claimant};
use tranship_testkit::hostile::raw::Raw;

const CHUNK: u64 = 64 << 10;
const SLOTS: u32 = 1 << 20;
/// Of the window; one chunk of it is there.
const PLACES: u64 = 1 << 20;

child!(
    fn reader(ctl: Control) {
        let mut raw = Raw::join("reader");
        raw.export("tomb", Role::Sink);
        ctl.send(&()).unwrap();
        let mut channel = raw.accept(Role::Sink);
        raw.take_offer(&mut channel);
        let prey = raw.prey.as_ref().unwrap();
        for reference in prey.refs.refs() {
            reference.store(1, Ordering::Relaxed);
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn writer(ctl: Control) {
        let mut raw = Raw::join("writer");
        let pool = raw.create_pool_of("tomb", SLOTS, PLACES * CHUNK, CHUNK);
        for slot in 0..SLOTS {
            let slot = pool.table.slot(slot).unwrap();
            slot.offset.store(0, Ordering::Relaxed);
            slot.length.store(PLACES * CHUNK, Ordering::Relaxed);
        }
        let mut channel = raw.connect("tomb", Role::Source);
        raw.assign(&mut channel, pool.id, SLOTS);
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// A million buffers, each of which lies in a million chunks, as their dead writer says.
#[test]
fn the_table_of_a_dead_writer() {
    let Some(stage) = Stage::new("") else { return };
    let reader = stage.attacker(reader(), 0);
    let () = reader.expect();
    let writer = stage.attacker(writer(), 1);
    let () = writer.expect();
    let () = reader.expect();
    writer.kill();
    stage.still_serving("the death");
    stage.until_forgotten(1);
    stage.still_serving("a while");
    reader.kill();
    stage.until_forgotten(0);
}

child!(
    fn claims(ctl: Control) {
        let pool = PoolId(0x7_0000);
        let (mut raw, resumed) = claimant(DomainId(0x7fff_0000), pool);
        assert!(resumed);
        // Names of readers and queues that there never were, until no more are remembered.
        let mut named = 0u32;
        let refused = loop {
            raw.send(&claim_of_nobody(pool, named), &[]);
            named += 500;
            let answer = raw.wait(|e| match e {
                Event::Claimed { req: Req(2) } => Some(None),
                Event::Refused {
                    req: Req(2),
                    refusal,
                } => Some(Some(refusal.code)),
                _ => None,
            });
            if let Some(code) = answer.0 {
                break code;
            }
        };
        assert_eq!(refused, RefusalCode::Limit);
        ctl.send(&named).unwrap();
        let _ = ctl.recv::<()>();
    }
);

#[test]
fn claims_of_what_never_was() {
    let Some(stage) = Stage::new("[limits]\nrecords = 20000\n") else {
        return;
    };
    let claimant = stage.attacker(claims(), 0);
    let named: u32 = claimant.expect();
    assert!((2_000..=20_000).contains(&named), "{named}");
    stage.still_serving("claims");
    claimant.kill();
    stage.until_forgotten(0);
}
