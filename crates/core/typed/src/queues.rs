//! The two ends of a queue whose items are of one type.

use crate::ends::{Ready, Sendable, shows};
use crate::message::{Items, Message};
use crate::value::{Draft, Value};
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;
use tranship_core::{self as core, Body, Domain, Error};
use tranship_queue::{self as queue, ConsumerOptions, QueueOptions, Queues};

/// Sends a queue's items of the type `M`, with the items `T` behind each: nothing, or `[T]`, any number of them.
///
/// A consumer of another type is refused: its `recv` fails with `ChannelBind`, which names the first field that differs.
pub struct Producer<M, T: Items + ?Sized = ()> {
    end: queue::Producer,
    kind: PhantomData<fn() -> (M, *const T)>,
}

/// Takes a queue's items of the type `M`. See [`Producer`].
pub struct Consumer<M, T: Items + ?Sized = ()> {
    end: queue::Consumer,
    kind: PhantomData<fn() -> (M, *const T)>,
}

/// An item that a consumer took. It reads as its [`Value`]. If it is dropped without [`ack`](Job::ack), it goes back to
/// the queue.
pub struct Job<M, T: Items + ?Sized = ()> {
    // The value is dropped first, so that no access to the item comes after the item is given back.
    value: Value<M, T>,
    item: queue::Item,
}

shows!(Producer: end, Consumer: end, Job: item);

impl<M: Message, T: Items + ?Sized> Producer<M, T> {
    /// Joins a queue as a producer.
    ///
    /// # Errors
    /// As [`Queues::produce`].
    pub fn produce(domain: &Domain, name: &str) -> Result<Producer<M, T>, Error> {
        Producer::produce_with(domain, name, QueueOptions::new())
    }

    /// Joins a queue as a producer, with options.
    ///
    /// # Errors
    /// As [`Queues::produce_with`].
    pub fn produce_with(
        domain: &Domain,
        name: &str,
        options: QueueOptions,
    ) -> Result<Producer<M, T>, Error> {
        let text = T::behind::<M>().to_string();
        let end = domain.produce_with(name, options.message_type(&text))?;
        let kind = PhantomData;
        Ok(Producer { end, kind })
    }

    /// Allocates an item of the queue with `items` items behind it, from the producer's own pool. The consumer reads it
    /// where it is written.
    ///
    /// # Errors
    /// As [`queue::Producer::alloc`].
    pub fn alloc(&mut self, items: usize) -> Result<Draft<M, T>, Error> {
        Draft::new(items, |bytes| self.end.alloc(bytes))
    }

    /// Sends an item: a [`Draft`], a [`Value`] or, without items behind it, `&M`. A pair also sends a word. The
    /// function waits as [`queue::Producer::send`] does.
    ///
    /// # Errors
    /// As [`queue::Producer::send`]. The item is dropped.
    pub fn send<P: Sendable<M, T>>(&mut self, payload: P) -> Result<(), Error> {
        let ready = payload.ready(&mut |len| self.end.alloc(len));
        match ready.map_err(|failed| failed.error)? {
            (Ready::Copied(bytes), word) => self.end.send((&*bytes, word)).map_err(|e| e.error),
            (Ready::Given(buffer), word) => self.end.send((buffer, word)).map_err(|e| e.error),
            (Ready::Shared(buffer), word) => self.end.send((buffer, word)).map_err(|e| e.error),
        }
    }

    /// Returns the producer without its type, for its status and for the other forms of sending.
    pub fn untyped(&mut self) -> &mut queue::Producer {
        &mut self.end
    }
}

impl<M: Message, T: Items + ?Sized> Consumer<M, T> {
    /// Joins a queue as a consumer. Returns at once: the type is compared when a producer is joined, in `recv`.
    ///
    /// # Errors
    /// As [`Queues::consume`].
    pub fn consume(domain: &Domain, name: &str) -> Result<Consumer<M, T>, Error> {
        Consumer::consume_with(domain, name, ConsumerOptions::new())
    }

    /// Joins a queue as a consumer, with options.
    ///
    /// # Errors
    /// As [`Queues::consume_with`].
    pub fn consume_with(
        domain: &Domain,
        name: &str,
        options: ConsumerOptions,
    ) -> Result<Consumer<M, T>, Error> {
        let text = T::behind::<M>().to_string();
        let end = domain.consume_with(name, options.message_type(&text))?;
        let kind = PhantomData;
        Ok(Consumer { end, kind })
    }

    /// Takes the next item. The function waits as [`queue::Consumer::recv`] does.
    ///
    /// # Errors
    /// As [`queue::Consumer::recv`]. `ChannelBind`: the only producer's items are of another type. `PeerViolation`: no
    /// item of this type has the length. The item is rejected.
    pub fn recv(&mut self) -> Result<Job<M, T>, Error> {
        Job::new(self.end.recv()?)
    }

    /// Takes the next item, if one waits.
    ///
    /// # Errors
    /// As [`recv`](Consumer::recv).
    pub fn try_recv(&mut self) -> Result<Option<Job<M, T>>, Error> {
        self.end.try_recv()?.map(Job::new).transpose()
    }

    /// Takes the next item, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Consumer::recv), and `TimedOut`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Job<M, T>, Error> {
        Job::new(self.end.recv_timeout(timeout)?)
    }

    /// Takes the next item without blocking the thread, in any runtime.
    ///
    /// # Errors
    /// As [`recv`](Consumer::recv).
    pub async fn recv_async(&mut self) -> Result<Job<M, T>, Error> {
        Job::new(self.end.recv_async().await?)
    }

    /// Returns the consumer without its type, for its status.
    pub fn untyped(&mut self) -> &mut queue::Consumer {
        &mut self.end
    }
}

impl<M: Message, T: Items + ?Sized> Job<M, T> {
    fn new(item: queue::Item) -> Result<Job<M, T>, Error> {
        // This clones the handle. No byte of a buffer is copied.
        let body = match &item.body {
            Body::Inline(bytes) => Body::Inline(*bytes),
            Body::Buffer(buffer) => Body::Buffer(buffer.clone()),
            // No value has this form. The check below refuses it.
            _ => Body::Released(None),
        };
        let word = item.word;
        match Value::checked(core::Message { word, body }) {
            Ok(value) => Ok(Job { value, item }),
            Err(error) => {
                item.reject();
                Err(error)
            }
        }
    }

    /// Acknowledges the item, and returns its value. The function does not block.
    ///
    /// # Errors
    /// As [`queue::Item::ack`].
    pub fn ack(self) -> Result<Value<M, T>, Error> {
        self.item.ack()?;
        Ok(self.value)
    }

    /// Gives the item back to the queue. Another consumer gets it, marked as redelivered.
    pub fn requeue(self) {}

    /// Rejects the item: no consumer gets it again, and its producer is told.
    pub fn reject(self) {
        drop(self.value);
        self.item.reject();
    }

    /// Says whether the item was taken before.
    pub fn redelivered(&self) -> bool {
        self.item.redelivered()
    }
}

impl<M, T: Items + ?Sized> Deref for Job<M, T> {
    type Target = Value<M, T>;

    fn deref(&self) -> &Value<M, T> {
        &self.value
    }
}
