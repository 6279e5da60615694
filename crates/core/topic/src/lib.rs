//! Topics: messages of one publisher, or several, to any number of subscribers.
//!
//! A publisher has one ring of lines and one pool. Every subscriber maps both read-only. A publish writes one line and
//! costs the same for one subscriber and for two hundred. A subscriber counts nothing at receipt: it says in its desk
//! which lines and buffers it may hold, and the publisher asks every desk once a round.
//!
//! ```
//! # mod tranship { pub use tranship_core::*; pub use tranship_topic as topic; }
//! use tranship::Domain;
//! use tranship::topic::Topics;
//!
//! let here = Domain::embedded()?;
//! let there = Domain::builder().socket(here.socket_path().unwrap()).connect()?; // another process, as a rule
//! let mut camera = here.publish("camera")?;
//! let viewer = std::thread::spawn(move || {
//!     let mut video = there.subscribe("camera")?;
//!     let message = video.recv()?;
//!     Ok::<_, tranship::Error>((message.word, message.to_vec()))
//! });
//! camera.wait_for(1, None)?;
//! let mut frame = camera.alloc(7)?;
//! frame.copy_from_slice(b"a frame");
//! camera.send((frame.freeze(), 60))?;
//! assert_eq!(viewer.join().unwrap()?, (60, b"a frame".to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what it has |
//! |---|---|
//! | `options` | what a publisher and a subscriber may choose |
//! | `publisher` | the writing end as programs see it |
//! | `writing` | the state behind it: room, lines, memory |
//! | `status` | what a publisher says of itself and its subscribers |
//! | `seats` | the subscribers as the publisher sees them |
//! | `bells` | waking the subscribers of each user |
//! | `subscriber` | the reading end: connecting, receiving, waiting |
//! | `seat` | the connection of a subscriber: the ring, the desk, what it holds |
//!
//! NOT here: what queues have too (`readers`: lines, payloads, joining and leaving), the ring and the desks (`ring/broadcast`), the rounds (`ledger/rounds`), names and memory (`core`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod bells;
mod options;
mod publisher;
mod seat;
mod seats;
mod status;
mod subscriber;
mod writing;

pub use options::{SubscriberOptions, TopicOptions, WhenBehind};
pub use publisher::Publisher;
pub use seats::SubscriberSeen;
pub use status::PublisherStatus;
pub use subscriber::{Subscriber, SubscriberStatus};
pub use tranship_readers::Payload as Publish;

use tranship_core::{Domain, Error};

/// The topics of a domain.
pub trait Topics {
    /// Publishes a topic at an address, with the default [`TopicOptions`]: `NAME` (or `shm:NAME`) for all domains of the manager, this one included,
    /// or `local:NAME` for the domains of this process.
    ///
    /// Waits for the manager as [`Domain::create_pool`] does.
    ///
    /// # Errors
    /// `NameTaken` if a channel or another topic has the name; `Access`, `Limit`, `Quota` by the manager; `BadArgument`
    /// for an invalid name; `InvalidEndpoint` for another scheme; `TimedOut`, `ManagerAway`, `CutOff`; `Forked`;
    /// `System`.
    fn publish(&self, name: &str) -> Result<Publisher, Error>;

    /// Publishes a topic, with options.
    ///
    /// # Errors
    /// As [`publish`](Topics::publish), and `BadArgument` for options outside their range.
    fn publish_with(&self, name: &str, options: TopicOptions) -> Result<Publisher, Error>;

    /// Subscribes to a topic, with the default [`SubscriberOptions`]. Returns at once. The subscriber joins the topic
    /// in the first `recv` or `try_recv`.
    ///
    /// # Errors
    /// `BadArgument` for an invalid name; `InvalidEndpoint` for a scheme that [`publish`](Topics::publish) does not
    /// take; `Forked`; `System`. If the publisher is in this process already, also the errors of the first `recv`:
    /// `ChannelBind` for another type, `BadArgument` for a queue's name.
    fn subscribe(&self, name: &str) -> Result<Subscriber, Error>;

    /// Subscribes to a topic, with options.
    ///
    /// # Errors
    /// As [`subscribe`](Topics::subscribe).
    fn subscribe_with(&self, name: &str, options: SubscriberOptions) -> Result<Subscriber, Error>;
}

impl Topics for Domain {
    fn publish(&self, name: &str) -> Result<Publisher, Error> {
        self.publish_with(name, TopicOptions::default())
    }

    fn publish_with(&self, name: &str, options: TopicOptions) -> Result<Publisher, Error> {
        Publisher::new(self, name, options)
    }

    fn subscribe(&self, name: &str) -> Result<Subscriber, Error> {
        self.subscribe_with(name, SubscriberOptions::default())
    }

    fn subscribe_with(&self, name: &str, options: SubscriberOptions) -> Result<Subscriber, Error> {
        Subscriber::new(self, name, options)
    }
}
