//! State that all workers share, options included.

use super::admission::Admission;
use super::announced::Announced;
use super::pacing::Pacing;
use super::waiting::Waiting;
use crate::share::{self, Share};
use crate::stats::{Counts, Stats};
use crate::store::Store;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::time::{Duration, Instant, SystemTime};
use tranship_core::Domain;
use tranship_zcopy::Way;

/// Options of a [`Server`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Address where TCP is served.
    pub listen: SocketAddr,
    /// Address where UDP is served, if it is.
    pub udp: Option<SocketAddr>,
    /// Bytes of keys, values and their records.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of the longest value.
    pub longest: usize,
    /// Longest time that replies may wait for a client that does not take them.
    pub patience: Duration,
    /// Longest time for a command with its value, from its first byte on, or for the replies that wait; however
    /// steadily the client goes on. Zero: for ever.
    pub deadline: Duration,
    /// A Unix socket, for this user alone: takes over from the server that listens there, if one does, with its values,
    /// listening sockets and connections; and lets itself be taken over there.
    pub take_over: Option<PathBuf>,
    /// Shows values to other processes by reference.
    pub share: Option<Share>,
    /// Domain whose manager admits the memory of values, and may want it back; none: no manager does.
    pub domain: Option<Domain>,
    /// Way in which values are sent, to measure its worth; none: by their size ([`tranship_zcopy::Sender`]).
    pub way: Option<Way>,
}

impl Default for Options {
    /// Returns 127.0.0.1:11211, 64 MiB, 4 threads (or as many as there are processors), 1024 connections, values of up
    /// to 1 MiB: as memcached. No UDP.
    fn default() -> Options {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 11211)),
            udp: None,
            memory: 64 << 20,
            threads: processors.min(4),
            connections: 1024,
            longest: 1 << 20,
            patience: Duration::from_secs(60),
            deadline: Duration::from_secs(300),
            take_over: None,
            share: None,
            domain: None,
            way: None,
        }
    }
}

/// State that all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) store: Store,
    pub(super) options: Options,
    /// Values that are on their way here.
    pub(super) announced: Announced,
    /// Memory that replies hold.
    pub(super) waiting: Waiting,
    pub(super) admission: Admission,
    pub(super) pacing: Pacing,
    pub(super) counts: Box<[Counts]>,
    pub(super) shown: share::Counts,
    /// Connections now.
    pub(super) open: AtomicUsize,
    pub(super) stop: AtomicBool,
    /// Time when all is to be removed, seconds of the store's clock; 0: never.
    pub(super) flush_at: AtomicI64,
    pub(super) started: Instant,
    pub(super) birth: SystemTime,
}

impl Shared {
    pub(super) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for counts in &self.counts {
            stats.add(counts);
        }
        stats
    }
}
