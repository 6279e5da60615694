//! The two ends of a topic whose messages are of one type.

use crate::ends::{Ready, Sendable, shows};
use crate::message::{Items, Message};
use crate::value::{Draft, Value};
use std::marker::PhantomData;
use std::time::Duration;
use tranship_core::{self as core, Domain, Error, Outcome};
use tranship_topic::{self as topic, SubscriberOptions, TopicOptions, Topics};

/// Publishes messages of the type `M`, with the items `T` behind each: nothing, or `[T]`, any number of them.
///
/// A subscriber of another type is refused: its `recv` fails with `ChannelBind`, which names the first field that differs.
pub struct Publisher<M, T: Items + ?Sized = ()> {
    end: topic::Publisher,
    kind: PhantomData<fn() -> (M, *const T)>,
}

/// Receives a topic's messages of the type `M`. See [`Publisher`].
pub struct Subscriber<M, T: Items + ?Sized = ()> {
    end: topic::Subscriber,
    kind: PhantomData<fn() -> (M, *const T)>,
}

shows!(Publisher: end, Subscriber: end);

impl<M: Message, T: Items + ?Sized> Publisher<M, T> {
    /// Publishes a topic.
    ///
    /// # Errors
    /// As [`Topics::publish`].
    pub fn publish(domain: &Domain, name: &str) -> Result<Publisher<M, T>, Error> {
        Publisher::publish_with(domain, name, TopicOptions::new())
    }

    /// Publishes a topic, with options.
    ///
    /// # Errors
    /// As [`Topics::publish_with`].
    pub fn publish_with(
        domain: &Domain,
        name: &str,
        options: TopicOptions,
    ) -> Result<Publisher<M, T>, Error> {
        let text = T::behind::<M>().to_string();
        let end = domain.publish_with(name, options.message_type(&text))?;
        let kind = PhantomData;
        Ok(Publisher { end, kind })
    }

    /// Allocates a message with `items` items from the topic's own pool. Subscribers read it where it is written. For a
    /// type without items, `items` is 0.
    ///
    /// # Errors
    /// As [`topic::Publisher::alloc`].
    pub fn alloc(&mut self, items: usize) -> Result<Draft<M, T>, Error> {
        Draft::new(items, |bytes| self.end.alloc(bytes))
    }

    /// Publishes a message: a [`Draft`], a [`Value`] or, without items, `&M`. A pair also sends a word. The function
    /// waits as [`topic::Publisher::send`] does.
    ///
    /// # Errors
    /// As [`topic::Publisher::send`]. The message is dropped.
    pub fn send<P: Sendable<M, T>>(&mut self, payload: P) -> Result<Outcome, Error> {
        Ok(match self.ready(payload)? {
            (Ready::Copied(bytes), word) => self.end.send((&*bytes, word)).map_err(|e| e.error)?,
            (Ready::Given(buffer), word) => self.end.send((buffer, word)).map_err(|e| e.error)?,
            (Ready::Shared(buffer), word) => self.end.send((buffer, word)).map_err(|e| e.error)?,
        })
    }

    fn ready<P: Sendable<M, T>>(&mut self, payload: P) -> Result<(Ready, u64), Error> {
        let ready = payload.ready(&mut |len| self.end.alloc(len));
        ready.map_err(|failed| failed.error)
    }

    /// Returns the topic's end without its type, for its status and for the other forms of sending.
    pub fn untyped(&mut self) -> &mut topic::Publisher {
        &mut self.end
    }
}

impl<M: Message, T: Items + ?Sized> Subscriber<M, T> {
    /// Subscribes to a topic. Returns at once: the type is compared when the topic is joined, in `recv`.
    ///
    /// # Errors
    /// As [`Topics::subscribe`].
    pub fn subscribe(domain: &Domain, name: &str) -> Result<Subscriber<M, T>, Error> {
        Subscriber::subscribe_with(domain, name, SubscriberOptions::new())
    }

    /// Subscribes to a topic, with options.
    ///
    /// # Errors
    /// As [`Topics::subscribe_with`].
    pub fn subscribe_with(
        domain: &Domain,
        name: &str,
        options: SubscriberOptions,
    ) -> Result<Subscriber<M, T>, Error> {
        let text = T::behind::<M>().to_string();
        let end = domain.subscribe_with(name, options.message_type(&text))?;
        let kind = PhantomData;
        Ok(Subscriber { end, kind })
    }

    /// Receives the next message. The function waits as [`topic::Subscriber::recv`] does.
    ///
    /// # Errors
    /// As [`topic::Subscriber::recv`]. `ChannelBind`: the publisher's messages are of another type. `PeerViolation`: no
    /// message of this type has the length.
    pub fn recv(&mut self) -> Result<Value<M, T>, Error> {
        Value::checked(self.end.recv()?)
    }

    /// Receives the next message, if one is there.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv).
    pub fn try_recv(&mut self) -> Result<Option<Value<M, T>>, Error> {
        self.end.try_recv()?.map(Value::checked).transpose()
    }

    /// Receives the next message, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Value<M, T>, Error> {
        Value::checked(self.end.recv_timeout(timeout)?)
    }

    /// Receives the next message without blocking the thread, in any runtime.
    ///
    /// # Errors
    /// As [`recv`](Subscriber::recv).
    pub async fn recv_async(&mut self) -> Result<Value<M, T>, Error> {
        let message: core::Message = self.end.recv_async().await?;
        Value::checked(message)
    }

    /// Returns how many messages this subscriber missed.
    pub fn missed(&self) -> u64 {
        self.end.missed()
    }

    /// Returns the topic's end without its type, for its status.
    pub fn untyped(&mut self) -> &mut topic::Subscriber {
        &mut self.end
    }
}
