//! The name service: exports, connects that wait for them, channels in the making.

use crate::state::ancillary::half_of;
use crate::state::books::back_refs::BackRef;
use crate::state::model::{Channel, Export, Stage, Waiting};
use crate::state::refuse::{check_lines, check_spelling};
use crate::state::types::{Done, FdToken};
use crate::state::{Ancillary, Fail, Of, State, barred, no_such, not_yours, refusal};
use std::collections::BTreeSet;
use tranship_proto::{
    A_TOPIC, AccessRule, ChannelId, DomainId, Event, ExportId, GoneReason, Limited, RefusalCode,
    Req, Role,
};
use tranship_region::layout::Kind;

/// Most channels that wait for the answer of one exporter.
const BACKLOG: u32 = 256;
/// The clients waiting for a name that are served at a time.
const SERVED: usize = 64;

/// The refusal of a name that is of the other kind: `topic` says which one it is.
fn other_kind(topic: bool) -> tranship_proto::Refusal {
    refusal(RefusalCode::Kind, 0, u64::from(topic) * A_TOPIC)
}

impl State {
    fn check_named(&self, me: DomainId, name: &str) -> Result<(u32, u32), Fail> {
        let d = self.cx.domains.get(&me).ok_or(no_such(me.0))?;
        check_spelling(name)?;
        Ok((d.uid, d.gid))
    }

    /// Offers a name, a channel's or a topic's.
    pub(crate) fn export(
        &mut self,
        me: DomainId,
        req: Req,
        name: &str,
        role: Role,
        topic: bool,
    ) -> Done {
        let (uid, gid) = self.check_named(me, name)?;
        if let Some(rule) = self.cx.config.bars_export(uid, gid, name) {
            return Err(barred(uid, rule).into());
        }
        if let Some((_, taken)) = self.exports.named(name) {
            let by = taken.domain;
            let by = self.cx.domains.get(&by).map(|d| (d.pid, by.0));
            let (pid, domain) = by.unwrap_or_default();
            return Err(refusal(RefusalCode::NameTaken, pid.into(), domain.into()).into());
        }
        self.cx.accounts.check(uid, Of::Names, 1)?;
        let export = ExportId(self.fresh_id());
        self.exports.insert(
            export,
            Export {
                name: name.to_owned(),
                domain: me,
                role,
                topic,
            },
        );
        self.cx.accounts.add(uid, Of::Names, 1);
        self.cx.tell(me, Event::Exported { req, export }, &[]);
        self.serve_waiting(export);
        Ok(())
    }

