//! How a service and its clients come about.
//!
//! A client opens `NAME`, then `NAME/replies`, and says the same number on both. The service joins the two channels that say one number and
//! have one domain at their other end, and welcomes the client. Processes that share a name have an address of replies each.

use crate::client::Client;
use crate::error::is_gone;
use crate::hall::Hall;
use crate::joining::{SILENT, replies, replies_of, said, unwelcome, welcomed};
use crate::options::ServiceOptions;
use crate::service::Service;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tranship_core::topics::Sleep;
use tranship_core::{ChannelOptions, Domain, Error, ErrorKind, Message, Opening, Receiver, Sender};

/// How often a client that waits to be welcomed looks whether the service still lives.
const LOOK: Duration = Duration::from_millis(250);

/// Services of a [`Domain`].
pub trait Services {
    /// Offers a service at an address, `NAME` or `local:NAME`. It takes the names `NAME` and `NAME/replies`; if it is
    /// [shared](ServiceOptions::shared), `NAME` and `NAME/replies/DOMAIN`.
    ///
    /// # Errors
    /// As [`Domain::listen`]: `NameTaken`, `Access` for either name.
    fn serve(&self, address: &str) -> Result<Service, Error> {
        self.serve_with(address, ServiceOptions::new())
    }

    /// Offers a service at an address, with options.
    ///
    /// # Errors
    /// As [`Domain::listen_with`].
    fn serve_with(&self, address: &str, options: ServiceOptions) -> Result<Service, Error>;

    /// Connects to a service at an address. Waits until it is there and takes this client.
    ///
    /// # Errors
    /// As [`Domain::open`]; `Limit`: the service has as many clients of this user as it takes.
    fn client(&self, address: &str) -> Result<Client, Error> {
        self.client_with(address, ServiceOptions::new())
    }

    /// Connects to a service at an address, with options.
    ///
    /// # Errors
    /// As [`client`](Services::client), and `TimedOut` after the options' time: the text says whether a service was there. `ChannelBind` if the two sides' types
    /// differ.
    fn client_with(&self, address: &str, options: ServiceOptions) -> Result<Client, Error>;

    /// Connects to a service at an address, for awaiting in any runtime.
    ///
    /// # Errors
    /// As [`client_with`](Services::client_with).
    fn client_async(
        &self,
        address: &str,
        options: ServiceOptions,
    ) -> impl Future<Output = Result<Client, Error>> + Send;
}

impl Services for Domain {
    fn serve_with(&self, address: &str, options: ServiceOptions) -> Result<Service, Error> {
        let replies = replies(address, options.shared.then(|| self.id()));
        let replies = self.listen_with(&replies, options.replies())?;
        let requests = match options.shared {
            true => options.requests().shared(),
            false => options.requests(),
        };
        let requests = self.listen_with(address, requests)?;
        Service::new(self, |ahead| Hall::new(requests, replies, options, ahead))
    }

    fn client_with(&self, address: &str, options: ServiceOptions) -> Result<Client, Error> {
        let mut joins = Joins::new(self, address, options);
        loop {
            let requests: Sender = self.open_with(address, joins.requests())?;
            let second = self.open_with(&replies_of(address, &requests), joins.replies(&requests));
            let Some(mut ends) = joins.both(requests, second)? else {
                continue;
            };
            while let Some(round) = joins.round(&ends) {
                let came = ends.1.recv_timeout(round);
                if let Some(word) = joins.heard(&ends, came)? {
                    return joins.made(ends, word);
                }
            }
        }
    }

    async fn client_async(&self, address: &str, options: ServiceOptions) -> Result<Client, Error> {
        let mut joins = Joins::new(self, address, options);
        loop {
            let first: Opening<Sender> = self.open_async(address, joins.requests());
            let requests = first.await?;
            let second: Opening<Receiver> =
                self.open_async(&replies_of(address, &requests), joins.replies(&requests));
            let Some(mut ends) = joins.both(requests, second.await)? else {
                continue;
            };
            while let Some(round) = joins.round(&ends) {
                let came = within(self, &mut ends.1, round).await;
                if let Some(word) = joins.heard(&ends, came)? {
                    return joins.made(ends, word);
                }
            }
        }
    }
}

