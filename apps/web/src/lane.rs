//! A component's ends of channels. They never wait for a component that is behind.

use crate::stage::To;
use crate::word::Word;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tranship::{
    Body, ChannelOptions, Domain, Error, ErrorKind, Listener, Message, Opening, Pool, Receiver,
    SendError, Sender, Wait,
};

/// How long a component waits for a process of the front.
const START: Duration = Duration::from_secs(10);
/// How long a receiver may take to agree to a pool, and memory for a list to come.
const CONSENT: Duration = Duration::from_secs(5);

/// Options of both ends. `lines`: messages under way.
fn options(lines: u32) -> ChannelOptions {
    // On one processor a component that spins keeps the others from running.
    ChannelOptions::new().lines(lines).wait(Wait::Sleep)
}

/// Says whether the other end is gone, and may come again.
fn is_gone(error: &Error) -> bool {
    use ErrorKind::{ChannelState, Lost, NotConnected, PeerDied, PeerGone, PeerViolation};
    matches!(
        error.kind(),
        PeerGone | PeerDied | Lost | NotConnected | PeerViolation | ChannelState
    )
}

/// Why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// No component is there.
    Gone,
    /// The component has as many messages as the channel holds.
    Full,
}

/// What becomes of messages while no process of a component is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Away {
    /// They are kept for the next process, and so is what a process had not taken when it died.
    Keep,
    /// They wait for the next process.
    Wait,
    /// They are dropped.
    Drop,
}

/// A sending end.
#[derive(Debug)]
pub struct Out {
    /// The component at the other end.
    pub to: To,
    // Before the messages that it may hold.
    sender: Option<Sender>,
    /// A process that has still to agree to the pool. It is not waited for, since it may wait for this one.
    coming: Option<Sender>,
    listener: Listener<Sender>,
    away: Away,
    lines: usize,
    /// Messages that may not have been taken, of [`Away::Keep`]: the ring's, and behind them those of no ring.
    kept: VecDeque<(Word, Body)>,
}

impl Out {
    /// Listens for the component.
    ///
    /// # Errors
    /// Those of [`Domain::listen_with`].
    pub fn listen(
        domain: &Domain,
        name: &str,
        to: To,
        lines: u32,
        away: Away,
    ) -> Result<Out, Error> {
        Ok(Out {
            to,
            sender: None,
            coming: None,
            listener: domain.listen_with(name, options(lines))?,
            away,
            lines: lines as usize,
            kept: VecDeque::new(),
        })
    }

