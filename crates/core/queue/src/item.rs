//! An item that a consumer took: acknowledging it, giving it back.

use std::ops::Deref;
use std::sync::Arc;
use tranship_core::{DomainId, Error, ErrorKind, Message};
use tranship_ring::broadcast::{DeskRw, LinesRo, Open};
use tranship_sys::crash;

/// The shared memory of a connection, which its items use.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) desk: DeskRw,
    pub(crate) ring: Arc<LinesRo>,
}

/// An item that its consumer has taken. It reads as the [`Message`] that was sent.
///
/// [`ack`](Item::ack) acknowledges the item. If it is dropped without that, it goes back to the queue. Any thread may
/// do either.
#[derive(Debug)]
pub struct Item {
    message: Option<Message>,
    redelivered: bool,
    producer: DomainId,
    open: Option<Entry>,
}

/// The entry that names an open item.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) shown: Arc<Shown>,
    pub(crate) number: usize,
    pub(crate) position: u64,
    /// The number that names the consumer in claims.
    pub(crate) consumer: u16,
}

impl Entry {
    /// Says whether this is a forked child. The item is then the parent's, and the desk is not mapped.
    #[inline]
    fn is_parents(&self) -> bool {
        self.shown.desk.is_forked_child()
    }

    /// Says that the item is done.
    pub(crate) fn clear(&self) {
        if !self.is_parents() {
            self.shown.desk.opens().clear(self.number);
        }
    }

    pub(crate) fn hand_back(&self, what: Open) {
        if !self.is_parents() {
            let opens = self.shown.desk.opens();
            opens.hand_back(self.number, self.position, what);
        }
    }

    /// Says that the item is done, unless the connection has ended already.
    fn acknowledge(&self) -> Result<(), Error> {
        if self.is_parents() {
            return Err(ErrorKind::Forked.into());
        }
        crash::point("queue.acks");
        let (opens, dismissed) = (self.shown.desk.opens(), self.shown.ring.dismissed());
        let done = opens.acknowledge(self.number, self.position);
        match done && !dismissed.has(self.consumer) {
            true => Ok(()),
            false => Err(too_late()),
        }
    }
}

impl Item {
    pub(crate) fn new(
        message: Message,
        redelivered: bool,
        producer: DomainId,
        open: Option<Entry>,
    ) -> Item {
        Item {
            message: Some(message),
            redelivered,
            producer,
            open,
        }
    }

    /// Says whether the item was taken before, by a consumer that gave it back or died.
    pub fn redelivered(&self) -> bool {
        self.redelivered
    }

    /// Returns the domain of the producer.
    pub fn producer(&self) -> DomainId {
        self.producer
    }

    /// Acknowledges the item, so that no other consumer gets it. Returns its message.
    ///
    /// Does not block. With [`auto_ack`](crate::ConsumerOptions::auto_ack) it only returns the message.
    ///
    /// # Errors
    /// `PeerGone` if this consumer's connection to the producer has ended since, or the producer has expelled this
    /// consumer: the producer may have given the item to another consumer. `Forked`: the item is the parent's.
    pub fn ack(mut self) -> Result<Message, Error> {
        if let Some(entry) = self.open.take() {
            entry.acknowledge()?;
        }
        crash::point("queue.acked");
        Ok(self.take())
    }

    /// Gives the item back to the queue (RabbitMQ: `nack` with `requeue`). Another consumer gets it after the items
    /// that wait there, marked as [redelivered](Item::redelivered).
    ///
    /// The function does not block. The producer learns of it when it sends, or in [`tend`](crate::Producer::tend).
    /// With [`auto_ack`](crate::ConsumerOptions::auto_ack) it does nothing.
    pub fn requeue(self) {
        drop(self);
    }

    /// Rejects the item (RabbitMQ: `reject` without `requeue`): no consumer gets it again, and its producer is told
    /// ([`Producer::take_lost`](crate::Producer::take_lost)).
    ///
    /// Does not block. With [`auto_ack`](crate::ConsumerOptions::auto_ack) it does nothing.
    pub fn reject(mut self) {
        if let Some(entry) = self.open.take() {
            entry.hand_back(Open::Rejected);
        }
    }

    #[cfg(test)]
    pub(crate) fn entry(&self) -> Option<&Entry> {
        self.open.as_ref()
    }

    fn take(&mut self) -> Message {
        self.message.take().expect("taken once, by `ack`")
    }
}

impl Deref for Item {
    type Target = Message;

    fn deref(&self) -> &Message {
        self.message.as_ref().expect("there until `ack`")
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        // The message is dropped first: no access to the item may come after the next step.
        drop(self.message.take());
        if let Some(entry) = self.open.take() {
            entry.hand_back(Open::Back);
        }
    }
}

#[cold]
fn too_late() -> Error {
    let text = "the connection to the item's producer has ended: the item may have gone to another consumer";
    Error::new(ErrorKind::PeerGone, text)
}
