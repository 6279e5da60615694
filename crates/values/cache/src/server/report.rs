//! Report of `stats`.

use super::admission::Admission;
use super::shared::Shared;
use crate::reply::Replies;
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// Version as clients expect it: three numbers first.
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

/// Rows that exporters of memcached's numbers read, and that are always 0 here: of parts that memcached has and this
/// server has not.
const NOTHING: &str = "response_obj_oom response_obj_count response_obj_bytes read_buf_count read_buf_bytes \
    read_buf_bytes_free read_buf_oom get_flushed auth_cmds auth_errors listen_disabled_num \
    time_in_listen_disabled_us hash_power_level hash_bytes hash_is_expanding \
    slab_reassign_rescues slab_reassign_chunk_rescues slab_reassign_evictions_nomem \
    slab_reassign_inline_reclaim slab_reassign_busy_items slab_reassign_busy_deletes \
    slab_reassign_running slabs_moved slab_global_page_pool lru_crawler_running \
    lru_crawler_starts lru_maintainer_juggles lru_bumps_dropped malloc_fails \
    log_worker_dropped log_worker_written log_watcher_skipped log_watcher_sent log_watchers \
    unexpected_napi_ids round_robin_fallback evicted_active crawler_reclaimed \
    crawler_items_checked lrutail_reflocked moves_to_cold moves_to_warm moves_within_lru \
    direct_reclaims reserved_fds";

/// Seconds of processor time, in user mode and in the kernel, as memcached writes them.
fn processor_time() -> Option<[String; 2]> {
    /// Ticks a second of the clock in which the kernel counts processor time.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields behind the name, which may contain any character; the name is the second field.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut seconds = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(format!(
            "{}.{:06}",
            ticks / TICKS,
            ticks % TICKS * (1_000_000 / TICKS)
        ))
    };
    Some([seconds()?, seconds()?])
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
    if let Some([user, system]) = processor_time() {
        row(replies, "rusage_user", user);
        row(replies, "rusage_system", system);
    }
    let open = shared.open.load(Ordering::Relaxed);
    row(replies, "curr_connections", open);
    row(replies, "connection_structures", open);
    row(replies, "accepting_conns", 1);
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
    row(replies, "store_no_memory", load(&counts.no_memory));
    row(replies, "get_expired", load(&counts.get_expired));
    row(
        replies,
        "expired_unfetched",
        load(&counts.expired_unfetched),
    );
    row(
        replies,
        "evicted_unfetched",
        load(&counts.evicted_unfetched),
    );
    row(replies, "idle_kicks", shared.stats().slow_clients_closed);
    for name in NOTHING.split(' ') {
        row(replies, name, 0);
    }
    let heap = shared.store.arena().heap();
    let unadmitted = heap.map_or(0, tranship_core::heap::Heap::unadmitted_bytes);
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
