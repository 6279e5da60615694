//! A subscription of a command's, and why nothing comes by it.

use crate::args::topic::SubscribeArgs;
use crate::commands::{connect, readers};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tranship::topic::{Subscriber, SubscriberOptions, Topics as _};
use tranship::{Domain, Error, ErrorKind, Message};
use tranship_proto::{NameKind, shown};

/// How often a command that waits for its publisher looks how long it has waited.
const LOOK: Duration = Duration::from_millis(50);
/// Time after which a command that waits says so.
const SOON: Duration = Duration::from_secs(2);

/// A subscription.
pub(super) struct Subscribed {
    domain: Domain,
    subscriber: Subscriber,
    name: String,
}

impl Subscribed {
    /// Subscribes, and waits until a publisher has taken the subscriber in.
    pub fn new(args: &SubscribeArgs) -> Result<Subscribed> {
        let domain = connect::take_part(&args.connect, "tranship-topic")?;
        let name = args.topic.name.clone();
        let options = SubscriberOptions::new().wait(tranship::Wait::Sleep);
        let subscriber = domain.subscribe_with(&name, options)?;
        Ok(Subscribed {
            domain,
            subscriber,
            name,
        })
    }

    /// Waits until a publisher has taken the subscriber in. A message that came with it is returned.
    pub fn join(&mut self, limit: Option<Duration>) -> Result<Option<Message>> {
        let (begun, mut said) = (Instant::now(), false);
        loop {
            match self.subscriber.recv_timeout(LOOK) {
                Ok(message) => return Ok(Some(message)),
                Err(error) if error == ErrorKind::TimedOut => {}
                // This is the end of the publisher before the present one.
                Err(error) if error == ErrorKind::PeerGone => {}
                Err(error) => return Err(error).with_context(|| self.under()),
            }
            if self.subscriber.status().joined {
                return Ok(None);
            }
            if limit.is_some_and(|limit| begun.elapsed() >= limit) {
                return Err(self.why(begun).into());
            }
            if !said && begun.elapsed() >= SOON {
                eprintln!("tranship: waiting: {}", shown(&self.why(begun).to_string()));
                said = true;
            }
        }
    }

    /// Receives the next message by then. None: there was none.
    ///
    /// # Errors
    /// As [`Subscriber::recv`].
    pub fn next(&mut self, until: Option<Instant>) -> Result<Option<Message>, Error> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            None => self.subscriber.recv().map(Some),
            Some(left) => match self.subscriber.recv_timeout(left) {
                Err(error) if error == ErrorKind::TimedOut => Ok(None),
                came => came.map(Some),
            },
        }
    }

    pub fn missed(&self) -> u64 {
        self.subscriber.missed()
    }

    /// Returns what was being done, for the context of errors.
    pub fn under(&self) -> String {
        format!("receiving from topic `{}`", self.name)
    }

    /// Returns why no publisher has taken the subscriber in.
    fn why(&self, begun: Instant) -> Error {
        let waited_ms = begun.elapsed().as_millis();
        let records = match self.domain.admin().stat() {
            Ok(records) => records,
            Err(error) => return error,
        };
        let all = readers::named(&records, NameKind::Topic);
        let mut named = all.iter().filter(|topic| topic.name == self.name);
        let Some(publisher) = named.find_map(|topic| topic.offered_by.first()) else {
            let absent = readers::no_topic(&records, &self.name);
            let text = format!("{absent}; waited {waited_ms} ms");
            return Error::because(ErrorKind::TimedOut, text, absent);
        };
        let text = format!(
            "the publisher of topic `{}`, {} (process {}), has not taken this subscriber in for {waited_ms} ms: its process may be stopped, or busy in a call",
            self.name, publisher.label, publisher.pid
        );
        Error::new(ErrorKind::TimedOut, text)
    }
}
