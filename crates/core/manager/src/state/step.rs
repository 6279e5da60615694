//! One step of the state: an input goes to its handler.

use super::ancillary::Ancillary;
use super::parts::State;
use super::quotas::{quota, schedule};
use super::recovery::claimed;
use super::refuse::refusal;
use super::types::{Action, ClientId, Done, Fail, Fd, FdToken, Input};
use crate::state::access::names::Asks;
use std::time::Duration;
use tranship_proto::{
    ChannelId, DomainId, Event, GoneReason, NameKind, PoolId, Refusal, RefusalCode, Request, Role,
};

impl State {
    /// Takes one input; the actions are to be executed in order.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Action> {
        self.cx.now = self.cx.now.max(now);
        match input {
            Input::Connected {
                client,
                uid,
                gid,
                pid,
            } => self.connected(client, uid, gid, pid),
            Input::Hello {
                client,
                request,
                pidfd,
                process,
                control_page,
            } => {
                self.hello(client, &request, pidfd, process, control_page);
            }
            Input::Request {
                client,
                request,
                fds,
            } => self.request(client, request, fds),
            Input::Violation { client, refusal } => self.cx.clients.expel(client, refusal),
            Input::Crippled { client, request } => self.crippled(client, &request),
            Input::HungUp { client } => self.connection_ends(client),
            Input::Sent { client } => self.sent(client),
            Input::Closed { token } => {
                self.cx.descriptors.closed(token, &mut self.cx.accounts);
            }
            Input::Parted { client } => {
                self.cx.descriptors.parted(client, &mut self.cx.accounts);
            }
            Input::Blocked { client } => self.blocked(client),
            Input::ProcessDied { domain } => self.domain_ends(domain, GoneReason::Died),
            Input::OrphanRead { pool, slots, live } => self.swept(pool, &slots, live),
            Input::Completed { client, records } => self.completed(client, records),
            Input::FiguresRead { asker, figures } => {
                let (cx, hogs, outside) = (&mut self.cx, &self.hogs, &mut self.outside);
                let (pools, heaps) = (&mut self.pools, &mut self.heaps);
                match asker {
                    Some(asker) => schedule::say_figures(cx, pools, heaps, hogs, asker, &figures),
                    None => {
                        self.schedule
                            .figures_read(cx, pools, heaps, hogs, outside, &figures);
                    }
                }
            }
            Input::HeldRead {
                pool,
                reader,
                slots,
                held,
            } => {
                let (cx, pools) = (&mut self.cx, &mut self.pools);
                self.watch
                    .held_read(cx, pools, (pool, reader), &slots, &held);
            }
            Input::NotKilled { domain } => self.not_killed(domain),
            Input::Pressure(seen) => {
                let (cx, pools, heaps) = (&mut self.cx, &mut self.pools, &mut self.heaps);
                self.outside.seen(cx, pools, heaps, seen);
            }
            Input::SetQuota { pool, quota_bytes } => {
                let (cx, pools, heaps) = (&mut self.cx, &mut self.pools, &mut self.heaps);
                quota::pin(cx, pools, heaps, pool, quota_bytes);
            }
            Input::Tick => self.tick(),
        }
        self.expel_all();
        if !self.cx.clients.is_empty() || !self.cx.domains.is_empty() {
            self.idle_since = self.cx.now;
        }
        std::mem::take(&mut self.cx.out)
    }

    /// Returns when `Tick` is due next, if ever.
    pub fn deadline(&self) -> Option<Duration> {
        let hello = self.cx.clients.hello_due();
        let orphans = self.sweep_due();
        let endings = self.endings_due();
        let unanswered = self.unanswered.front().map(|(at, _)| *at);
        let idle = (self.cx.clients.is_empty() && self.cx.domains.is_empty())
            .then_some(self.cx.config.idle_exit)
            .flatten()
            .map(|d| self.idle_since + d);
        let schedule = self.schedule.due(&self.pools, &self.heaps);
        let (watch, hogs) = (
            self.watch.due(self.cx.config.policy_period),
            self.hogs_due(),
        );
        let all = [
            hello, orphans, endings, unanswered, idle, schedule, watch, hogs,
        ];
        all.into_iter().flatten().min()
    }

    fn tick(&mut self) {
        self.cx.clients.expel_late(self.cx.now);
        self.sweep_on();
        self.end_on();
        self.try_others();
        self.schedule.go_on(&mut self.cx, &self.pools, &self.heaps);
        self.watch.go_on(&mut self.cx, &mut self.pools);
        self.hogs_on();
        let idle = self.cx.clients.is_empty() && self.cx.domains.is_empty();
        if idle
            && self
                .cx
                .config
                .idle_exit
                .is_some_and(|d| self.idle_since + d <= self.cx.now)
        {
            self.cx.out.push(Action::Exit);
        }
    }

    fn request(&mut self, client: ClientId, request: Request, fds: Vec<Fd>) {
        let Some((uid, domain)) = self.cx.clients.get(client).map(|c| (c.uid, c.domain)) else {
            self.cx
                .out
                .extend(fds.iter().map(|fd| Action::Close(fd.token)));
            return;
        };
        let tokens: Vec<FdToken> = fds.iter().map(|fd| fd.token).collect();
        let mut fds = Ancillary { fds: fds.into() };
        let req = request.req();
        let done = match domain {
            _ if fds.sent() != request.fds() => Err(Fail::Expel(refusal(
                RefusalCode::BadDescriptor,
                fds.sent() as u64,
                request.fds() as u64,
            ))),
            None => Err(Fail::Expel(refusal(RefusalCode::State, 0, 0))),
            Some(domain) => self.handle(client, domain, uid, request, &mut fds),
        };
        // Descriptors that no handler has become the owner of are closed.
        let rest = tokens
            .into_iter()
            .filter(|t| !self.cx.descriptors.knows(*t));
        self.cx.out.extend(rest.map(Action::Close));
        match (done, req) {
            (Err(Fail::Refuse(refusal)), Some(req)) => {
                self.cut_short(domain, refusal);
                self.cx.push(client, Event::Refused { req, refusal }, &[]);
            }
            (Err(Fail::Expel(refusal)), _) => self.cx.clients.expel(client, refusal),
            _ => {}
        }
    }

    fn handle(
        &mut self,
        client: ClientId,
        me: DomainId,
        uid: u32,
        request: Request,
        fds: &mut Ancillary,
    ) -> Done {
        use Request as R;
        let need = fds.fds.len() as u64;
        if let Err(refusal) = self.cx.accounts.check_descriptors(uid, need) {
            if let R::AcceptPool { channel, pool, .. } = request {
                self.refuse_accept(me, (channel, pool), refusal);
            }
            return Err(refusal.into());
        }
        match request {
            R::Hello { .. } => Err(Fail::Expel(refusal(RefusalCode::State, 0, 0))),
            R::Goodbye => {
                self.domain_ends(me, GoneReason::Closed);
                Ok(())
            }
            R::CreatePool { req, name, shape } => {
                self.create_pool(me, req, &name, shape, None, fds)
            }
            R::DestroyPool { pool } => self.destroy_pool(me, pool),
            R::Grant { req, pool, chunks } => self.grant(me, req, pool, chunks),
            R::Ungrant { pool, chunks } => self.ungrant(me, pool, chunks),
            R::ShowChunks {
                req,
                pool,
                chunks,
                least,
            } => self.show_chunks(me, req, pool, &chunks, least, fds),
            R::ReturnChunk {
                pool,
                index,
                serial,
            } => self.return_chunk(me, pool, (index, serial)),
            R::Unmapped {
                pool,
                index,
                serial,
            } => self.unmapped(me, pool, (index, serial)),
            R::Resync { req, pool } => self.pools.resync(&mut self.cx, me, req, pool),
            R::AllowForward { req, pool, domain } => self.allow_forward(me, req, pool, domain),
            R::Export { req, name, role } => {
                self.export(me, req, &name, role, NameKind::Channel, false)
            }
            R::Publish {
                req,
                name,
                queue,
                shared,
            } => {
                let kind = NameKind::of_ring(queue);
                self.export(me, req, &name, Role::Source, kind, shared)
            }
            R::Unexport { export } => self.unexport(me, export),
            R::Connect {
                req,
                name,
                role,
                lines,
                wait,
            } => {
                let asks = Asks::channel(role, lines, wait, Vec::new());
                self.connect(me, req, name, asks, fds)
            }
            R::ShowKey { key } => self.show_key(me, key),
            R::ExportShared { req, name, role } => {
                self.export(me, req, &name, role, NameKind::Channel, true)
            }
            R::ConnectBesides {
                req,
                name,
                role,
                lines,
                have,
            } => {
                let asks = Asks::channel(role, lines, true, have);
                self.connect(me, req, name, asks, fds)
            }
            R::Subscribe {
                req,
                name,
                lines,
                queue,
                have,
            } => {
                let asks = Asks::ring(queue, lines, have);
                self.connect(me, req, name, asks, fds)
            }
            R::CancelConnect { req } => self.cancel_connect(me, req),
            R::Accept {
                req,
                channel,
                lines,
            } => self.accept(me, req, channel, lines, None, fds),
            R::AcceptSubscriber {
                req,
                channel,
                lines,
                ring_lines,
            } => self.accept(me, req, channel, lines, Some(ring_lines), fds),
            R::Reject { channel } => self.reject(me, channel),
            R::Assign { req, channel, pool } => self.assign(me, req, channel, pool, fds),
            R::AcceptPool {
                channel,
                pool,
                with_refs,
            } => self.accept_pool(me, channel, pool, with_refs, fds),
            R::VetoPool {
                channel,
                pool,
                levels,
            } => self.veto_pool(me, channel, pool, levels),
            R::Drained { channel } => self.drained(me, channel),
            R::CloseChannel { channel } => self.close_channel(me, channel),
            R::WakeFd { req, channel } => self.wake_fd(me, req, channel, fds),
            R::RegisterChannel { channel } => {
                let (cx, pools) = (&mut self.cx, &self.pools);
                self.registered.register(cx, pools, me, channel, fds)
            }
            R::UnregisterChannel { channel } => {
                self.registered.unregister(&mut self.cx, me, channel)
            }
            R::Stat { req } => self.stat(client, req),
            R::Figures { req, after } => {
                schedule::ask_figures(&mut self.cx, &self.pools, client, req, after)
            }
            R::Trace {
                req,
                pool,
                on,
                while_here,
            } => {
                let (cx, pools) = (&mut self.cx, &self.pools);
                let who = (client, me, uid);
                self.traces
                    .trace(cx, pools, who, req, pool, (on, while_here))
            }
            R::ShowTrace => self.traces.show(&mut self.cx, &self.back_refs, me, fds),
            R::NextTrace { req, after } => {
                self.traces
                    .next(&mut self.cx, (client, me, uid), req, after)
            }
            R::Steer { req, take } => {
                let who = (client, me);
                self.seat.steer(&mut self.cx, who, uid, req, take)
            }
            R::SetQuotas { req, quotas } => {
                let (cx, pools, heaps) = (&mut self.cx, &mut self.pools, &mut self.heaps);
                self.seat.set_quotas(cx, pools, heaps, client, req, &quotas)
            }
            R::ClaimPool {
                req,
                pool,
                name,
                shape,
            } => self.claim_pool(me, req, pool, &name, shape, fds),
            R::ClaimChunk {
                req,
                pool,
                index,
                serial,
            } => self.claim_chunk(me, req, pool, (index, serial), fds),
            R::ClaimReader {
                req,
                pool,
                slots,
                table,
                trust,
                mapped,
            } => {
                let claimed = claimed::Reads {
                    slots,
                    table,
                    trust,
                };
                self.claim_reader(me, req, pool, claimed, &mapped, fds)
            }
            R::ClaimChannel { req, claim } => self.claim_channel(me, req, &claim, fds),
            R::ClaimAssign { req, channel, pool } => self.claim_assign(me, req, channel, pool, fds),
            R::ClaimDone { req } => self.claim_done(me, req),
            R::CreateHeap {
                req,
                name,
                max_bytes,
                held_bytes,
            } => self.create_heap(me, req, &name, max_bytes, held_bytes),
            R::DestroyHeap { heap } => self.destroy_heap(me, heap),
            R::Admit {
                req,
                heap,
                bytes,
                least_bytes,
            } => self.admit_bytes(me, req, heap, least_bytes, bytes),
            R::GiveBack { heap, bytes } => self.give_back(me, heap, bytes),
            R::HeapFigures {
                heap,
                live_bytes,
                cached_bytes,
            } => self.heap_figures(me, heap, (live_bytes, cached_bytes)),
            R::SetQuota {
                req,
                pool,
                quota_bytes,
            } => {
                let (cx, pools, heaps) = (&mut self.cx, &mut self.pools, &mut self.heaps);
                quota::ask(cx, pools, heaps, (me, uid), req, (pool, quota_bytes))
            }
            R::ClaimReaderSet {
                req,
                pool,
                readers,
                queues,
            } => self.claim_reader_set(me, req, pool, &readers, &queues),
        }
    }

    /// Handles a request that came complete except for its descriptors, for which this process has no room: the client
    /// may ask again.
    fn crippled(&mut self, client: ClientId, request: &Request) {
        let refusal = self.cx.accounts.no_descriptors();
        let domain = self.cx.clients.domain_of(client);
        match (request, request.req(), domain) {
            (_, Some(req), Some(_)) => {
                self.cut_short(domain, refusal);
                self.cx.push(client, Event::Refused { req, refusal }, &[]);
            }
            (&Request::AcceptPool { channel, pool, .. }, _, Some(me)) => {
                self.refuse_accept(me, (channel, pool), refusal);
            }
            (Request::RegisterChannel { .. } | Request::ShowTrace, _, Some(_)) => {} // not shown
            _ => self.cx.clients.expel(client, refusal),
        }
    }

    /// Notes that a domain could not claim everything, for lack of descriptors.
    fn cut_short(&mut self, domain: Option<DomainId>, refusal: Refusal) {
        if let Some(domain) = domain.filter(|_| refusal.code == RefusalCode::NoDescriptors) {
            self.cx.claimed_too(domain, |c| c.cut_short = true);
        }
    }

    /// Refuses a sink's answer that cannot be taken: its source is told why.
    fn refuse_accept(&mut self, me: DomainId, key: (ChannelId, PoolId), refusal: Refusal) {
        if self.offers.get(key).is_some_and(|o| o.sink == me) {
            self.refuse_offer(key, refusal);
        }
    }
}
