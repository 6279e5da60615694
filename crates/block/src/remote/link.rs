//! The life of a lane: connecting, taking answers, and beginning again when the server is gone.

use super::lane::{self, Lane, Question, State};
use crate::lack::Patience;
use crate::wire::{self, Ask, Say, VERSION};
use crate::{Fault, LaneKind, Op};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_bulk::{Buffer, Channel, Completion, EndOptions, Error, Event, Kind, Role};

/// Between two attempts to connect: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(500)];
/// A pause that people want to know of.
const LONG: Duration = Duration::from_millis(100);
/// A server that has not welcomed us by then is tried anew.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest single wait.
const ROUND: Duration = Duration::from_millis(100);

/// How far a connection is.
struct Link {
    channel: Channel,
    /// Our pools are being assigned.
    asked: Vec<Completion>,
    master: bool,
    greeted: bool,
    since: Instant,
    /// Which opening of its disk the server serves, if it gives leases.
    opening: Option<u128>,
}

impl Lane {
    /// The lane's thread.
    pub(super) fn run(&self) {
        let mut pause = PAUSES[0];
        let mut said = None;
        let mut away = Instant::now();
        while !self.is_stopped() {
            let why = match self.connect() {
                Ok(mut link) => {
                    let ended = self.attend(&mut link, away);
                    if self.lock().channel.is_some() {
                        (pause, said, away) = (PAUSES[0], None, Instant::now());
                    }
                    let why = link.channel.why();
                    self.lost(&mut link);
                    why.unwrap_or_else(|| ended.to_string())
                }
                Err(error) => error.to_string(),
            };
            if self.is_stopped() {
                break;
            }
            // A server that admits somebody else at the moment is away for a moment.
            if pause >= LONG && said.as_ref() != Some(&why) {
                tracing::warn!("{}: {why}; trying again", self.server);
                said = Some(why.clone());
            }
            self.lock().why = Some(why);
            if self.is_overdue(away) {
                self.give_up();
            }
            self.pause(pause);
            pause = (pause * 2).min(PAUSES[1]);
        }
        self.fail_all();
    }

    /// Has the server been away for too long?
    fn is_overdue(&self, away: Instant) -> bool {
        let limit = self.server.give_up();
        limit.is_some_and(|limit| away.elapsed() >= limit)
    }

