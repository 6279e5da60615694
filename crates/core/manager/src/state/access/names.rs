//! The name service: exports, connects that wait for them, channels in the making.

use crate::state::ancillary::half_of;
use crate::state::books::back_refs::BackRef;
use crate::state::model::{Channel, Export, Stage, Waiting};
use crate::state::refuse::{check_lines, check_spelling};
use crate::state::types::{Done, FdToken};
use crate::state::{Ancillary, Fail, Of, State, barred, no_such, not_yours, refusal};
use std::collections::BTreeSet;
use std::time::Duration;
use tranship_proto::{
    AccessRule, ChannelId, DomainId, Event, ExportId, GoneReason, Limited, NameKind, Refusal,
    RefusalCode, Req, Role,
};
use tranship_region::layout::Kind;

/// Most channels that wait for the answer of one exporter.
const BACKLOG: u32 = 256;
/// The clients waiting for a name that are served at a time.
const SERVED: usize = 64;
/// The clients waiting for a name that are looked at for it at a time.
const LOOKED: usize = 1024;
/// Most domains that share a name.
const SHARERS: u32 = 64;
/// Most writers that a reader may say it is connected to: some of them may have gone.
const MOST_WRITERS: usize = 2 * SHARERS as usize;

/// The time after which a connection that one of several exporters has not answered is offered to the others.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long such an exporter is asked after the others. It is bounded, because another exporter may answer and be of no use.
const LAST: Duration = Duration::from_secs(10);

/// A connect's request.
pub(crate) struct Asks {
    kind: NameKind,
    role: Role,
    lines: u32,
    wait: bool,
    /// Domains that have the name, to which the asker is connected.
    have: Vec<DomainId>,
}

impl Asks {
    pub fn channel(role: Role, lines: u32, wait: bool, have: Vec<DomainId>) -> Asks {
        Asks {
            kind: NameKind::Channel,
            role,
            lines,
            wait,
            have,
        }
    }

    /// A reader's connect to a topic or a queue.
    pub fn ring(queue: bool, lines: u32, have: Vec<DomainId>) -> Asks {
        Asks {
            kind: NameKind::of_ring(queue),
            role: Role::Sink,
            lines,
            wait: true,
            have,
        }
    }
}

impl State {
    pub(crate) fn check_named(
        &self,
        me: DomainId,
        name: &str,
        exports: bool,
    ) -> Result<(u32, u32), Fail> {
        let d = self.cx.domains.get(&me).ok_or(no_such(me.0))?;
        check_spelling(name)?;
        let key = d.key.as_deref();
        match self.cx.config.bars_key(key, name, exports) {
            Some(refusal) => Err(refusal.into()),
            None => Ok((d.uid, d.gid)),
        }
    }

    /// Takes the key by which the rules about names know a domain.
    pub(crate) fn show_key(&mut self, me: DomainId, key: String) -> Done {
        check_spelling(&key)?;
        let d = self.cx.domains.get_mut(&me).ok_or(no_such(me.0))?;
        d.key = Some(key);
        Ok(())
    }

    /// Offers a name, a channel's, a topic's or a queue's.
    pub(crate) fn export(
        &mut self,
        me: DomainId,
        req: Req,
        name: &str,
        role: Role,
        kind: NameKind,
        shared: bool,
    ) -> Done {
        let (uid, gid) = self.check_named(me, name, true)?;
        if let Some(rule) = self.cx.config.bars_export(uid, gid, name) {
            return Err(barred(uid, rule).into());
        }
        self.check_free(me, uid, name, (kind, shared))?;
        self.cx.accounts.check(uid, Of::Names, 1)?;
        let export = ExportId(self.fresh_id());
        self.exports.insert(
            export,
            Export {
                name: name.to_owned(),
                domain: me,
                role,
                kind,
                shared,
                given: 0,
                silent_until: Duration::ZERO,
                next: 0,
            },
        );
        self.cx.accounts.add(uid, Of::Names, 1);
        self.cx.tell(me, Event::Exported { req, export }, &[]);
        self.serve_waiting(export);
        Ok(())
    }

