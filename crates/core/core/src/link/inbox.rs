//! Buffers that were sent to this domain, taken by their ids alone.

use crate::base::lock;
use crate::error::{Error, ErrorKind};
use crate::link::message::{Body, Message};
use crate::link::receiver::Receiver;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use tranship_proto::BufferId;

/// How long a message may wait for the manager, once for each channel that has one.
const MANAGER: Duration = Duration::from_secs(5);

/// Takes buffers by their ids, for programs that carry ids by an IPC of their own: a pipe, a socket, a request. The channel
/// transfers the data, as counted references. The program's own IPC transfers control.
///
/// The sender sends the buffer first, and its id after that. The receiver's side then finds the buffer, in whatever order
/// ids come. An id of a buffer that was not sent here, or was taken already, is an error. A buffer that was sent twice
/// can be taken twice. Any thread may take.
///
/// Ids are the same at both ends where memory is shared: at addresses `shm:` and `local:`.
///
/// ```
/// # use tranship_core as tranship;
/// # use tranship_core::{Domain, PoolOptions, Receiver, Sender};
/// use tranship::{ErrorKind, Inbox};
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:frames")?;
/// # let mut sender = domain.open::<Sender>("local:frames")?;
/// # let receiver = listener.accept()?;
///
/// let inbox = Inbox::new(receiver, 100);
/// let (first, second) = (pool.copy(b"first")?.freeze(), pool.copy(b"second")?.freeze());
/// sender.send(first.clone())?; // counts a reference; the ids go by the program's own IPC
/// sender.send(second.clone())?;
/// assert_eq!(inbox.take(second.id())?.to_vec(), b"second");
/// assert_eq!(inbox.take(first.id())?.to_vec(), b"first");
/// assert_eq!(inbox.take(first.id()).unwrap_err().kind(), ErrorKind::Stale);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Inbox {
    kept: Mutex<Kept>,
    most: usize,
}

#[derive(Debug, Default)]
struct Kept {
    sources: Vec<Source>,
    /// Messages that were received and not taken, in the order in which they came, each with the index of its source.
    messages: HashMap<BufferId, VecDeque<(usize, Message)>>,
    len: usize,
}

/// A channel of an inbox.
#[derive(Debug)]
struct Source {
    /// `None`: the channel is over.
    receiver: Option<Receiver>,
    /// Number of messages of this channel that were received and not taken.
    kept: usize,
}

impl Inbox {
    /// Makes an inbox of what a channel brings. It keeps at most `most` messages of each channel that were not taken,
    /// beside those that still lie in the channel.
    #[must_use]
    pub fn new(receiver: Receiver, most: usize) -> Inbox {
        let inbox = Inbox {
            kept: Mutex::default(),
            most,
        };
        inbox.add(receiver);
        inbox
    }

    /// Adds another channel, for example another sender's. A sender that breaks a rule, dies or fills its own limit
    /// hinders no other sender.
    pub fn add(&self, receiver: Receiver) {
        lock(&self.kept).add(receiver);
    }

    /// Takes the message with the buffer of this id. An aggregate has the id of its first piece. A message without a buffer
    /// has no id, and is released when it is found.
    ///
    /// Waits only for the manager, if no channel has the buffer yet and the manager has still to show the memory of a
    /// message that is here: 5 s for each such channel.
    ///
    /// # Errors
    /// Every channel is looked at first. `TimedOut`: the manager did not show a message's memory in that time. `Stale`: no
    /// such buffer was sent here, or it was taken as often as it was sent.
    /// `Limit`: so many messages of a channel were not taken that no more of it can be looked at. Those of
    /// [`Receiver::try_recv`], except that a sender's end only ends its channel. An error that ends a channel is returned
    /// at most once.
    pub fn take(&self, id: BufferId) -> Result<Message, Error> {
        let mut kept = lock(&self.kept);
        if let Some(message) = kept.find(id) {
            return Ok(message);
        }
        kept.receive(id, self.most)?;
        kept.find(id).ok_or_else(|| {
            let text = format!(
                "no buffer {id} was sent here, or it was taken as often as it was sent: send a buffer before its id"
            );
            Error::new(ErrorKind::Stale, text)
        })
    }