    /// Lets waiting clients in, as far as there is room. The others wait on, each for room in its own user's share.
    fn serve_waiting(&mut self, export: ExportId) {
        let Some(e) = self.exports.get(export) else {
            return;
        };
        let (name, exporter, role, topic) = (e.name.clone(), e.domain, e.role, e.topic);
        let (mut from, mut waits) = (0, false);
        for _ in 0..SERVED {
            let Some((number, w)) = self.waiting.first(&name, from) else {
                break;
            };
            from = number + 1;
            let kind = topic == w.desk.is_some();
            let fits = kind && role == w.role.opposite() && w.domain != exporter;
            if fits && !self.may_come(exporter, w.uid) {
                waits = true;
                continue;
            }
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
                    _ if !kind => other_kind(topic),
                    _ => refusal(RefusalCode::Role, 0, 0),
                };
                let req = w.req;
                self.cx.tell(w.domain, Event::Refused { req, refusal }, &[]);
            }
        }
        waits |= self.waiting.first(&name, from).is_some();
        match waits {
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

    /// Connects to a name: a channel's, or with `topic` a topic's, whose subscriber shows its desk.
    #[allow(clippy::too_many_arguments)] // the request's own fields
    pub(crate) fn connect(
        &mut self,
        me: DomainId,
        req: Req,
        name: String,
        role: Role,
        lines: u32,
        wait: bool,
        topic: bool,
        fds: &mut Ancillary,
    ) -> Done {
        let (uid, gid) = self.check_named(me, &name)?;
        if !self.cx.config.may_bind(uid, gid, &name) {
            return Err(barred(uid, AccessRule::Bind).into());
        }
        check_lines(lines)?;
        self.cx.accounts.check(uid, Of::Channels, 1)?;
        if self.waiting.has(me, req) {
            return Err(refusal(RefusalCode::State, u64::from(req.0), 0).into());
        }
        let named = self.exports.named(&name);
        let export = named.map(|(id, _)| id);
        let mut comes = false;
        match named.map(|(_, e)| e) {
            Some(e) if e.domain == me => {
                return Err(refusal(RefusalCode::OwnName, 0, 0).into());
            }
            Some(e) if e.topic != topic => return Err(other_kind(e.topic).into()),
            Some(e) if e.role != role.opposite() => {
                return Err(refusal(RefusalCode::Role, 0, 0).into());
            }
            None if !wait => return Err(refusal(RefusalCode::NoSuchName, 0, 0).into()),
            None => self.cx.accounts.check(uid, Of::Names, 1)?,
            Some(e) => {
                // A client that connects faster than the exporter accepts must not get the exporter into trouble.
                comes = self.may_come(e.domain, uid);
                if !comes && !wait {
                    return Err(Limited::Backlog.refuse(0, 0).into());
                }
                if !comes {
                    self.cx.accounts.check(uid, Of::Names, 1)?;
                }
            }
        }
        let half = fds.take(half_of(role), lines)?.token;
        let desk = topic.then(|| fds.take(Kind::Desk, 1)).transpose()?;
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
        };
        match export.filter(|_| comes) {
            Some(export) => self.incoming(export, w),
            None => {
                self.cx.accounts.add(uid, Of::Names, 1);
                self.waiting.push(w);
                if let Some(export) = export {
                    self.exports.want(export);
                }
            }
        }
        Ok(())
    }

    /// Makes a channel for a connect and shows it to the exporter.
    fn incoming(&mut self, export: ExportId, w: Waiting) {
        let Some(exporter) = self.exports.get(export).map(|e| e.domain) else {
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
        let record = Channel {
            name: w.name,
            source,
            sink,
            payers: match w.role {
                Role::Source => [Some(w.uid), None],
                Role::Sink => [None, Some(w.uid)],
            },
            connector: w.domain,
            lines: w.lines,
            stage: Stage::Incoming {
                req: w.req,
                half: w.half,
                topic: w.desk.is_some(),
            },
            source_gone: false,
            source_half: None,
            sink_half: None,
            source_ring: None,
            pools: BTreeSet::new(),
        };
        self.channels.insert(channel, record);
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
        if let Some(desk) = w.desk {
            // The message has its own hold on it.
            self.cx.release(desk);
        }
    }

    pub(crate) fn cancel_connect(&mut self, me: DomainId, req: Req) -> Done {
        if let Some(w) = self.waiting.cancel(me, req) {
            self.cx.accounts.sub(w.uid, Of::Names, 1);
            self.release_shown(&w);
            // There is a listener too if its backlog was full.
            return Err(match self.exports.named(&w.name) {
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
        let exporter = if c.connector == c.source {
            c.sink
        } else {
            c.source
        };
        let Some(c) = self.channels.remove(&id) else {
            return;
        };
        let Stage::Incoming { req, half, .. } = c.stage else {
            return;
        };
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

    /// Returns the channel in the making that `me` has to answer.
    fn to_answer(
        &self,
        me: DomainId,
        id: ChannelId,
        topic: bool,
    ) -> Result<(Req, FdToken, Role), Fail> {
        let c = self.channels.get(&id).ok_or(no_such(id.0))?;
        match (c.role_of(me), &c.stage) {
            (
                Some(role),
                Stage::Incoming {
                    req,
                    half,
                    topic: wanted,
                },
            ) if c.connector != me && *wanted == topic => Ok((*req, *half, role)),
            (None, _) => Err(not_yours(id.0)),
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
        let (their_req, their_half, role) = self.to_answer(me, id, ring_lines.is_some())?;
        check_lines(lines)?;
        ring_lines.map(check_lines).transpose()?;
        let uid = self.cx.uid_of(me).ok_or(no_such(me.0))?;
        self.cx.accounts.check(uid, Of::Channels, 1)?;
        let half = fds.take(half_of(role), lines)?.token;
        let shown = ring_lines.map(|lines| {
            let ring = fds.take(Kind::Lines, lines)?;
            Ok::<_, Fail>([
                (ring, Kind::Lines, lines),
                (fds.take(Kind::Bell, 1)?, Kind::Bell, 1),
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
            self.cx.claimed_too(end, |c| {
                c.channels.insert(id);
            });
        }
        let opened = Event::Opened {
            req: their_req,
            channel: id,
            peer: me,
            peer_uid: uid,
            peer_pid,
            lines,
            ring_lines: ring_lines.unwrap_or_default(),
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
        let topic = matches!(
            self.channels.get(&id).map(|c| &c.stage),
            Some(Stage::Incoming { topic: true, .. })
        );
        self.to_answer(me, id, topic)?;
        self.drop_incoming(id, me);
        Ok(())
    }
}