    /// Checks that a domain may share a name with the domains that have it.
    fn check_free(
        &self,
        me: DomainId,
        uid: u32,
        name: &str,
        (kind, shared): (NameKind, bool),
    ) -> Result<(), Refusal> {
        let (mut its, mut others) = (0, 0);
        for (_, taken) in self.exports.named(name) {
            let by = taken.domain;
            if taken.domain == me || !taken.shared && !shared {
                let pid = self.cx.domains.get(&by).map_or(0, |d| d.pid);
                return Err(refusal(RefusalCode::NameTaken, pid.into(), by.0.into()));
            }
            if taken.shared != shared {
                return Err(refusal(RefusalCode::Shared, shared.into(), by.0.into()));
            }
            if taken.kind != kind {
                return Err(Refusal::other_kind(taken.kind));
            }
            match self.cx.uid_of(by) == Some(uid) {
                true => its += 1,
                false => others += 1,
            }
        }
        // One user cannot keep all others from a name.
        let most = (SHARERS.saturating_sub(others) / 4 * 3).max(1);
        match its < most && its + others < SHARERS {
            true => Ok(()),
            false => Err(Limited::Sharers.refuse((its + 1).into(), most.into())),
        }
    }

    /// Lets waiting clients in, as far as there is room. The others wait on, each for room in its own user's share.
    fn serve_waiting(&mut self, export: ExportId) {
        let Some(e) = self.exports.get(export) else {
            return;
        };
        let (name, exporter, role, kind) = (e.name.clone(), e.domain, e.role, e.kind);
        // Requests that were not reached last time come first.
        let (mut from, mut waits) = (e.next, e.next > 0);
        let mut served = 0;
        for _ in 0..LOOKED {
            let Some((number, w)) = self.waiting.first(&name, from) else {
                from = 0;
                break;
            };
            if served == SERVED {
                break;
            }
            from = number + 1;
            if w.has(exporter) {
                continue;
            }
            let is_kind = kind == w.kind;
            let fits = is_kind && role == w.role.opposite() && w.domain != exporter;
            if fits && !self.may_come(exporter, w.uid) {
                waits = true;
                continue;
            }
            served += 1;
            let Some(w) = self.waiting.take(number) else {
                break;
            };
            self.cx.accounts.sub(w.uid, Of::Names, 1);
            if fits && self.cx.accounts.room(w.uid, Of::Channels) > 0 {
                self.incoming(export, w);
            } else {
                self.release_shown(&w);
                let refused = self.cx.accounts.check(w.uid, Of::Channels, 1);
                let refusal = match (fits, refused) {
                    (true, Err(refusal)) => refusal,
                    _ if w.domain == exporter => refusal(RefusalCode::OwnName, 0, 0),
                    _ if !is_kind => Refusal::other_kind(kind),
                    _ => refusal(RefusalCode::Role, 0, 0),
                };
                let req = w.req;
                self.cx.tell(w.domain, Event::Refused { req, refusal }, &[]);
            }
        }
        self.exports.go_on_from(export, from);
        match waits || from > 0 {
            true => self.exports.want(export),
            false => self.exports.unwant(export),
        }
    }

    /// Lets a waiting client in after there is room again at an exporter.
    pub(crate) fn come_in(&mut self, exporter: DomainId) {
        if let Some(export) = self.exports.take_wanted(exporter) {
            self.serve_waiting(export);
        }
    }

    /// Says whether one more of a user's channels may wait for an exporter's answer.
    fn may_come(&self, exporter: DomainId, uid: u32) -> bool {
        let Some(d) = self.cx.domains.get(&exporter) else {
            return false;
        };
        let its = d.backlog.get(&uid).copied().unwrap_or(0);
        let others = d.backlog.values().sum::<u32>() - its;
        let share = BACKLOG.saturating_sub(others) / 4 * 3;
        let client = d.client;
        its < share.max(1) && client.is_some_and(|c| self.cx.clients.has_room_for(c, uid))
    }