    /// Returns the number of messages that were received and not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.kept).len
    }

    /// Says whether no message was received that was not taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all messages that were received and not taken, in no order: for ids that will never come.
    #[must_use]
    pub fn drain(&self) -> Vec<Message> {
        let mut kept = lock(&self.kept);
        kept.len = 0;
        kept.sources.iter_mut().for_each(|source| source.kept = 0);
        let all = std::mem::take(&mut kept.messages);
        let all = all.into_values().flatten();
        all.map(|(_, message)| message).collect()
    }
}

impl Kept {
    fn add(&mut self, receiver: Receiver) {
        let source = Source {
            receiver: Some(receiver),
            kept: 0,
        };
        let is_free = |source: &&mut Source| source.receiver.is_none() && source.kept == 0;
        match self.sources.iter_mut().find(is_free) {
            Some(free) => *free = source,
            None => self.sources.push(source),
        }
    }

    fn find(&mut self, id: BufferId) -> Option<Message> {
        let queue = self.messages.get_mut(&id)?;
        let found = queue.pop_front();
        if queue.is_empty() {
            self.messages.remove(&id);
        }
        let (at, message) = found?;
        self.sources[at].kept -= 1;
        self.len -= 1;
        Some(message)
    }

    /// Receives until a message has this id, or nothing is there. The first error of a channel is returned after a look at
    /// all channels.
    fn receive(&mut self, id: BufferId, most: usize) -> Result<(), Error> {
        let mut first = Ok(());
        for wait in [None, Some(MANAGER)] {
            for at in 0..self.sources.len() {
                match self.receive_from(at, id, most, wait) {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => first = first.and(Err(error)),
                }
            }
        }
        first
    }

    /// Receives from one channel. Returns whether a message has this id. `wait`: how long for the manager.
    fn receive_from(
        &mut self,
        at: usize,
        id: BufferId,
        most: usize,
        wait: Option<Duration>,
    ) -> Result<bool, Error> {
        let source = &mut self.sources[at];
        let Some(receiver) = &mut source.receiver else {
            return Ok(false);
        };
        // A buffer that was sent before its id is in one of the lines, or was put aside. A sender that goes on sending
        // cannot keep this loop from its end.
        for _ in 0..=receiver.link.their_lines().count() {
            if source.kept >= most {
                let text = format!(
                    "{most} messages of a channel were received and not taken: take them or drain the inbox, or make a larger one"
                );
                return Err(Error::new(ErrorKind::Limit, text));
            }
            let got = match (receiver.try_recv(), wait) {
                (Ok(None), Some(wait)) if receiver.awaits_manager() => {
                    receiver.recv_timeout(wait).map(Some)
                }
                (got, _) => got,
            };
            match got {
                Ok(Some(message)) => {
                    let Some(came) = id_of(&message.body) else {
                        continue;
                    };
                    let queue = self.messages.entry(came).or_default();
                    queue.push_back((at, message));
                    source.kept += 1;
                    self.len += 1;
                    if came == id {
                        return Ok(true);
                    }
                }
                Ok(None) => return Ok(false),
                Err(error) => {
                    let is_end = has_ended(error.kind());
                    if is_end || is_broken(error.kind()) {
                        source.receiver = None;
                    }
                    return if is_end { Ok(false) } else { Err(error) };
                }
            }
        }
        Ok(false)
    }
}

fn has_ended(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PeerGone | ErrorKind::PeerDied)
}

/// Whether the channel is over for a reason that the caller has to know.
fn is_broken(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::PeerViolation | ErrorKind::Lost | ErrorKind::NotConnected
    )
}

fn id_of(body: &Body) -> Option<BufferId> {
    match body {
        Body::Buffer(buf) => Some(buf.id()),
        Body::BufferMut(buf) => Some(buf.id()),
        Body::Aggregate(all) => all.pieces().front().map(|piece| piece.id()),
        Body::AggregateMut(all) => all.pieces().front().map(|piece| piece.id()),
        Body::Inline(_) | Body::Released(_) => None,
    }
}