    /// What waits fails, and what comes, until the server is there again.
    fn give_up(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.given_up, true) {
            tracing::error!(
                "{}: away for too long; until it is back, requests fail",
                self.server
            );
        }
        let failed = std::mem::take(&mut state.queue);
        drop(state);
        self.tell();
        for question in failed {
            question.end(Err(Fault::Gone));
        }
    }

    fn connect(&self) -> Result<Link, Error> {
        let options = EndOptions::new(self.server.trust()).meta_bytes(wire::META_BYTES);
        let address = self.server.channel(self.kind);
        let (channel, _) = self.domain.bind(&address, options)?;
        Ok(Link {
            channel,
            asked: Vec::new(),
            master: false,
            greeted: false,
            since: Instant::now(),
            opening: None,
        })
    }

    /// Takes what comes until the connection is over; says why.
    fn attend(&self, link: &mut Link, away: Instant) -> Error {
        let mut patience = Patience::default();
        while !self.is_stopped() {
            let mut next = match patience.event(&self.server, &link.channel, ROUND) {
                Ok(event) => event,
                Err(code) => return code,
            };
            while let Some(event) = next {
                if let Err(code) = self.take(link, event) {
                    return code;
                }
                next = match patience.event(&self.server, &link.channel, Duration::ZERO) {
                    Ok(event) => event,
                    Err(code) => return code,
                };
            }
            if let Err(code) = self.greet(link) {
                return code;
            }
            let mut state = self.lock();
            let waits_for = self.ask(&mut state);
            let refused = std::mem::take(&mut state.refused);
            let connected = state.channel.is_some();
            drop(state);
            if let Some(code) = waits_for {
                patience.say(&self.server, &code);
            }
            for (question, code) in refused {
                tracing::error!("{}: a request cannot be sent: {code}", self.server);
                question.end(Err(Fault::Invalid));
            }
            if !connected && self.is_overdue(away) {
                self.give_up();
            }
            if !connected && link.since.elapsed() > PATIENCE {
                return Kind::ChannelState.into();
            }
        }
        Kind::ChannelState.into()
    }

    fn take(&self, link: &mut Link, event: Event) -> Result<(), Error> {
        match event {
            Event::Bound(Err(code)) => return Err(code),
            Event::Bound(Ok(_)) => {
                let (_, role) = link
                    .channel
                    .direction_and_role()
                    .ok_or(Kind::ChannelState)?;
                link.master = role == Role::Master;
                if self.forwards && !link.master {
                    // Both would bring the buffers. Said at each attempt: it may be replaced by a server.
                    tracing::error!(
                        "{} is a proxy itself: a proxy that has clients of its own goes to a server",
                        self.server
                    );
                    return Err(Kind::ChannelBind.into());
                }
                let mut state = self.lock();
                state.master = Some(link.master);
                if link.master {
                    self.make_pools(&mut state)?;
                    for pool in &state.pools {
                        link.asked.push(link.channel.assign(pool.info().id)?);
                    }
                } else {
                    // Buffers that we have are of a server that is gone.
                    state.pools.clear();
                    state.theirs.clear();
                    state.free = Default::default();
                    state.reserve = None;
                }
            }
            Event::Moved(buffer, meta) | Event::Passed(buffer, meta) => {
                self.answered(link, buffer, &meta)?;
            }
            Event::Gone(_) | Event::Closed => return Err(Kind::PeerGone.into()),
            // It wants to end: what it has comes back, or goes when it does.
            Event::TeardownBegun => return Err(Kind::ChannelState.into()),
            Event::PoolAssigned(info) => self.lock().theirs.push(info.id),
            Event::PoolRemoved(_) | Event::Released(..) => {}
            Event::Copied(..) | Event::MovedAll(..) | Event::CopiedAll(..) => {
                return Err(Kind::PeerViolation.into());
            }
        }
        Ok(())
    }

    /// Says hello as soon as there are buffers to say it with.
    fn greet(&self, link: &mut Link) -> Result<(), Error> {
        if link.greeted {
            return Ok(());
        }
        for asked in &link.asked {
            match asked.result() {
                Some(Ok(())) => {}
                Some(Err(code)) => return Err(code),
                None => return Ok(()),
            }
        }
        if link.master && link.asked.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        let Some(buffer) = state.reserve.take() else {
            return Ok(());
        };
        let ask = Ask::Hello {
            version: VERSION,
            session: self.session,
            client: self.client.number,
            caches: self.client.caches,
        };
        let mut hello = self.question(&mut state, ask, Box::new(|_, _| {}));
        hello.buffer = Some(buffer);
        match self.ask_one(&mut state, &link.channel, hello) {
            None => link.greeted = true,
            Some((hello, _)) => state.reserve = hello.buffer,
        }
        Ok(())
    }

    /// A buffer came: with an answer, or to ask with.
    fn answered(&self, link: &mut Link, buffer: Buffer, meta: &[u8]) -> Result<(), Error> {
        let mut state = self.lock();
        let question = state.away.remove(&(buffer.pool(), buffer.index()));
        let said = wire::decode::<Say>(meta);
        let (mut question, result) = match (question, said) {
            (None, Some(Say::Credit)) if !link.master => {
                keep(&mut state, buffer);
                drop(state);
                self.tell();
                return Ok(());
            }
            (Some(question), Some(Say::Welcome(info, opening)))
                if lane::request(&question).is_none() =>
            {
                keep(&mut state, buffer);
                self.client.safety.met(&info);
                self.client.lease.met(opening);
                if self.client.caches && opening.is_none() {
                    tracing::warn!("{}: gives no leases: nothing is cached", self.server);
                }
                link.opening = opening;
                state.info = Some(info);
                state.channel = Some(link.channel.clone());
                (state.given_up, state.why) = (false, None);
                // Ordering: relaxed; a count.
                self.connected.fetch_add(1, Ordering::Relaxed);
                tracing::info!("{}: connected, {} bytes", self.server, info.size);
                self.ask(&mut state);
                drop(state);
                self.tell();
                return Ok(());
            }
            (Some(question), Some(Say::Version(version))) => {
                tracing::error!("{}: speaks version {version}, not {VERSION}", self.server);
                drop(question);
                keep(&mut state, buffer);
                return Err(Kind::ChannelBind.into());
            }
            (Some(question), Some(Say::Done(result, lease)))
                if lane::request(&question).is_some() =>
            {
                if let (Some(opening), Some(writes)) = (link.opening, lease) {
                    self.client.lease.heard(opening, writes, question.asked);
                }
                (question, result)
            }
            (question, _) => {
                // Taken back by `lost`.
                if let Some(question) = question {
                    let place = (buffer.pool(), buffer.index());
                    state.away.insert(place, question);
                }
                drop(state);
                drop(buffer);
                return Err(Kind::PeerViolation.into());
            }
        };
        let result = self.judge(&question, result);
        if question.carrier {
            lane::put(&mut state, buffer);
            self.ask(&mut state);
            drop(state);
            self.tell();
        } else {
            drop(state);
            question.buffer = Some(buffer);
        }
        question.end(result);
        Ok(())
    }

    /// Keeps account of what is safe.
    fn judge(
        &self,
        question: &Question,
        result: Result<Vec<u32>, Fault>,
    ) -> Result<Vec<u32>, Fault> {
        let op = lane::request(question).map(|request| request.op);
        match (op, &result) {
            (Some(Op::Flush), Ok(_)) => self
                .client
                .safety
                .flushed(question.covers)
                .map(|()| Vec::new()),
            (Some(Op::Write | Op::Zero { .. }), Ok(_)) => {
                self.client.safety.wrote();
                result
            }
            _ => result,
        }
    }

    /// The connection is over: what was asked over it waits again, in its order, before what waits already.
    fn lost(&self, link: &mut Link) {
        let mut state = self.lock();
        state.channel = None;
        self.client.lease.lost();
        // Of an end that is alive and does not answer this makes a dead one.
        link.channel.abandon();
        let away = std::mem::take(&mut state.away);
        let mut failed = Vec::new();
        let mut again = Vec::new();
        for ((pool, index), mut question) in away {
            let hello = lane::request(&question).is_none();
            let own = state.pools.iter().find(|own| own.info().id == pool);
            match own.map(|own| own.take(index)) {
                Some(Ok(buffer)) if hello => state.reserve = Some(buffer),
                Some(Ok(buffer)) if question.carrier => lane::put(&mut state, buffer),
                Some(Ok(buffer)) => question.buffer = Some(buffer),
                Some(Err(code)) => tracing::error!("a buffer did not come back: {code}"),
                None => {}
            }
            match (hello, question.buffer.is_some() || question.carrier) {
                (true, _) => {}
                (false, true) => again.push(question),
                (false, false) => failed.push(question),
            }
        }
        again.sort_by_key(|question| question.number);
        for question in again.into_iter().rev() {
            state.queue.push_front(question);
        }
        // Not as this connection would have been: it may have ended before that was agreed.
        if state.master == Some(false) {
            failed.extend(forget_buffers(&mut state));
        }
        drop(state);
        self.tell();
        for question in failed {
            question.end(Err(Fault::Gone));
        }
    }

    /// The end of the lane.
    fn fail_all(&self) {
        let mut state = self.lock();
        let mut failed: Vec<Question> = state.queue.drain(..).collect();
        failed.extend(state.away.drain().map(|(_, question)| question));
        state.free = Default::default();
        state.reserve = None;
        drop(state);
        self.tell();
        for question in failed {
            question.end(Err(Fault::Gone));
        }
    }
}

