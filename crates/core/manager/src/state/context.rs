//! The data that every handler needs: the time, the domains, their queued events, and their charges.

use super::access::clients::Clients;
use super::ancillary::bytes_of;
use super::books::accounts::{Accounts, Of, at_most_half};
use super::books::descriptors::Descriptors;
use super::books::extent::{For, MANAGER, Piece};
use super::books::totals::Totals;
use super::model::{Claiming, Domain};
use super::refuse::refusal;
use super::types::{Action, ClientId, FdToken, Then};
use crate::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tranship_proto::{
    AccessRule, ChannelId, DomainId, Event, GoneReason, PoolId, Refusal, RefusalCode,
};
use tranship_region::layout::Kind;

#[derive(Debug)]
pub(crate) struct Context {
    pub config: Config,
    pub total_bytes: u64,
    pub instance: u64,
    pub pid: u32,
    pub now: Duration,
    /// The shell's actions of this step.
    pub out: Vec<Action>,
    pub clients: Clients,
    pub domains: BTreeMap<DomainId, Domain>,
    pub accounts: Accounts,
    pub totals: Totals,
    pub descriptors: Descriptors,
}

/// Events to domains.
impl Context {
    /// Queues an event to a connection.
    pub fn push(&mut self, client: ClientId, event: Event, fds: &[FdToken]) {
        self.push_then(client, event, fds, Then::Nothing);
    }

    /// Queues an event, with the step that follows when it has gone out.
    pub fn push_then(&mut self, client: ClientId, event: Event, fds: &[FdToken], then: Then) {
        let message = (event, fds);
        self.clients
            .push(client, message, then, None, &mut self.out);
    }

    /// Queues an event to a domain, if it is connected.
    pub fn tell(&mut self, domain: DomainId, event: Event, fds: &[FdToken]) {
        self.tell_then(domain, event, fds, Then::Nothing);
    }

    pub fn tell_then(&mut self, domain: DomainId, event: Event, fds: &[FdToken], then: Then) {
        if let Some(client) = self.client_of(domain) {
            self.push_then(client, event, fds, then);
        }
    }

    /// Says that a channel's other end is gone.
    pub fn tell_gone(&mut self, domain: DomainId, channel: ChannelId, reason: GoneReason) {
        self.tell(domain, Event::PeerGone { channel, reason }, &[]);
    }

    /// Queues an event that another user has caused.
    pub fn tell_for(&mut self, uid: u32, domain: DomainId, event: Event, fds: &[FdToken]) {
        if let Some(client) = self.client_of(domain) {
            let (message, cause) = ((event, fds), Some(uid));
            self.clients
                .push(client, message, Then::Nothing, cause, &mut self.out);
        }
    }

    pub fn client_of(&self, domain: DomainId) -> Option<ClientId> {
        self.domains.get(&domain)?.client
    }

    /// Says whether a domain is connected, and long answers to it may continue.
    pub fn reads(&self, domain: DomainId) -> bool {
        let client = self.client_of(domain);
        client.is_some_and(|c| self.clients.has_room(c))
    }

    pub fn uid_of(&self, domain: DomainId) -> Option<u32> {
        self.domains.get(&domain).map(|d| d.uid)
    }

    /// Checks that a domain may do what only the user of a program may, and its components may not.
    pub fn check_operator(&self, me: DomainId) -> Result<(), Refusal> {
        let key = self.domains.get(&me).and_then(|d| d.key.as_deref());
        match self.config.lets_operate(key) {
            true => Ok(()),
            false => Err(refusal(RefusalCode::Access, 0, AccessRule::Operator as u64)),
        }
    }

    /// Returns the first free entry of a domain's control page.
    pub fn free_entry(&self, me: DomainId) -> Option<u32> {
        let entries = &self.domains.get(&me)?.entries;
        let entry = entries.iter().position(Option::is_none)?;
        u32::try_from(entry).ok()
    }

    /// Gives an entry of a domain's control page to a pool.
    pub fn take_entry(&mut self, me: DomainId, entry: u32, pool: PoolId) {
        let d = self.domains.get_mut(&me);
        if let Some(slot) = d.and_then(|d| d.entries.get_mut(entry as usize)) {
            *slot = Some(pool);
        }
    }

    /// Notes an object that a returning domain gets anew before `ClaimDone`, so that it is not given up there.
    pub fn claimed_too<R>(
        &mut self,
        domain: DomainId,
        add: impl FnOnce(&mut Claiming) -> R,
    ) -> Option<R> {
        self.domains.get_mut(&domain)?.claiming.as_mut().map(add)
    }
}

/// Descriptors, and the users that pay for them.
impl Context {
    /// Becomes the owner of a descriptor on behalf of a user.
    pub fn hold(&mut self, token: FdToken, uid: u32) -> FdToken {
        self.descriptors.hold(token, uid, &mut self.accounts)
    }

    /// Becomes the owner of a shared object that a domain has made.
    pub fn hold_object(&mut self, token: FdToken, me: DomainId, kind: Kind, n: u32) -> FdToken {
        let of = match kind {
            Kind::LinkSource | Kind::LinkSink => For::Rings,
            _ => For::Tables,
        };
        self.hold_memory(token, me, of, bytes_of(kind, n))
    }

