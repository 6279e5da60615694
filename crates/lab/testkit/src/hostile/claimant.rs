//! A domain that says that it was there before, with a pool.

use std::os::fd::AsFd;

use tranship_proto::{DomainId, Event, PROTOCOL_VERSION, PoolId, Req, Request};
use tranship_region::layout::TableRw;

use super::raw::Raw;

/// Joins as that domain and claims that pool; says whether the manager has taken it for the domain.
///
/// # Panics
/// When there is no manager, or no memory.
#[must_use]
pub fn claimant(domain: DomainId, pool: PoolId) -> (Raw, bool) {
    let mut raw = Raw::silent();
    let hello = Request::Hello {
        version: PROTOCOL_VERSION,
        name: "claimant".into(),
        resume: Some(domain),
        dumpable: true,
    };
    raw.send(&hello, &[]);
    let (resumed, _control_page) = raw.wait(|e| match e {
        Event::Welcome { resumed, .. } => Some(*resumed),
        _ => None,
    });
    let (table, _map) = TableRw::create(64, 1 << 20, 1 << 16).unwrap();
    let claim = Request::ClaimPool {
        req: Req(1),
        pool,
        name: "claimed".into(),
        shape: tranship_proto::PoolShape {
            max_bytes: 1 << 20,
            slots: 64,
            chunk_bytes: 1 << 16,
            trust: tranship_proto::Trust::Producer,
        },
    };
    raw.send(&claim, &[table.as_fd()]);
    (raw, resumed)
}

/// Readers and queues that there never were: 500 of each, from that number on.
#[must_use]
pub fn claim_of_nobody(pool: PoolId, from: u32) -> Request {
    let all = from..from + 500;
    Request::ClaimReaderSet {
        req: Req(2),
        pool,
        readers: all.clone().map(|n| (DomainId(n), 1)).collect(),
        queues: all
            .map(|n| (tranship_proto::ChannelId(n), DomainId(n), 1))
            .collect(),
    }
}
