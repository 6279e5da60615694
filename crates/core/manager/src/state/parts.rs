//! The parts of the state.

use super::access::clients::Clients;
use super::access::endings::Endings;
use super::access::exports::Exports;
use super::access::registered::Registrations;
use super::access::waiting::Waits;
use super::books::accounts::{Accounts, Of};
use super::books::back_refs::BackRefs;
use super::books::descriptors::Descriptors;
use super::books::ids::{IdStart, Ids};
use super::books::totals::Totals;
use super::context::Context;
use super::hogs::hog::Hogs;
use super::hogs::watch::Watch;
use super::model::{Channel, Heaps};
use super::pools::pool::Pools;
use super::quotas::pressure::Outside;
use super::quotas::schedule::Schedule;
use super::quotas::steer::Seat;
use super::readers::departures::Departures;
use super::readers::offers::Offers;
use super::recovery::claimed::Claims;
use super::recovery::pass::Sweep;
use super::views::trace::Traces;
use crate::Config;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tranship_proto::ChannelId;

/// The manager's state: parts that own their data, each in a file of its own. A part knows the parts below it, which
/// are arguments of its methods. Handlers that need several parts are `impl State`; no handler's file calls one that
/// calls it back.
#[derive(Debug)]
pub struct State {
    pub(super) cx: Context,
    pub(super) ids: Ids,
    pub(super) pools: Pools,
    pub(super) heaps: Heaps,
    pub(super) channels: BTreeMap<ChannelId, Channel>,
    pub(super) registered: Registrations,
    pub(super) exports: Exports,
    pub(super) waiting: Waits,
    /// Connections to shared names, by the times at which others of the name are tried.
    pub(super) unanswered: VecDeque<(Duration, ChannelId)>,
    pub(super) offers: Offers,
    pub(super) claims: Claims,
    pub(super) back_refs: BackRefs,
    pub(super) departures: Departures,
    pub(super) endings: Endings,
    pub(super) sweep: Sweep,
    pub(super) schedule: Schedule,
    pub(super) seat: Seat,
    pub(super) outside: Outside,
    pub(super) watch: Watch,
    pub(super) hogs: Hogs,
    pub(super) traces: Traces,
    pub(super) longest_turn: Duration,
    pub(super) idle_since: Duration,
}

impl State {
    /// Makes an empty state. `now` counts from its start.
    pub fn new(config: Config, total_bytes: u64, instance: u64, pid: u32, ids: IdStart) -> State {
        let mut accounts = Accounts::new(&config.limits);
        accounts.set_all(Of::Bytes, total_bytes);
        accounts.set_now(total_bytes);
        let schedule = Schedule::new(&config);
        let cx = Context {
            config,
            total_bytes,
            instance,
            pid,
            now: Duration::ZERO,
            out: Vec::new(),
            clients: Clients::default(),
            domains: BTreeMap::new(),
            accounts,
            totals: Totals::default(),
            descriptors: Descriptors::default(),
        };
        State {
            cx,
            ids: Ids::new(ids),
            pools: Pools::default(),
            heaps: Heaps::default(),
            channels: BTreeMap::new(),
            registered: Registrations::default(),
            exports: Exports::default(),
            waiting: Waits::default(),
            unanswered: VecDeque::new(),
            offers: Offers::default(),
            claims: Claims::default(),
            back_refs: BackRefs::default(),
            departures: Departures::default(),
            endings: Endings::default(),
            sweep: Sweep::default(),
            seat: Seat::new(schedule.governs()),
            schedule,
            outside: Outside::new(total_bytes),
            watch: Watch::default(),
            hogs: Hogs::default(),
            traces: Traces::default(),
            longest_turn: Duration::ZERO,
            idle_since: Duration::ZERO,
        }
    }

    /// Limits the descriptors that may be open in all, for all users.
    pub fn limit_descriptors(&mut self, most: usize) {
        self.cx.accounts.set_all(Of::Descriptors, most as u64);
    }

    /// Records the processor time of a turn of the loop.
    pub fn turned(&mut self, took: Duration) {
        self.longest_turn = self.longest_turn.max(took);
    }

    /// Sets the manager's own user, which may have everything.
    pub fn set_owner(&mut self, uid: u32) {
        self.cx.accounts.set_owner(uid);
    }

    /// Says whether a domain has memory that could be asked for, or may not grow at present.
    pub fn has_memory(&self) -> bool {
        self.outside.has_memory(&self.cx, &self.pools, &self.heaps)
    }
}