    pub(crate) fn unexport(&mut self, me: DomainId, export: ExportId) -> Done {
        match self.exports.get(export) {
            None => Err(no_such(export.0)),
            Some(e) if e.domain != me => Err(not_yours(export.0)),
            Some(_) => {
                self.drop_export(export);
                Ok(())
            }
        }
    }

    /// Drops a name; channels that were made under it stay.
    pub(crate) fn drop_export(&mut self, export: ExportId) {
        if let Some(e) = self.exports.remove(export)
            && let Some(uid) = self.cx.uid_of(e.domain)
        {
            self.cx.accounts.sub(uid, Of::Names, 1);
        }
    }

    /// Closes what a domain has shown whose connect ends.
    pub(crate) fn release_shown(&mut self, w: &Waiting) {
        self.cx.release(w.half);
        if let Some(desk) = w.desk {
            self.cx.release(desk);
        }
    }

    /// Finds the export to which a connect may go at once. `None`: it waits, for the exports that are returned too.
    // Inputs are honest or not: the connecting domain decides nothing but its own connection.
    fn find_room(
        &self,
        me: DomainId,
        uid: u32,
        name: &str,
        asks: &Asks,
    ) -> Result<(Option<ExportId>, Vec<ExportId>), Refusal> {
        let (mut full, mut found) = (Vec::new(), None);
        for (id, e) in self.exports.named(name) {
            if e.kind != asks.kind {
                return Err(Refusal::other_kind(e.kind));
            }
            if e.role != asks.role.opposite() {
                return Err(refusal(RefusalCode::Role, 0, 0));
            }
            if asks.have.contains(&e.domain) {
                continue;
            }
            if e.domain == me {
                return Err(refusal(RefusalCode::OwnName, 0, 0));
            }
            // A client that connects faster than the exporter accepts must not get the exporter into trouble.
            match self.may_come(e.domain, uid) {
                // An exporter that does not answer, or does not fit, keeps no reader from the others.
                true => {
                    let is_silent = e.silent_until > self.cx.now;
                    found = found.into_iter().chain([(is_silent, e.given, id)]).min();
                }
                false => full.push(id),
            }
        }
        if let Some((.., id)) = found {
            return Ok((Some(id), Vec::new()));
        }
        match asks.wait {
            true => Ok((None, full)),
            false if full.is_empty() => Err(refusal(RefusalCode::NoSuchName, 0, 0)),
            false => Err(Limited::Backlog.refuse(0, 0)),
        }
    }

    /// Connects to a name. A reader of a topic, or of a queue, shows its desk.
    pub(crate) fn connect(
        &mut self,
        me: DomainId,
        req: Req,
        name: String,
        asks: Asks,
        fds: &mut Ancillary,
    ) -> Done {
        let (uid, gid) = self.check_named(me, &name, false)?;
        if !self.cx.config.may_bind(uid, gid, &name) {
            return Err(barred(uid, AccessRule::Bind).into());
        }
        check_lines(asks.lines)?;
        if asks.have.len() > MOST_WRITERS {
            return Err(refusal(
                RefusalCode::BadArgument,
                asks.have.len() as u64,
                MOST_WRITERS as u64,
            )
            .into());
        }
        self.cx.accounts.check(uid, Of::Channels, 1)?;
        if self.waiting.has(me, req) {
            return Err(refusal(RefusalCode::State, u64::from(req.0), 0).into());
        }
        let (comes, full) = self.find_room(me, uid, &name, &asks)?;
        if comes.is_none() {
            self.cx.accounts.check(uid, Of::Names, 1)?;
        }
        let Asks {
            kind,
            role,
            lines,
            have,
            ..
        } = asks;
        let half = fds.take(half_of(role), lines)?.token;
        let desk = (kind != NameKind::Channel).then(|| fds.take(Kind::Desk, 1));
        let desk = desk.transpose()?;
        self.cx.hold_object(half, me, half_of(role), lines);
        let desk = desk.map(|desk| self.cx.hold_object(desk.token, me, Kind::Desk, 1));
        let w = Waiting {
            domain: me,
            uid,
            req,
            name,
            role,
            lines,
            half,
            desk,
            kind,
            have,
        };
        match comes {
            Some(export) => self.incoming(export, w),
            None => {
                self.cx.accounts.add(uid, Of::Names, 1);
                self.waiting.push(w);
                full.into_iter()
                    .for_each(|export| self.exports.want(export));
            }
        }
        Ok(())
    }

