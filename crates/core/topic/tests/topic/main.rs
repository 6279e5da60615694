//! Publishers and subscribers of one process, each in a domain of its own.
//!
//! | file | what is tested |
//! |---|---|
//! | `messages` | what is published, and what of it is received |
//! | `memory` | buffers that subscribers keep, and memory that comes back |
//! | `reliable` | subscribers that hold a publisher back, and are named |
//! | `ends` | publishers and subscribers that come and go |
//! | `waiting` | sleeping, awaiting, and the helper thread |

mod ends;
mod memory;
mod messages;
mod reliable;
mod waiting;

use tranship_core::error::{Limit, Shortage};
use tranship_core::{Body, Buffer, Domain, Error, Message};
use tranship_testkit::block_on;
use tranship_topic::{Publisher, Subscriber, SubscriberOptions, TopicOptions, Topics};
/// A domain with a manager, and a way to join it.
struct World {
    here: Domain,
}

impl World {
    fn new() -> World {
        let here = Domain::embedded().expect("a domain");
        World { here }
    }

    fn join(&self) -> Domain {
        let socket = self.here.socket_path().expect("a socket");
        Domain::builder().socket(socket).connect().expect("join")
    }

    /// A publisher, and a subscriber that has joined.
    fn both(&self, options: TopicOptions) -> (Publisher, Subscriber) {
        let mut publisher = self.here.publish_with("camera", options).expect("publish");
        let subscriber = self.subscribe(&mut publisher, SubscriberOptions::new());
        (publisher, subscriber)
    }

    fn subscribe(&self, publisher: &mut Publisher, options: SubscriberOptions) -> Subscriber {
        let (subscriber, early) = self.subscribe_late(publisher, options);
        assert!(early.is_empty(), "nothing yet");
        subscriber
    }

    /// A subscriber that has joined, and the words that it received meanwhile.
    fn subscribe_late(
        &self,
        publisher: &mut Publisher,
        options: SubscriberOptions,
    ) -> (Subscriber, Vec<u64>) {
        let before = publisher.subscribers();
        let mut subscriber = self
            .join()
            .subscribe_with("camera", options)
            .expect("subscribe");
        let mut words = Vec::new();
        // It connects, says what it wishes, and is let begin. The publisher is heard by the channel, and its pool is
        // announced by the manager: either may come first.
        while publisher.subscribers() == before || !subscriber.status().joined {
            let message = subscriber.try_recv().expect("no error");
            words.extend(message.map(|message| message.word));
            publisher.tend().expect("tend");
        }
        (subscriber, words)
    }
}

/// Returns whether memory is there once the manager has answered: on a busy machine it takes its time.
fn is_late(error: &Error) -> bool {
    let shortage = error.find::<Shortage>();
    shortage.is_some_and(|shortage| shortage.limit == Limit::Late)
}

fn frame(publisher: &mut Publisher, bytes: &[u8]) -> Buffer {
    let mut frame = publisher.alloc(bytes.len()).expect("a buffer");
    frame.copy_from_slice(bytes);
    frame.freeze()
}

fn buffer(message: Message) -> Buffer {
    match message.body {
        Body::Buffer(buffer) => buffer,
        other => panic!("not a buffer: {other:?}"),
    }
}
