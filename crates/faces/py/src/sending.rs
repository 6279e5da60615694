//! Sends from Python: the given objects, and their way: by a try, or by a future if there is no room.

use crate::driven::{Doorbell, Driven};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tranship::{Body, BufferMut, Error, ErrorKind, Message, Outcome, SendError, WhenFull, error};

/// An end of a channel at work.
pub(crate) struct Inner {
    /// The result of a future is a message of the receiver's, if it awaited that.
    pub(crate) driven: Driven<tranship::Sender, Result<Option<Message>, Stopped>>,
    pub(crate) doorbell: Option<Arc<Doorbell>>,
    /// Doorbell for messages that come back; made when a caller first asks for a descriptor.
    replies: Option<Arc<Doorbell>>,
    /// Whether the future under way awaits a message that comes back.
    awaits_reply: bool,
    /// Message that came back ahead of its time.
    stash: Option<Result<Message, Error>>,
    /// Action of a send that finds the channel full.
    pub(crate) when_full: WhenFull,
    /// Buffer that a future did not move after all.
    pub(crate) back: Option<BufferMut>,
}

/// Why a future ended without success, and what it was to move.
pub(crate) struct Stopped(Box<(Error, Option<BufferMut>)>);

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped(Box::new((error, None)))
    }
}

/// A buffer comes back that was to be given away.
impl From<Unsent> for Stopped {
    fn from(failed: Unsent) -> Stopped {
        let (body, word) = failed.unsent;
        Stopped(Box::new((failed.error, moved(Message { word, body }))))
    }
}

pub(crate) fn moved(message: Message) -> Option<BufferMut> {
    match message.body {
        Body::BufferMut(buf) => Some(buf),
        _ => None,
    }
}

impl Inner {
    pub(crate) fn new(sender: tranship::Sender) -> Inner {
        Inner {
            when_full: WhenFull::Wait,
            driven: Driven::new(sender),
            doorbell: None,
            replies: None,
            awaits_reply: false,
            stash: None,
            back: None,
        }
    }

    /// Returns whether something is being sent, or waited for, that somebody awaits.
    pub(crate) fn is_under_way(&self) -> bool {
        self.driven.is_under_way() && !self.awaits_reply
    }

    /// Returns the doorbell for messages that come back.
    pub(crate) fn replies(&mut self) -> std::io::Result<Arc<Doorbell>> {
        if self.replies.is_none() {
            self.replies = Some(Doorbell::new()?);
        }
        self.arm();
        self.replies
            .clone()
            .ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// Makes that doorbell ring from here on when something comes back. Not while something is under way: its end arms
    /// it.
    pub(crate) fn arm(&mut self) {
        let Some(doorbell) = self.replies.clone() else {
            return;
        };
        if self.stash.is_none() && !self.driven.is_under_way() {
            self.awaits_reply = true;
            self.driven.begin(|end| {
                let reply = end.recv_back_async();
                Box::pin(async move { Ok(Some(reply.await?)) })
            });
        }
        self.look_for_reply(&doorbell);
        if self.stash.is_some() {
            doorbell.ring();
        }
    }

    fn look_for_reply(&mut self, doorbell: &Arc<Doorbell>) {
        if self.stash.is_none() && self.awaits_reply && self.driven.is_under_way() {
            let done = self.driven.poll(doorbell);
            self.stash = done.map(|done| match done {
                Ok(Some(reply)) => Ok(reply),
                Ok(None) => Err(ErrorKind::Stale.into()), // no future that awaits a reply ends so
                Err(Stopped(why)) => Err(why.0),
            });
        }
    }

    /// Returns whether something came back, or nothing more will.
    pub(crate) fn has_reply(&mut self) -> bool {
        if let Some(doorbell) = &self.replies {
            doorbell.hush();
        }
        self.arm();
        self.stash.is_some()
    }

    /// Returns the message that came back.
    pub(crate) fn reply(&mut self) -> Result<Option<Message>, Error> {
        if let Some(doorbell) = &self.replies {
            doorbell.hush();
        }
        match self.stash.take() {
            Some(taken) => taken.map(Some),
            None => self.driven.end().try_recv_back(),
        }
    }

    /// Waits for a message that comes back.
    pub(crate) fn reply_within(&mut self, time: Duration) -> Result<Message, Error> {
        match self.reply()? {
            Some(reply) => Ok(reply),
            None => self.driven.end().recv_back_timeout(time),
        }
    }

    /// Returns the doorbell, silent.
    pub(crate) fn doorbell(&mut self) -> Result<Arc<Doorbell>, Error> {
        let doorbell = match &self.doorbell {
            Some(doorbell) => Arc::clone(doorbell),
            None => {
                let doorbell = Doorbell::new().map_err(error::system("eventfd"))?;
                Arc::clone(self.doorbell.insert(doorbell))
            }
        };
        doorbell.hush();
        Ok(doorbell)
    }

    /// Returns whether the begun operation is done; if not, the doorbell rings.
    pub(crate) fn look(&mut self, doorbell: &Arc<Doorbell>) -> Result<bool, Error> {
        if !self.is_under_way() {
            return Ok(true);
        }
        match self.driven.poll(doorbell) {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(Stopped(why))) => {
                let (error, back) = *why;
                self.back = back;
                Err(error)
            }
        }
    }