    /// Makes a channel for a connect and shows it to the exporter.
    fn incoming(&mut self, export: ExportId, mut w: Waiting) {
        let exporter = self.exports.get(export).map(|e| (e.domain, e.shared));
        let Some((exporter, shared)) = exporter else {
            return self.release_shown(&w);
        };
        let Some(d) = self.cx.domains.get(&w.domain) else {
            return self.release_shown(&w);
        };
        let (peer_uid, peer_pid) = (d.uid, d.pid);
        let channel = ChannelId(self.fresh_id());
        let (source, sink) = match w.role {
            Role::Source => (w.domain, exporter),
            Role::Sink => (exporter, w.domain),
        };
        self.exports.gave(export);
        if shared {
            let at = self.cx.now + PATIENCE;
            self.unanswered.push_back((at, channel));
        }
        self.back_refs.insert(source, BackRef::End(channel, true));
        self.back_refs.insert(sink, BackRef::End(channel, false));
        self.back_refs
            .insert(w.domain, BackRef::Asked(w.req, channel));
        self.cx.accounts.add(w.uid, Of::Channels, 1);
        if let Some(d) = self.cx.domains.get_mut(&exporter) {
            *d.backlog.entry(w.uid).or_default() += 1;
        }
        let event = Event::Incoming {
            channel,
            export,
            peer: w.domain,
            peer_uid,
            peer_pid,
            role: w.role.opposite(),
            lines: w.lines,
            topic: w.desk.is_some(),
        };
        let mut fds = vec![w.half];
        fds.extend(w.desk);
        self.cx.tell_for(w.uid, exporter, event, &fds);
        if let Some(desk) = w.desk.take() {
            // The message has its own hold on it.
            self.cx.release(desk);
        }
        let record = Channel {
            name: w.name.clone(),
            source,
            sink,
            payers: match w.role {
                Role::Source => [Some(w.uid), None],
                Role::Sink => [None, Some(w.uid)],
            },
            connector: w.domain,
            lines: w.lines,
            stage: Stage::Incoming(Box::new(w), shared),
            source_gone: false,
            source_half: None,
            sink_half: None,
            source_ring: None,
            pools: BTreeSet::new(),
        };
        self.channels.insert(channel, record);
    }

    pub(crate) fn cancel_connect(&mut self, me: DomainId, req: Req) -> Done {
        if let Some(w) = self.waiting.cancel(me, req) {
            self.cx.accounts.sub(w.uid, Of::Names, 1);
            self.release_shown(&w);
            // There is a listener too if its backlog was full.
            let mut named = self.exports.named(&w.name);
            return Err(match named.find(|(_, e)| !w.has(e.domain)) {
                Some((export, _)) => refusal(RefusalCode::PeerGone, u64::from(export.0), 0),
                None => refusal(RefusalCode::NoSuchName, 0, 0),
            }
            .into());
        }
        if let Some(channel) = self.back_refs.asked(me, req) {
            self.drop_incoming(channel, me);
            return Err(refusal(RefusalCode::PeerGone, u64::from(channel.0), 0).into());
        }
        Ok(())
    }