    /// Says whether the component is there, as far as is known.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.sender.is_some()
    }

    /// Says whether the channel lies on the path of requests.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.away == Away::Keep
    }

    /// Sends messages in order, with one wake-up. `failed` is told of those that were not sent.
    pub fn send(
        &mut self,
        pool: &Pool,
        batch: impl Iterator<Item = (Word, Body)>,
        mut failed: impl FnMut(Word, Unsent),
    ) {
        let mut batch = batch.peekable();
        if batch.peek().is_none() {
            return;
        }
        match (&self.sender, self.away) {
            (Some(_), _) => {}
            (None, Away::Wait) => self.wait(pool),
            (None, Away::Keep | Away::Drop) => self.look(pool),
        }
        self.forget_taken(0);
        let (keeps, lines, kept) = (self.away == Away::Keep, self.lines, &mut self.kept);
        let messages = batch.filter_map(|(word, mut body)| {
            // The list of an aggregate that is passed on lies in this component's memory.
            if let Body::Aggregate(all) = &mut body {
                all.set_list_pool(pool);
            }
            if keeps {
                // Never more than the ring holds.
                match body.share() {
                    Some(copy) if kept.len() < lines => kept.push_back((word, copy)),
                    _ => {
                        failed(word, Unsent::Full);
                        return None;
                    }
                }
            }
            Some((body, word.0))
        });
        let done = match &mut self.sender {
            Some(sender) => match sender.try_send_many(messages) {
                Ok(_) => Ok(()),
                Err(failure) => {
                    let rest = self.settle(failure, &mut failed);
                    rest.and_then(|rest| self.push(rest, &mut failed))
                }
            },
            None => {
                let messages: Vec<_> = messages.collect();
                self.lose(&messages, &mut failed);
                Err(())
            }
        };
        if done.is_err() {
            self.look(pool);
        }
    }

    /// Returns how many messages may be sent now. Without a process: as many as are kept for the next one.
    pub fn room(&mut self) -> usize {
        self.forget_taken(0);
        let waiting = match (&self.sender, self.away) {
            (Some(sender), Away::Drop | Away::Wait) => sender.queued(),
            _ => self.kept.len() as u64,
        };
        self.lines
            .saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX))
    }

    /// Says whether messages are kept that a process may not have taken.
    pub fn has_kept(&mut self) -> bool {
        self.forget_taken(0);
        !self.kept.is_empty()
    }

    /// Takes the component's next process, if the last one is gone.
    pub fn look(&mut self, pool: &Pool) {
        if let Some(sender) = &self.sender
            && sender.status().peer_gone
        {
            self.leave(0);
        }
        while self.sender.is_none() {
            if self.coming.is_none() {
                self.coming = self.listener.try_accept().ok().flatten();
            }
            let Some(coming) = &mut self.coming else {
                return;
            };
            match coming.try_assign(pool) {
                Ok(false) => return,
                Ok(true) => self.welcome(),
                // It is gone again.
                Err(_) => self.coming = None,
            }
        }
    }

    /// Waits for a process of the component.
    fn wait(&mut self, pool: &Pool) {
        let until = Instant::now() + START;
        loop {
            self.look(pool);
            let left = until.saturating_duration_since(Instant::now());
            if self.sender.is_some() || left.is_zero() {
                return;
            }
            match &mut self.coming {
                // The next look finds out what came of it.
                Some(coming) => _ = coming.assign_timeout(pool, left),
                None => self.coming = self.listener.accept_timeout(left).ok(),
            }
        }
    }

    /// Sends messages to the process that is there. They are the last of those that are kept. The error: it is gone.
    fn push(
        &mut self,
        mut messages: Vec<(Body, u64)>,
        failed: &mut impl FnMut(Word, Unsent),
    ) -> Result<(), ()> {
        while !messages.is_empty() {
            let Some(sender) = &mut self.sender else {
                self.lose(&messages, failed);
                return Err(());
            };
            match sender.try_send_many(messages) {
                Ok(_) => return Ok(()),
                Err(failure) => messages = self.settle(failure, failed)?,
            }
        }
        Ok(())
    }

    /// Settles the first of messages that were not sent. Returns those that are still to be sent.
    fn settle(
        &mut self,
        failure: SendError<Vec<(Body, u64)>>,
        failed: &mut impl FnMut(Word, Unsent),
    ) -> Result<Vec<(Body, u64)>, ()> {
        let SendError {
            mut error,
            unsent: mut messages,
        } = failure;
        let waits = [ErrorKind::PoolPending, ErrorKind::OutOfMemory];
        if waits.contains(&error.kind())
            && let Some(sender) = &mut self.sender
        {
            let first = messages.remove(0);
            match sender.send_timeout(first, CONSENT) {
                Ok(_) => return Ok(messages),
                Err(again) => {
                    error = again.error;
                    messages.insert(0, again.unsent);
                }
            }
        }
        if is_gone(&error) {
            self.leave(messages.len());
            self.lose(&messages, failed);
            return Err(());
        }
        if error.kind() == ErrorKind::Full {
            for (_, word) in &messages {
                failed(Word(*word), Unsent::Full);
            }
            if self.away == Away::Keep {
                self.kept.truncate(self.kept.len() - messages.len());
            }
            return Ok(Vec::new());
        }
        // That message alone. If the component that wrote it has ended, no new process can get its memory.
        if error.kind() != ErrorKind::Stale {
            eprintln!("sending to {}: {error}", self.to.name());
        }
        let (_, word) = messages.remove(0);
        failed(Word(word), Unsent::Gone);
        if self.away == Away::Keep {
            self.kept.remove(self.kept.len() - messages.len() - 1);
        }
        Ok(messages)
    }

    /// Messages for a process that is gone: the next one gets those that are kept.
    fn lose(&self, messages: &[(Body, u64)], failed: &mut impl FnMut(Word, Unsent)) {
        if self.away != Away::Keep {
            for (_, word) in messages {
                failed(Word(*word), Unsent::Gone);
            }
        }
    }

    /// Forgets kept messages that were taken. `beside`: the last ones are in no ring.
    fn forget_taken(&mut self, beside: usize) {
        // Without a process all of them wait for the next one.
        if let Some(sender) = &self.sender
            && !self.kept.is_empty()
        {
            let waiting = usize::try_from(sender.queued()).unwrap_or(usize::MAX);
            let taken = self.kept.len().saturating_sub(waiting + beside);
            self.kept.drain(..taken);
        }
    }

    /// Lets a dead process go. What it had not taken stays.
    fn leave(&mut self, beside: usize) {
        self.forget_taken(beside);
        self.sender = None;
    }

    /// Sends the process that has come what is kept.
    fn welcome(&mut self) {
        self.sender = self.coming.take();
        let again = self.kept.iter();
        let again = again.filter_map(|(word, body)| Some((body.share()?, word.0)));
        // The ring is empty, and holds all of them.
        let _ = self.push(again.collect(), &mut |_, _| {});
    }
}

