//! The life of a connection: connecting, taking answers, and beginning again when the server is gone.

use super::question::Question;
use super::{ROUND, Remote, Requests};
use crate::transient::{PAUSE, Patience, is_transient};
use crate::wire::{self, Ask, Hello, Say, VERSION};
use crate::{Fault, Info, Op};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranship_core::{Error, ErrorKind, Message, Pool, Receiver, Sender};

/// First and longest pause between two attempts to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(500)];
/// A pause that people want to know of.
const LONG: Duration = Duration::from_millis(100);
/// Pause between attempts that cannot succeed until somebody corrects the configuration.
const FINAL_PAUSE: Duration = Duration::from_secs(10);
/// A server that has not welcomed us by then is tried anew.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest and shortest time that an attempt waits for a server that is not there; the shortest applies if waiting is
/// given up sooner.
const OPEN: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(10)];

/// Progress of a connection.
struct Link {
    answers: Receiver,
    /// Sender of the questions; none until the server may be asked.
    out: Option<Sender>,
    greeted: bool,
    pool: Pool,
    since: Instant,
    welcome: Option<Info>,
    /// Opening of its disk that the server serves, if it gives leases.
    opening: Option<u64>,
}

/// Returns whether the error stays until somebody corrects its cause.
fn is_final(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Access
            | ErrorKind::BadArgument
            | ErrorKind::ChannelBind
            | ErrorKind::ChannelTrust
            | ErrorKind::Version
    )
}