    /// Ends a channel in the making because one end (`who`) went away or does not want it.
    pub(crate) fn drop_incoming(&mut self, id: ChannelId, who: DomainId) {
        let Some(c) = self.channels.get(&id).filter(|c| c.is_incoming()) else {
            return;
        };
        let exporter = c.exporter();
        let Some(c) = self.channels.remove(&id) else {
            return;
        };
        let Stage::Incoming(w, _) = c.stage else {
            return;
        };
        let (req, half) = (w.req, w.half);
        self.back_refs.remove(c.source, BackRef::End(id, true));
        self.back_refs.remove(c.sink, BackRef::End(id, false));
        self.back_refs.remove(c.connector, BackRef::Asked(req, id));
        self.cx.release(half);
        self.no_channel(&c.payers);
        let uid = c.payers.into_iter().flatten().next();
        self.answered(exporter, uid);
        if who == c.connector {
            let event = Event::PeerGone {
                channel: id,
                reason: GoneReason::Closed,
            };
            self.cx
                .tell_for(uid.unwrap_or(u32::MAX), exporter, event, &[]);
        } else {
            let refusal = refusal(RefusalCode::PeerGone, u64::from(id.0), 0);
            self.cx
                .tell(c.connector, Event::Refused { req, refusal }, &[]);
        }
    }

    /// Ends connections that their exporters have not answered in time, if others have the name: the connectors ask again,
    /// each with a half that nobody has seen, and come to others first.
    pub(crate) fn try_others(&mut self) {
        let now = self.cx.now;
        while let Some((_, id)) = self.unanswered.pop_front_if(|(at, _)| *at <= now) {
            let Some(c) = self.channels.get(&id) else {
                continue;
            };
            let Stage::Incoming(w, _) = &c.stage else {
                continue;
            };
            let req = w.req;
            let connector = c.connector;
            self.exports.set_silent(&c.name, c.exporter(), now + LAST);
            if !self.has_another(c) {
                self.unanswered.push_back((now + PATIENCE, id));
                continue;
            }
            self.drop_incoming(id, connector);
            let refusal = refusal(RefusalCode::PeerGone, u64::from(id.0), 0);
            self.cx
                .tell(connector, Event::Refused { req, refusal }, &[]);
        }
    }

    /// Says whether a connection in the making could go to another exporter of its name.
    fn has_another(&self, c: &Channel) -> bool {
        let Stage::Incoming(w, _) = &c.stage else {
            return false;
        };
        let uid = c.payers.into_iter().flatten().next();
        self.exports.named(&c.name).any(|(_, e)| {
            let by = e.domain;
            let is_new = ![c.source, c.sink].contains(&by) && !w.has(by);
            is_new && uid.is_some_and(|uid| self.may_come(by, uid))
        })
    }

    /// Ends the count of a channel's ends.
    pub(crate) fn no_channel(&mut self, payers: &[Option<u32>; 2]) {
        for payer in payers.iter().flatten() {
            self.cx.accounts.sub(*payer, Of::Channels, 1);
        }
    }

    /// Ends the wait of a user's channel for an exporter's answer.
    fn answered(&mut self, exporter: DomainId, uid: Option<u32>) {
        if let Some(uid) = uid
            && let Some(d) = self.cx.domains.get_mut(&exporter)
            && let Some(n) = d.backlog.get_mut(&uid)
        {
            *n -= 1;
            if *n == 0 {
                d.backlog.remove(&uid);
            }
        }
        self.come_in(exporter);
    }