/// A receiving end.
#[derive(Debug)]
pub struct In {
    /// The component at the other end.
    pub from: To,
    name: String,
    lines: u32,
    domain: Domain,
    receiver: Option<Receiver>,
    opening: Option<Opening<Receiver>>,
    armed: bool,
}

/// What a receiving end has.
#[derive(Debug)]
pub enum Got {
    /// A message.
    Message(Word, Body),
    /// Nothing now.
    Nothing,
    /// Nothing, and the component's process has ended.
    Gone,
}

impl In {
    /// Makes the end. It connects by [`look`](In::look).
    #[must_use]
    pub fn new(domain: &Domain, name: &str, from: To, lines: u32) -> In {
        In {
            from,
            name: name.to_owned(),
            lines,
            domain: domain.clone(),
            receiver: None,
            opening: None,
            armed: false,
        }
    }

    /// Says whether the component is there, as far as is known.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.receiver.is_some()
    }

    /// Connects, if the component is there.
    pub fn look(&mut self) {
        if self.receiver.is_some() {
            return;
        }
        let (domain, name, lines) = (&self.domain, &self.name, self.lines);
        let opening = self
            .opening
            .get_or_insert_with(|| domain.open_async(name, options(lines)));
        match opening.try_open() {
            Ok(None) => {}
            Ok(Some(receiver)) => {
                self.receiver = Some(receiver);
                self.opening = None;
                self.armed = false;
            }
            Err(_) => self.opening = None,
        }
    }

    /// Takes all messages that are there, at most `most`, without waiting.
    ///
    /// # Errors
    /// The component's process has ended, and all that it sent was taken.
    pub fn take(&mut self, into: &mut Vec<Message>, most: usize) -> Result<(), Ended> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(());
        };
        let got = receiver.try_recv_many(into, most);
        if matches!(got, Ok(1..)) {
            self.armed = false;
        }
        got.map(drop).map_err(|error| self.end(&error))
    }

    /// Waits for a message, at most that long.
    ///
    /// # Errors
    /// As [`take`](In::take).
    pub fn recv(&mut self, most: Duration) -> Result<Option<Message>, Ended> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(None);
        };
        match receiver.recv_timeout(most) {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(self.end(&error)),
        }
    }

    fn end(&mut self, error: &Error) -> Ended {
        if !is_gone(error) {
            eprintln!("receiving from {}: {error}", self.from.name());
        }
        self.receiver = None;
        self.armed = false;
        Ended
    }

    /// Says whether a message may be there.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_ready)
    }

    /// Says that the domain's descriptor is about to be waited on. `false`: there is something to take.
    pub fn arm(&mut self) -> bool {
        let Some(receiver) = &mut self.receiver else {
            return true;
        };
        if !self.armed {
            match receiver.arm() {
                Ok(true) => self.armed = true,
                Ok(false) => return false,
                // It shows by the next message, or the next look.
                Err(_) => {}
            }
        }
        true
    }

    /// Says that the domain's descriptor is not waited on any more.
    pub fn disarm(&mut self) {
        if let (true, Some(receiver)) = (std::mem::take(&mut self.armed), &mut self.receiver) {
            receiver.disarm();
        }
    }
}

/// The process of a component has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended;
