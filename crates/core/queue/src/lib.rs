//! Queues: many producers, many consumers, each item taken by exactly one.
//!
//! There is no broker. Each producer has a ring and a pool of its own, which its consumers map read-only, and every
//! consumer of a name is connected to every producer of it. A consumer takes an item by one compare-and-swap in a page
//! of claims, which all consumers of that producer write. If a consumer dies, the items that it had taken and not
//! acknowledged go back to the queue, or the producer reports them as lost.
//!
//! ```
//! # mod tranship { pub use tranship_core::*; pub use tranship_queue as queue; }
//! use tranship::Domain;
//! use tranship::queue::Queues;
//!
//! let here = Domain::embedded()?;
//! let there = Domain::builder().socket(here.socket_path().unwrap()).connect()?; // another process, as a rule
//! let mut jobs = here.produce("jobs")?;
//! let worker = std::thread::spawn(move || {
//!     let mut jobs = there.consume("jobs")?;
//!     let item = jobs.recv()?;
//!     let bytes = item.to_vec();
//!     item.ack()?; // until then the item comes back to the queue if this process dies
//!     Ok::<_, tranship::Error>(bytes)
//! });
//! let mut job = jobs.alloc(5)?;
//! job.copy_from_slice(b"a job");
//! jobs.send(job.freeze())?;
//! jobs.wait_done(None)?; // until it is taken and acknowledged
//! assert_eq!(worker.join().unwrap()?, b"a job");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what it has |
//! |---|---|
//! | `options` | what a producer and a consumer may choose |
//! | `producer` | the writing end as programs see it |
//! | `writing` | the state behind it: room, lines, memory |
//! | `book` | the items of a producer: in lines, with consumers, given back, lost |
//! | `seats` | the consumers as the producer sees them |
//! | `consumer` | the reading end: its producers in turn, waiting |
//! | `seat` | the connection to one producer: taking a line |
//! | `item` | an item that was taken: acknowledging, giving back |
//!
//! NOT here: what topics have too (`readers`: lines, payloads, joining and leaving), claims and entries
//! (`ring/broadcast`), the rounds (`ledger/rounds`), names and memory (`core`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod book;
mod consumer;
mod item;
mod options;
mod producer;
mod seat;
mod seats;
mod status;
mod writing;

pub use book::{Cause, Lost};
pub use consumer::{Consumer, ConsumerStatus, ProducerSeen};
pub use item::Item;
pub use options::{ConsumerOptions, QueueOptions, WhenLost};
pub use producer::Producer;
pub use seats::ConsumerSeen;
pub use status::ProducerStatus;
pub use tranship_readers::Payload as Enqueue;

use tranship_core::{Domain, Error};

/// The queues of a domain.
pub trait Queues {
    /// Joins a queue as a producer, with the default [`QueueOptions`]. The address is `NAME` (or `shm:NAME`) for all domains of the manager, this one
    /// included, or `local:NAME` for the domains of this process.
    ///
    /// Waits for the manager as [`Domain::create_pool`] does.
    ///
    /// # Errors
    /// `NameTaken` if this domain is a producer of the queue already, or another domain has the name for itself;
    /// `BadArgument` if a channel or a topic has the name, or the name is invalid; `InvalidEndpoint` for another
    /// scheme; `Access`, `Limit`, `Quota` by the manager; `TimedOut`, `ManagerAway`, `CutOff`; `Forked`; `System`.
    fn produce(&self, name: &str) -> Result<Producer, Error>;

    /// Joins a queue as a producer, with options.
    ///
    /// # Errors
    /// As [`produce`](Queues::produce), and `BadArgument` for options outside their range.
    fn produce_with(&self, name: &str, options: QueueOptions) -> Result<Producer, Error>;

    /// Joins a queue as a consumer, with the default [`ConsumerOptions`]. Returns at once. The consumer connects in
    /// `recv` and `try_recv`.
    ///
    /// # Errors
    /// `BadArgument` for an invalid name; `InvalidEndpoint` for a scheme that [`produce`](Queues::produce) does not
    /// take; `Forked`; `System`. If the producer is in this process already, also `BadArgument` for a topic's name.
    fn consume(&self, name: &str) -> Result<Consumer, Error>;

    /// Joins a queue as a consumer, with options.
    ///
    /// # Errors
    /// As [`consume`](Queues::consume), and `BadArgument` for options outside their range.
    fn consume_with(&self, name: &str, options: ConsumerOptions) -> Result<Consumer, Error>;
}

impl Queues for Domain {
    fn produce(&self, name: &str) -> Result<Producer, Error> {
        self.produce_with(name, QueueOptions::default())
    }

    fn produce_with(&self, name: &str, options: QueueOptions) -> Result<Producer, Error> {
        Producer::new(self, name, options)
    }

    fn consume(&self, name: &str) -> Result<Consumer, Error> {
        self.consume_with(name, ConsumerOptions::default())
    }

    fn consume_with(&self, name: &str, options: ConsumerOptions) -> Result<Consumer, Error> {
        Consumer::new(self, name, options)
    }
}
