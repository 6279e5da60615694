//! A component's ends of channels. They never wait for a component that is away or behind.

use crate::stage::To;
use crate::word::Word;
use std::collections::VecDeque;
use std::time::Duration;
use tranship::{
    Body, ChannelOptions, Domain, Error, ErrorKind, Listener, Opening, Pool, Receiver, Sender, Wait,
};

/// How long a component waits for the first process of another one.
const START: Duration = Duration::from_secs(10);
/// Messages that wait for a component's next process.
const KEPT: usize = 256;
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

/// A sending end.
#[derive(Debug)]
pub struct Out {
    /// The component at the other end.
    pub to: To,
    // Before the messages that it may hold.
    sender: Option<Sender>,
    listener: Listener<Sender>,
    /// The component's first process is still to be waited for.
    awaited: bool,
    /// Messages that may not have been taken, if they are sent again to the component's next process.
    kept: Option<VecDeque<(Word, Body)>>,
}

impl Out {
    /// Listens for the component. `awaited`: a send waits for its first process. `keeps`: what a process had not taken
    /// when it died goes to the next one.
    ///
    /// # Errors
    /// Those of [`Domain::listen_with`].
    pub fn listen(
        domain: &Domain,
        name: &str,
        to: To,
        lines: u32,
        awaited: bool,
        keeps: bool,
    ) -> Result<Out, Error> {
        Ok(Out {
            to,
            sender: None,
            listener: domain.listen_with(name, options(lines))?,
            awaited,
            kept: keeps.then(VecDeque::new),
        })
    }

    /// Says whether the component is there, as far as is known.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends a message. A failed send drops it. The component's first process is waited for.
    ///
    /// # Errors
    /// Why it was not sent.
    pub fn send(&mut self, pool: &Pool, word: Word, body: Body) -> Result<(), Unsent> {
        if self.awaited
            && self.sender.is_none()
            && let Ok(sender) = self.listener.accept_timeout(START)
        {
            self.welcome(sender, pool);
        } else if self.sender.is_none() {
            self.look(pool);
        }
        let copy = self.kept.as_ref().and_then(|_| body.share());
        match self.push(word, with_list(body, pool)) {
            Ok(()) => {
                if let (Some(kept), Some(copy)) = (&mut self.kept, copy) {
                    kept.push_back((word, copy));
                    self.forget_taken();
                }
                Ok(())
            }
            Err((Unsent::Gone, Some(body))) => {
                self.look(pool);
                match (self.push(word, body), &mut self.kept) {
                    // The next process gets it.
                    (Err((Unsent::Gone, Some(body))), Some(kept)) if kept.len() < KEPT => {
                        kept.push_back((word, body));
                        Ok(())
                    }
                    (pushed, _) => pushed.map_err(|(why, _)| why),
                }
            }
            Err((why, _)) => Err(why),
        }
    }

    /// Says whether messages are kept that a dead process may have left.
    #[must_use]
    pub fn has_kept(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| !kept.is_empty())
    }

    /// Takes the component's next process, if the last one is gone.
    pub fn look(&mut self, pool: &Pool) {
        if let Some(sender) = &self.sender
            && sender.status().peer_gone
        {
            self.leave();
        }
        if self.sender.is_none()
            && let Ok(Some(sender)) = self.listener.try_accept()
        {
            self.welcome(sender, pool);
        }
        self.forget_taken();
    }

    /// Sends a message to the process that is there.
    fn push(&mut self, word: Word, body: Body) -> Result<(), (Unsent, Option<Body>)> {
        let Some(sender) = &mut self.sender else {
            return Err((Unsent::Gone, Some(body)));
        };
        let sent = match sender.try_send((body, word.0)) {
            Err(failed)
                if matches!(
                    failed.kind(),
                    ErrorKind::PoolPending | ErrorKind::OutOfMemory
                ) =>
            {
                sender.send_timeout(failed.unsent, CONSENT)
            }
            sent => sent,
        };
        match sent {
            Ok(_) => Ok(()),
            Err(failed) if is_gone(&failed.error) => {
                self.leave();
                Err((Unsent::Gone, Some(failed.unsent.0)))
            }
            Err(failed) if failed.kind() == ErrorKind::Full => Err((Unsent::Full, None)),
            Err(failed) => {
                eprintln!("sending to {}: {}", self.to.name(), failed.error);
                Err((Unsent::Gone, None))
            }
        }
    }

    fn forget_taken(&mut self) {
        // Without a process all of them wait for the next one.
        if let (Some(kept), Some(sender)) = (&mut self.kept, &self.sender) {
            let waiting = usize::try_from(sender.queued()).unwrap_or(usize::MAX);
            while kept.len() > waiting {
                kept.pop_front();
            }
        }
    }

    /// Lets a dead process go. What it had not taken stays.
    fn leave(&mut self) {
        self.forget_taken();
        self.sender = None;
    }

    fn welcome(&mut self, mut sender: Sender, pool: &Pool) {
        if let Err(error) = sender.assign_timeout(pool, CONSENT) {
            eprintln!("a channel to {}: {error}", self.to.name());
            return;
        }
        self.sender = Some(sender);
        self.awaited = false;
        let Some(kept) = &mut self.kept else { return };
        for (word, body) in std::mem::take(kept) {
            let copy = body.share();
            if self.push(word, with_list(body, pool)).is_ok()
                && let (Some(kept), Some(copy)) = (&mut self.kept, copy)
            {
                kept.push_back((word, copy));
            }
        }
    }
}

/// Lets the list of an aggregate that is passed on lie in this component's memory.
fn with_list(mut body: Body, pool: &Pool) -> Body {
    if let Body::Aggregate(all) = &mut body {
        all.set_list_pool(pool);
    }
    body
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
    /// Makes the end. It connects by [`look`](In::look) or [`wait`](In::wait).
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

    /// Takes a message, without waiting.
    pub fn take(&mut self) -> Got {
        match &mut self.receiver {
            None => Got::Nothing,
            Some(receiver) => {
                let got = receiver.try_recv();
                if matches!(got, Ok(Some(_))) {
                    self.armed = false;
                }
                self.got(got)
            }
        }
    }

    /// Waits for a message, at most that long; `None`: for ever.
    pub fn recv(&mut self, most: Option<Duration>) -> Got {
        let got = match (&mut self.receiver, most) {
            (None, _) => Ok(None),
            (Some(receiver), None) => receiver.recv().map(Some),
            (Some(receiver), Some(most)) => match receiver.recv_timeout(most) {
                Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
                got => got.map(Some),
            },
        };
        self.got(got)
    }

    fn got(&mut self, got: Result<Option<tranship::Message>, Error>) -> Got {
        match got {
            Ok(Some(message)) => Got::Message(Word(message.word), message.body),
            Ok(None) => Got::Nothing,
            Err(error) => {
                if !is_gone(&error) {
                    eprintln!("receiving from {}: {error}", self.from.name());
                }
                self.receiver = None;
                self.armed = false;
                Got::Gone
            }
        }
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
}
