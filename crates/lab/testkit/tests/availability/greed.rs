//! Greed: attackers take as much memory and as many descriptors as there are.

use std::os::fd::AsFd;

use tranship_proto::{Event, RefusalCode, Request};
use tranship_region::layout::TableRw;
use tranship_testkit::{Control, child};

use crate::stage::Stage;
use tranship_testkit::hostile::raw::Raw;

child!(
    fn takes_memory(ctl: Control) {
        let mut raw = Raw::join("greedy");
        let mut got = 0u64;
        // One message would be enough for most of it, and then the rest.
        for _ in 0..64 {
            let (fd, _table) = TableRw::create(64, 1 << 40, 1 << 20).unwrap();
            let req = raw.req();
            let create = Request::CreatePool {
                req,
                name: "greed".into(),
                shape: tranship_proto::PoolShape {
                    max_bytes: 1 << 40,
                    slots: 64,
                    chunk_bytes: 1 << 20,
                    trust: tranship_proto::Trust::Producer,
                },
            };
            raw.send(&create, &[fd.as_fd()]);
            let (pool, _) = raw.wait(|e| match e {
                Event::PoolCreated { pool, .. } => Some(*pool),
                _ => None,
            });
            loop {
                let req = raw.req();
                let chunks = 1 << 20;
                raw.send(&Request::Grant { req, pool, chunks }, &[]);
                let (granted, _) = raw.wait(|e| match e {
                    Event::Granted { req: r, chunks, .. } if *r == req => Some(Some(*chunks)),
                    Event::Refused { req: r, .. } if *r == req => Some(None),
                    _ => None,
                });
                match granted {
                    Some(chunks) => got += u64::from(chunks) << 20,
                    None => break,
                }
            }
        }
        ctl.send(&got).unwrap();
        let _ = ctl.recv::<()>();
    }
);

#[test]
fn all_memory_that_is_granted() {
    let total = 1u64 << 30;
    let Some(stage) = Stage::new("total = \"1GiB\"\n") else {
        return;
    };
    let mut taken = 0; // one after the other: a chunk that is not used comes back after a while, and is granted again
    for which in [0, 1, 0] {
        let attacker = stage.attacker(takes_memory(), which);
        let got: u64 = attacker.expect();
        taken += got;
        eprintln!("user {which} was granted {got} bytes");
        stage.still_serving("greed");
        let granted = stage.granted();
        assert!(granted < total, "{granted}");
        std::mem::forget(attacker);
    }
    assert!(taken > total / 2, "{taken}");
    stage.still_serving("all of it");
}

child!(
    fn takes_descriptors(ctl: Control) {
        let mut all = Vec::new();
        let mut pools = 0u32;
        // Domains, and pools in them, until nothing is to be had.
        'domains: while let Ok(mut raw) = Raw::try_join("greedy") {
            loop {
                let (fd, _table) = TableRw::create(64, 1 << 16, 1 << 16).unwrap();
                let req = raw.req();
                let create = Request::CreatePool {
                    req,
                    name: "greed".into(),
                    shape: tranship_proto::PoolShape {
                        max_bytes: 1 << 16,
                        slots: 64,
                        chunk_bytes: 1 << 16,
                        trust: tranship_proto::Trust::Producer,
                    },
                };
                raw.send(&create, &[fd.as_fd()]);
                let (refused, _) = raw.wait(|e| match e {
                    Event::PoolCreated { .. } => Some(None),
                    Event::Refused { refusal, .. } => Some(Some(refusal.code)),
                    _ => None,
                });
                match refused {
                    None => pools += 1,
                    Some(RefusalCode::Limit) if pools.is_multiple_of(16) => continue 'domains,
                    Some(_) => break,
                }
                if pools.is_multiple_of(16) {
                    break;
                }
            }
            all.push(raw);
            if all.len() > 4000 {
                break;
            }
        }
        ctl.send(&(all.len(), pools)).unwrap();
        let _ = ctl.recv::<()>();
    }
);

#[test]
fn all_descriptors_of_the_manager() {
    let Some(stage) = Stage::with_files("", 1024) else {
        return;
    };
    let before = stage.fds();
    let attackers = [0, 1].map(|which| {
        let attacker = stage.attacker(takes_descriptors(), which);
        let (domains, pools): (usize, u32) = attacker.expect();
        eprintln!("user {which}: {domains} domains, {pools} pools");
        assert!(domains > 0 && domains < 1000);
        stage.still_serving("greed");
        attacker
    });
    drop(attackers);
    stage.until_forgotten(0);
    stage.until_forgotten(1);
    while stage.fds() > before {
        std::thread::yield_now();
    }
}