impl Remote {
    /// Runs the thread.
    pub(super) fn run(&self) {
        let mut pause = PAUSES[0];
        let mut said = None;
        let mut away = Instant::now();
        while !self.is_over() {
            let ended = match self.connect() {
                Ok(mut link) => {
                    let ended = self.attend(&mut link, away);
                    if self.lock().out.is_some() {
                        (pause, said, away) = (PAUSES[0], None, Instant::now());
                    }
                    self.lost(link);
                    ended
                }
                Err(error) => error,
            };
            let why = ended.to_string();
            let is_final = is_final(ended.kind());
            if is_final {
                pause = FINAL_PAUSE;
            }
            let mut state = self.lock();
            (state.why, state.is_final) = (Some(why.clone()), is_final);
            drop(state);
            self.tell();
            if self.is_overdue(away) {
                self.give_up();
            }
            drop(self.wait_until(pause, |_| self.is_over()));
            // Only now: a caller that waited for the server has been told why, and may have stopped.
            if pause >= LONG && !self.is_over() && said.as_ref() != Some(&why) {
                tracing::warn!("{}: {why}; trying again", self.server);
                said = Some(why);
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
        self.fail(true);
    }

    /// Returns whether the server has been away for too long.
    fn is_overdue(&self, away: Instant) -> bool {
        let limit = self.server.give_up();
        limit.is_some_and(|limit| away.elapsed() >= limit)
    }

    /// Fails the requests that wait, and those that come, until the server is there again.
    fn give_up(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.given_up, true) {
            tracing::error!(
                "{}: away for too long; until it is back, requests fail",
                self.server
            );
        }
        drop(state);
        self.fail(false);
    }

    fn connect(&self) -> Result<Link, Error> {
        let domain = self.client.domain(&self.server)?;
        let made = self.lock().pool.clone();
        let pool = made.map_or_else(|| domain.create_pool(self.server.pool()), Ok)?;
        self.lock().pool = Some(pool.clone());
        self.tell();
        let limit = self.server.give_up().unwrap_or(OPEN[0]);
        let limit = limit.clamp(OPEN[1], OPEN[0]);
        let options = self.server.channels().timeout(limit);
        let answers = domain.open_with::<Receiver>(&self.server.answers(), options.clone())?;
        let out = domain.open_with::<Sender>(&self.server.asks(), options)?;
        Ok(Link {
            answers,
            out: Some(out),
            greeted: false,
            pool,
            since: Instant::now(),
            welcome: None,
            opening: None,
        })
    }

    /// Introduces this client, with the ticket for the channel.
    fn greet(&self, link: &mut Link, ticket: u128) -> Result<(), Error> {
        let hello = Ask::Hello(Hello {
            version: VERSION,
            ticket,
            session: self.session,
            client: self.client.number,
            caches: self.client.caches,
        });
        link.greeted = true;
        let out = link.out.as_mut().ok_or(ErrorKind::ChannelState)?;
        let sent = out.try_send(&wire::encode(&hello)[..]);
        sent.map(drop).map_err(|refused| refused.error)
    }

    /// Takes messages until the connection is over; returns the reason.
    fn attend(&self, link: &mut Link, away: Instant) -> Error {
        let mut patience = Patience::default();
        let mut limit = PAUSE;
        while !self.is_over() {
            let mut next = patience.next(&self.server, &mut link.answers, limit);
            loop {
                let taken = match next {
                    Ok(None) => break,
                    Ok(Some(message)) => self.take(link, message),
                    Err(error) => Err(error),
                };
                if let Err(error) = taken {
                    return error;
                }
                next = patience.next(&self.server, &mut link.answers, Duration::ZERO);
            }
            if let Err(error) = self.enter(link) {
                return error;
            }
            let mut state = self.lock();
            let waits_for = self.ask(&mut state);
            let refused = std::mem::take(&mut state.refused);
            let connected = state.out.is_some();
            drop(state);
            for (question, error) in refused {
                tracing::error!("{}: a request cannot be sent: {error}", self.server);
                question.end(Err(Fault::Invalid), None);
            }
            limit = match connected && waits_for.is_none() {
                true => ROUND,
                false => PAUSE,
            };
            match waits_for {
                Some(lack) if is_transient(lack.kind()) => patience.say(&self.server, &lack),
                Some(error) => return error,
                None => {}
            }
            if !connected && self.is_overdue(away) {
                self.give_up();
            }
            if !connected && link.since.elapsed() > PATIENCE {
                return ErrorKind::ChannelState.into();
            }
        }
        ErrorKind::ChannelState.into()
    }

    /// Enters the server: it may be asked once it has welcomed us, and has the pool.
    fn enter(&self, link: &mut Link) -> Result<(), Error> {
        let Some(out) = &mut link.out else {
            return Ok(());
        };
        let Some(info) = link.welcome else {
            let gone = out.status().peer_gone;
            return if gone {
                Err(ErrorKind::PeerGone.into())
            } else {
                Ok(())
            };
        };
        if !out.try_assign(&link.pool)? {
            return Ok(());
        }
        let mut state = self.lock();
        state.info = Some(info);
        state.out = link.out.take();
        state.copies = false;
        (state.given_up, state.why, state.is_final) = (false, None, false);
        // Ordering: relaxed; a count.
        self.connected.fetch_add(1, Ordering::Relaxed);
        tracing::info!("{}: connected, {} bytes", self.server, info.size);
        drop(state);
        self.tell();
        Ok(())
    }

    fn take(&self, link: &mut Link, message: Message) -> Result<(), Error> {
        let Some((said, number, data)) = wire::open::<Say>(message) else {
            return Err(wire::violation(
                "the server",
                "a message that is none of the protocol's",
            ));
        };
        match said {
            Say::Ticket(ticket) if !link.greeted => self.greet(link, ticket),
            Say::Welcome(info, opening) if link.greeted && link.welcome.is_none() => {
                self.client.safety.met(&info);
                self.client.lease.met(opening);
                if self.client.caches && opening.is_none() {
                    tracing::warn!("{}: gives no leases: nothing is cached", self.server);
                }
                (link.welcome, link.opening) = (Some(info), opening);
                Ok(())
            }
            Say::Version(version) => {
                let text = format!(
                    "the server speaks version {version} of the block protocol, this end version {VERSION}: both must be of one release"
                );
                Err(Error::new(ErrorKind::ChannelBind, text))
            }
            Say::Trust(theirs) => {
                let ours = self.server.trust();
                let text = format!(
                    "the server's level of trust is `{theirs}`, this end's is `{ours}`: both must say the same (--trust)"
                );
                Err(Error::new(ErrorKind::ChannelTrust, text))
            }
            Say::Done(result, lease) => {
                let mut state = self.lock();
                let Some(question) = state.away.remove(&number) else {
                    return Err(wire::violation(
                        "the server",
                        "an answer to what was not asked",
                    ));
                };
                if !question.fits(&result, data.as_ref()) {
                    // The question is asked again.
                    state.away.insert(number, question);
                    return Err(wire::violation("the server", "an answer of another length"));
                }
                if let (Some(opening), Some(writes)) = (link.opening, lease) {
                    self.client.lease.heard(opening, writes, question.asked);
                }
                let result = self.judge(&question, result);
                self.ask(&mut state);
                drop(state);
                question.end(result, data);
                Ok(())
            }
            Say::Ticket(_) | Say::Welcome(..) => {
                Err(wire::violation("the server", "a word at the wrong time"))
            }
        }
    }

    /// Keeps account of the writes that are safe.
    fn judge(
        &self,
        question: &Question,
        result: Result<Vec<u32>, Fault>,
    ) -> Result<Vec<u32>, Fault> {
        match (question.op, &result) {
            (Op::Flush, Ok(_)) => {
                let flushed = self.client.safety.flushed(question.covers);
                flushed.map(|()| Vec::new())
            }
            (Op::Write | Op::Zero { .. }, Ok(_)) => {
                self.client.safety.wrote();
                result
            }
            _ => result,
        }
    }

    /// Puts the questions of a lost connection back, in their order, before those that wait already.
    fn lost(&self, link: Link) {
        let mut state = self.lock();
        let Requests {
            out, queue, away, ..
        } = &mut *state;
        let out = out.take();
        queue.append(away);
        self.client.lease.lost();
        drop(state);
        self.tell();
        // An end may take its time.
        drop(link.answers);
        [out, link.out]
            .into_iter()
            .flatten()
            .for_each(Sender::abandon);
    }

    /// Fails the requests that wait, and with `away` also those that were asked.
    fn fail(&self, away: bool) {
        let mut state = self.lock();
        let mut failed = std::mem::take(&mut state.queue);
        if away {
            failed.append(&mut state.away);
        }
        drop(state);
        self.tell();
        for question in failed.into_values() {
            question.end(Err(Fault::Gone), None);
        }
    }
}