/// Takes a buffer to say hello with, next time; if there is one, others can use it. One that were let go would go back to
/// a master that asks what it is.
fn keep(state: &mut State, buffer: Buffer) {
    match state.reserve {
        None => state.reserve = Some(buffer),
        Some(_) => lane::put(state, buffer),
    }
}

/// The buffers were the server's: questions that have one cannot be asked again.
fn forget_buffers(state: &mut State) -> Vec<Question> {
    state.free = Default::default();
    state.reserve = None;
    state.theirs.clear();
    let queue = std::mem::take(&mut state.queue);
    let (lost, kept): (Vec<_>, Vec<_>) = queue
        .into_iter()
        .partition(|question| question.buffer.is_some() && !question.carrier);
    state.queue.extend(kept.into_iter().map(|mut question| {
        question.buffer = None;
        question
    }));
    lost
}

/// A channel's two ways of giving a buffer back.
pub(crate) fn give(
    kind: LaneKind,
    channel: &Channel,
    buffer: Buffer,
    say: &Say,
) -> Result<Completion, tranship_bulk::SendError<Buffer>> {
    let meta = wire::encode(say);
    match kind {
        LaneKind::Read => channel.move_(buffer, &meta),
        LaneKind::Write => channel.pass(buffer, &meta),
    }
}