/// Awaits a message, or fails with `TimedOut` after `round`.
async fn within(
    domain: &Domain,
    replies: &mut Receiver,
    round: Duration,
) -> Result<Message, Error> {
    let begun = Instant::now();
    let mut reading = replies.recv_async();
    let mut sleep = Sleep::new(domain);
    poll_fn(|context| {
        if let Poll::Ready(came) = Pin::new(&mut reading).poll(context) {
            return Poll::Ready(came);
        }
        let left = round.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
        }
        sleep.begin(std::iter::empty(), context, left)?;
        Poll::Pending
    })
    .await
}

/// A client in the making.
struct Joins<'a> {
    domain: &'a Domain,
    address: &'a str,
    options: ServiceOptions,
    deadline: Option<Instant>,
    /// When the service had both channels of the present attempt.
    since: Instant,
    /// The present attempt is over: another one begins.
    anew: bool,
}

impl<'a> Joins<'a> {
    fn new(domain: &'a Domain, address: &'a str, options: ServiceOptions) -> Joins<'a> {
        let since = Instant::now();
        Joins {
            domain,
            address,
            deadline: options.timeout.and_then(|time| since.checked_add(time)),
            options,
            since,
            anew: false,
        }
    }

    fn left(&self) -> Option<Duration> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        self.deadline.map(left)
    }

    fn requests(&self) -> ChannelOptions {
        let channel = self.options.requests();
        match self.left() {
            Some(left) => channel.timeout(left),
            None => channel,
        }
    }

    /// The channel of replies of a process that shares its name is not waited for as long as other processes may serve.
    fn replies(&self, requests: &Sender) -> ChannelOptions {
        let channel = self.options.replies();
        let silent = requests.status().peer_shares.then_some(SILENT);
        match [self.left(), silent].into_iter().flatten().min() {
            Some(left) => channel.timeout(left),
            None => channel,
        }
    }

    /// Both channels, which belong together from here on. `None`: another attempt begins.
    fn both(
        &mut self,
        requests: Sender,
        replies: Result<Receiver, Error>,
    ) -> Result<Option<(Sender, Receiver)>, Error> {
        let shares = requests.status().peer_shares;
        let is_over = self.left() == Some(Duration::ZERO);
        let replies = match replies {
            Err(error) if error == ErrorKind::TimedOut && shares && !is_over => return Ok(None),
            replies => replies?,
        };
        (self.since, self.anew) = (Instant::now(), false);
        said(requests, replies)
    }

    /// How long to wait for the welcome before a look whether the service still lives. `None`: another attempt begins.
    fn round(&self, ends: &(Sender, Receiver)) -> Option<Duration> {
        let gives_up = ends.0.status().peer_shares && self.since.elapsed() >= SILENT;
        let round = self.left().map_or(LOOK, |left| left.min(LOOK));
        (!self.anew && !gives_up).then_some(round)
    }

    /// The word of the welcome, if it came.
    fn heard(
        &mut self,
        ends: &(Sender, Receiver),
        came: Result<Message, Error>,
    ) -> Result<Option<u64>, Error> {
        match came {
            Ok(welcome) => return Ok(Some(welcome.word)),
            Err(error) if error == ErrorKind::TimedOut => {
                if self.left() == Some(Duration::ZERO) {
                    return Err(unwelcome(self.address, &ends.0, self.since));
                }
                self.anew = ends.0.status().peer_gone;
            }
            Err(error) if is_gone(&error) => self.anew = true,
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    fn made(self, ends: (Sender, Receiver), word: u64) -> Result<Client, Error> {
        let is_shared = ends.0.status().peer_shares;
        let calls = welcomed(self.domain, self.address, ends, word, &self.options)?;
        Ok(match is_shared {
            true => Client::of_many(self.domain, self.address, self.options, calls),
            false => Client::new(calls),
        })
    }
}