    /// Begins a future that somebody awaits.
    fn begin_other(&mut self, make: impl FnOnce(&'static mut tranship::Sender) -> Other) {
        self.awaits_reply = false;
        self.driven.begin(|end| {
            let other = make(end);
            Box::pin(async move { other.await.map(|()| None) })
        });
    }

    /// Begins to wait until all was taken.
    pub(crate) fn begin_taken(&mut self) -> Result<bool, Error> {
        let doorbell = self.doorbell()?;
        self.begin_other(|end| Box::pin(async move { Ok(end.wait_taken_async().await?) }));
        self.look(&doorbell)
    }

    /// Makes one attempt, which waits at most that long. A message that finds the channel full is dropped if the channel
    /// says so.
    pub(crate) fn attempt(
        &mut self,
        time: Duration,
        payload: (Body, u64),
    ) -> Result<Outcome, Unsent> {
        let drops = self.when_full != WhenFull::Wait;
        let sender = self.driven.end();
        match attempt(sender, Some(time), payload) {
            Err(failed) if drops && failed.error == ErrorKind::Full => {
                attempt(sender, None, failed.unsent)
            }
            done => done,
        }
    }

    /// A try, and if there is no room a future of it. What is not sent, and will not be, is in `cargo`.
    pub(crate) fn begin(&mut self, cargo: &mut Option<Body>, word: u64) -> Result<bool, Error> {
        let doorbell = self.doorbell()?;
        let Some(body) = cargo.take() else {
            return Ok(true);
        };
        let (error, what) = match self.attempt(Duration::ZERO, (body, word)) {
            Ok(_) => return Ok(true),
            Err(failed) => (failed.error, failed.unsent),
        };
        if !matches!(error.kind(), ErrorKind::Full | ErrorKind::PoolPending) {
            *cargo = Some(what.0);
            return Err(error);
        }
        self.begin_other(|end| Box::pin(async move { Ok(end.send_async(what).await.map(drop)?) }));
        let looked = self.look(&doorbell);
        if looked.is_err() {
            *cargo = self.back.take().map(Body::BufferMut);
        }
        looked
    }
}

type Other = Pin<Box<dyn Future<Output = Result<(), Stopped>> + Send>>;

/// Unsent payload, and the reason.
pub(crate) type Unsent = SendError<(Body, u64)>;

/// Makes one attempt; without a time it does what the channel says.
fn attempt(
    sender: &mut tranship::Sender,
    time: Option<Duration>,
    payload: (Body, u64),
) -> Result<Outcome, Unsent> {
    match time {
        Some(time) => sender.send_timeout(payload, time),
        None => sender.send(payload),
    }
}