    /// Becomes the owner of memory that a domain has made.
    pub fn hold_memory(&mut self, token: FdToken, me: DomainId, of: For, bytes: u64) -> FdToken {
        let d = self.domains.get(&me);
        let (uid, by) = d.map_or((u32::MAX, MANAGER), |d| (d.uid, d.maker));
        self.hold_piece(token, uid, Piece { by, of, bytes })
    }

    /// Holds a descriptor of memory whose maker is not here.
    pub fn hold_piece(&mut self, token: FdToken, uid: u32, piece: Piece) -> FdToken {
        let (piece, accounts) = (Some(piece), &mut self.accounts);
        self.descriptors.hold_piece(token, uid, piece, accounts)
    }

    /// Holds a control page, which is counted to its domain's user.
    pub fn hold_control_page(&mut self, token: FdToken, uid: u32) {
        let (by, of) = (MANAGER, For::ControlPages);
        let bytes = bytes_of(Kind::ControlPage, self.config.pools_per_domain);
        self.hold_piece(token, uid, Piece { by, of, bytes });
    }

    /// Closes a descriptor that was held.
    pub fn release(&mut self, token: FdToken) {
        self.descriptors.release(token, &mut self.out);
    }
}

/// Memory, and the users that pay for it.
impl Context {
    /// Returns the memory that a domain may still be granted: of the total, of its user's share, and of the limit for
    /// one domain.
    pub fn room_for(&self, uid: u32, domain: DomainId) -> u64 {
        let room = self.accounts.room_charged(uid);
        match (self.config.limits.domain_memory, self.domains.get(&domain)) {
            (Some(most), Some(d)) => {
                // Other users' memory that is charged to it counts too (docs/scheduling.md).
                let strange = at_most_half(d.strange_bytes(), most);
                let charged = d.charged_bytes() - d.strange_bytes();
                let has = d.bytes.saturating_add(charged).saturating_add(strange);
                room.min(most.saturating_sub(has))
            }
            _ => room,
        }
    }

    /// Returns the memory that a domain could be granted if no memory of others were charged to it.
    fn room_uncharged(&self, uid: u32, domain: DomainId) -> u64 {
        let room = self.accounts.room(uid, Of::Bytes);
        match (self.config.limits.domain_memory, self.domains.get(&domain)) {
            (Some(most), Some(d)) => room.min(most.saturating_sub(d.bytes)),
            _ => room,
        }
    }

    /// Returns the reason for the lack of room: too little memory, or others' memory charged to the domain.
    pub fn no_room(&self, uid: u32, domain: DomainId, asked: u64, least: u64) -> Refusal {
        let room = self.room_for(uid, domain);
        let code = match self.room_uncharged(uid, domain) >= least {
            true => RefusalCode::Charged,
            false => RefusalCode::Total,
        };
        refusal(code, asked, room)
    }

    /// Returns the most that a user's pool or heap of this size can ever have.
    pub fn most_for(&self, uid: u32, max_bytes: u64) -> u64 {
        max_bytes
            // A request that can never be granted must be an error at once, not a wait.
            .min(self.config.limits.domain_memory.unwrap_or(u64::MAX))
            .min(self.accounts.most(uid, Of::Bytes))
    }

    /// Returns the quota of a new pool or heap.
    pub fn first_quota(&self, uid: u32, max_bytes: u64) -> u64 {
        let first = self.config.default_quota.unwrap_or(u64::MAX);
        self.most_for(uid, max_bytes.min(first))
    }

    /// Grants memory to a domain.
    pub fn charge(&mut self, uid: u32, domain: DomainId, bytes: u64) {
        self.totals.grant(uid, bytes, &mut self.accounts);
        if let Some(d) = self.domains.get_mut(&domain) {
            d.bytes += bytes;
        }
    }

    pub fn uncharge(&mut self, uid: u32, domain: DomainId, bytes: u64) {
        self.totals.ungrant(uid, bytes, &mut self.accounts);
        if let Some(d) = self.domains.get_mut(&domain) {
            d.bytes = d.bytes.saturating_sub(bytes);
        }
    }

    /// Returns the user that pays for memory with these holders.
    pub fn payer(&self, holders: &BTreeSet<DomainId>) -> u32 {
        let first = holders.first().and_then(|d| self.uid_of(*d));
        first.unwrap_or(u32::MAX)
    }

    /// Adds to, or subtracts from, a domain's bytes that are out of use.
    pub fn strands(&mut self, domain: DomainId, bytes: u64, more: bool) {
        if let Some(d) = self.domains.get_mut(&domain) {
            d.stranded_bytes = match more {
                true => d.stranded_bytes + bytes,
                false => d.stranded_bytes.saturating_sub(bytes),
            };
        }
    }

    pub fn strand(&mut self, payer: u32, bytes: u64) {
        self.totals.strand(payer, bytes, &mut self.accounts);
    }

    pub fn unstrand(&mut self, payer: u32, bytes: u64) {
        self.totals.unstrand(payer, bytes, &mut self.accounts);
    }
}
