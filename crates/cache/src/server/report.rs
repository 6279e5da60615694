//! What `stats` says.

use super::admission::Admission;
use super::shared::Shared;
use crate::reply::Replies;
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// As clients expect it: three numbers first.
pub(super) const VERSION: &str = concat!("1.6.0-tranship-", env!("CARGO_PKG_VERSION"));

pub(super) fn stats(which: &[u8], shared: &Shared, replies: &mut Replies) {
    match which {
        b"" => general(shared, replies),
        b"settings" => settings(shared, replies),
        b"items" | b"slabs" | b"sizes" | b"conns" => {}
        b"reset" => return replies.line("RESET"),
        _ => return replies.line("ERROR"),
    }
    replies.line("END");
}

fn row(replies: &mut Replies, name: &str, value: impl Display) {
    replies.line(&format!("STAT {name} {value}"));
}

fn general(shared: &Shared, replies: &mut Replies) {
    let born = shared
        .birth
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let up = shared.started.elapsed().as_secs();
    let (limit, used) = shared.store.memory();
    let arena = shared.store.arena().stats();
    let counts = &shared.store.counts;
    // Relaxed: counts.
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    row(replies, "pid", std::process::id());
    row(replies, "uptime", up);
    row(replies, "time", born + up);
    row(replies, "version", VERSION);
    row(replies, "pointer_size", usize::BITS);
    row(
        replies,
        "curr_connections",
        shared.open.load(Ordering::Relaxed),
    );
    row(replies, "max_connections", shared.options.connections);
    for (name, value) in shared.stats().rows() {
        row(replies, name, value);
    }
    if shared.options.share.is_some() {
        for (name, value) in shared.shown.rows() {
            row(replies, name, value);
        }
    }
    row(replies, "threads", shared.counts.len());
    row(replies, "limit_maxbytes", limit);
    row(replies, "bytes", used);
    row(replies, "curr_items", load(&counts.items));
    row(replies, "total_items", load(&counts.total_items));
    row(replies, "evictions", load(&counts.evictions));
    row(replies, "reclaimed", load(&counts.expired));
    row(replies, "moved", load(&counts.moved));
    row(replies, "out_of_memory", load(&counts.no_memory));
    let heap = shared.store.arena().heap();
    let unadmitted = heap.map_or(0, tranship_core::Heap::unadmitted_bytes);
    row(replies, "zcopy_manager", Admission::state(heap));
    row(replies, "zcopy_unadmitted_bytes", unadmitted);
    row(replies, "zcopy_arena_bytes", arena.used_bytes);
    row(replies, "zcopy_protected_blocks", arena.frozen_blocks);
}

fn settings(shared: &Shared, replies: &mut Replies) {
    let options = &shared.options;
    row(replies, "maxbytes", options.memory);
    row(replies, "maxconns", options.connections);
    row(replies, "tcpport", options.listen.port());
    row(replies, "udpport", options.udp.map_or(0, |udp| udp.port()));
    row(replies, "num_threads", shared.counts.len());
    row(replies, "item_size_max", options.longest);
    row(replies, "cas_enabled", "yes");
    row(replies, "evictions", "on");
}