    /// Returns the request of the channel in the making that `me` has to answer, and the role of `me`. The flag: other
    /// domains may have the name too.
    fn to_answer(
        &self,
        me: DomainId,
        id: ChannelId,
        ring: Option<bool>,
    ) -> Result<(Role, &Waiting, bool), Fail> {
        let c = self.channels.get(&id).ok_or(no_such(id.0))?;
        let role = c.role_of(me).ok_or(not_yours(id.0))?;
        match &c.stage {
            Stage::Incoming(w, shared)
                if c.connector != me
                    && ring.is_none_or(|ring| (w.kind != NameKind::Channel) == ring) =>
            {
                Ok((role, w, *shared))
            }
            _ => Err(refusal(RefusalCode::State, u64::from(id.0), 0).into()),
        }
    }

    pub(crate) fn accept(
        &mut self,
        me: DomainId,
        req: Req,
        id: ChannelId,
        lines: u32,
        ring_lines: Option<u32>,
        fds: &mut Ancillary,
    ) -> Done {
        let (role, w, shared) = self.to_answer(me, id, Some(ring_lines.is_some()))?;
        let (their_req, their_half, kind) = (w.req, w.half, w.kind);
        check_lines(lines)?;
        ring_lines.map(check_lines).transpose()?;
        let uid = self.cx.uid_of(me).ok_or(no_such(me.0))?;
        self.cx.accounts.check(uid, Of::Channels, 1)?;
        let half = fds.take(half_of(role), lines)?.token;
        let shown = ring_lines.map(|lines| {
            let ring = fds.take(Kind::Lines, lines)?;
            let (beside, count) = match kind {
                NameKind::Queue => (Kind::Claims, lines),
                _ => (Kind::Bell, 1),
            };
            Ok::<_, Fail>([
                (ring, Kind::Lines, lines),
                (fds.take(beside, count)?, beside, count),
            ])
        });
        let shown = shown.transpose()?;
        let Some(d) = self.cx.domains.get(&me) else {
            return Err(no_such(me.0));
        };
        let (uid, peer_pid, pidfd) = (d.uid, d.pid, d.pidfd);
        self.cx.hold_object(half, me, half_of(role), lines);
        let Some(c) = self.channels.get_mut(&id) else {
            return Err(no_such(id.0));
        };
        self.exports.set_silent(&c.name, me, Duration::ZERO);
        c.stage = Stage::Open;
        let theirs = c.payers.into_iter().flatten().next();
        c.payers[usize::from(role == Role::Sink)] = Some(uid);
        self.cx.accounts.add(uid, Of::Channels, 1);
        let (source, sink) = match role {
            Role::Source => {
                c.lines = lines;
                (half, their_half)
            }
            Role::Sink => (their_half, half),
        };
        (c.source_half, c.sink_half) = (Some(source), Some(sink));
        let connector = c.connector;
        self.back_refs
            .remove(connector, BackRef::Asked(their_req, id));
        for end in [me, connector] {
            self.cx.claimed_too(end, |c| c.channels.insert(id));
        }
        let opened = Event::Opened {
            req: their_req,
            channel: id,
            peer: me,
            peer_uid: uid,
            peer_pid,
            lines,
            ring_lines: ring_lines.unwrap_or_default(),
            shared,
        };
        let shown: Vec<FdToken> = shown
            .into_iter()
            .flatten()
            .map(|(fd, kind, count)| self.cx.hold_object(fd.token, me, kind, count))
            .collect();
        let mut fds = vec![half, pidfd];
        fds.extend(&shown);
        self.cx.tell(connector, opened, &fds);
        for fd in shown {
            // The message has its own hold on it.
            self.cx.release(fd);
        }
        if let Some(theirs) = self.cx.domains.get(&connector).map(|d| d.pidfd) {
            self.cx
                .tell(me, Event::Accepted { req, channel: id }, &[theirs]);
        }
        self.answered(me, theirs);
        Ok(())
    }

    pub(crate) fn reject(&mut self, me: DomainId, id: ChannelId) -> Done {
        self.to_answer(me, id, None)?;
        if let Some(c) = self.channels.get(&id) {
            self.exports.set_silent(&c.name, me, Duration::ZERO);
        }
        self.drop_incoming(id, me);
        Ok(())
    }
}
