//! Attacks that take as much as there is.

use std::os::fd::AsFd;

use tranship_proto::{Event, PoolId, Request, Role};
use tranship_region::layout::TableRw;

use crate::hostile::Attacker;
use crate::hostile::raw::Raw;

/// Domains of one burst.
const DOMAINS: usize = 8;
const EACH: usize = 24;

/// Returns an empty pool, or none.
fn pool(raw: &mut Raw, max_bytes: u64, chunk_bytes: u64) -> Option<PoolId> {
    let (fd, _table) = TableRw::create(64, max_bytes, chunk_bytes).unwrap();
    let req = raw.req();
    let create = Request::CreatePool {
        req,
        name: "greed".into(),
        shape: tranship_proto::PoolShape {
            max_bytes,
            slots: 64,
            chunk_bytes,
            trust: tranship_proto::Trust::Producer,
        },
    };
    raw.send(&create, &[fd.as_fd()]);
    let (made, _) = raw.wait(|e| match e {
        Event::PoolCreated { req: r, pool, .. } if *r == req => Some(Some(*pool)),
        Event::Refused { req: r, .. } if *r == req => Some(None),
        _ => None,
    });
    made
}

/// Takes memory: one message would be enough for most of it, and then the rest. None of it is used.
pub(super) fn memory(attacker: &mut Attacker) {
    let mut raw = Raw::join("greedy");
    while let Some(pool) = pool(&mut raw, 1 << 40, 1 << 20) {
        let mut got = 0;
        loop {
            let (req, chunks) = (raw.req(), 1 << 20);
            raw.send(&Request::Grant { req, pool, chunks }, &[]);
            let (granted, _) = raw.wait(|e| match e {
                Event::Granted { req: r, chunks, .. } if *r == req => Some(Some(*chunks)),
                Event::Refused { req: r, .. } if *r == req => Some(None),
                _ => None,
            });
            match granted {
                Some(chunks) => got += chunks,
                None => break,
            }
        }
        if got == 0 {
            break;
        }
    }
    attacker.keep(raw);
}

pub(super) fn domains_and_pools(attacker: &mut Attacker) {
    for _ in 0..DOMAINS {
        let Ok(mut raw) = Raw::try_join("greedy") else {
            return;
        };
        let pools = (0..EACH).map_while(|_| pool(&mut raw, 1 << 16, 1 << 16));
        let pools = pools.count();
        attacker.keep(raw);
        if pools == 0 {
            return;
        }
    }
}

pub(super) fn names(attacker: &mut Attacker) {
    let mut raw = Raw::join("greedy");
    for _ in 0..DOMAINS * EACH {
        let (req, name) = (raw.req(), attacker.fresh());
        let role = Role::Source;
        raw.send(&Request::Export { req, name, role }, &[]);
    }
    raw.sync();
    attacker.keep(raw);
}

pub(super) fn heaps(attacker: &mut Attacker) {
    let mut raw = Raw::join("greedy");
    for n in 0..EACH as u64 {
        let create = Request::CreateHeap {
            req: raw.req(),
            name: "greed".into(),
            max_bytes: u64::MAX >> n,
            held_bytes: 1 << n,
        };
        raw.send(&create, &[]);
    }
    raw.sync();
    attacker.keep(raw);
}
