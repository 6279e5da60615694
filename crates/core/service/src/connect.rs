//! How a service and its clients come about.
//!
//! A client opens `NAME`, then `NAME/replies`, and says the same number on both. The service joins the two channels that say one number and
//! have one domain at their other end, and welcomes the client.

use crate::client::Client;
use crate::error::is_gone;
use crate::hall::Hall;
use crate::options::ServiceOptions;
use crate::service::Service;
use crate::word::WELCOME;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tranship_core::{ChannelOptions, Domain, Error, ErrorKind, Opening, Receiver, Sender};

/// The address of the replies, as that of the requests.
pub(crate) fn replies(address: &str) -> String {
    format!("{address}/replies")
}

/// How often a client that waits to be welcomed looks whether the service still lives.
const LOOK: Duration = Duration::from_millis(250);

/// Services of a [`Domain`].
pub trait Services {
    /// Offers a service at an address, `NAME` or `local:NAME`. It takes the names `NAME` and `NAME/replies`.
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
    /// As [`client`](Services::client), and `TimedOut` after the options' time; `ChannelBind` if the two sides' types differ.
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
        let requests = self.listen_with(address, options.requests())?;
        let replies = self.listen_with(&replies(address), options.replies())?;
        Ok(Service::new(|ahead| {
            Hall::new(requests, replies, options, ahead)
        }))
    }

    fn client_with(&self, address: &str, options: ServiceOptions) -> Result<Client, Error> {
        let deadline = options.timeout.and_then(|t| Instant::now().checked_add(t));
        let left = || deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let within = |channel: ChannelOptions| match left() {
            Some(left) => channel.timeout(left),
            None => channel,
        };
        loop {
            let requests: Sender = self.open_with(address, within(options.requests()))?;
            let second: Result<Receiver, Error> =
                self.open_with(&replies(address), within(options.replies()));
            let Some(mut ends) = said(requests, second?)? else {
                continue;
            };
            loop {
                let round = left().map_or(LOOK, |left| left.min(LOOK));
                match ends.1.recv_timeout(round) {
                    Ok(welcome) => return welcomed(address, ends, welcome.word, &options),
                    Err(error) if error == ErrorKind::TimedOut => match left() {
                        Some(Duration::ZERO) => return Err(error),
                        _ if ends.0.status().peer_gone => break,
                        _ => {}
                    },
                    Err(error) if is_gone(&error) => break,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn client_async(&self, address: &str, options: ServiceOptions) -> Result<Client, Error> {
        let deadline = options.timeout.and_then(|t| Instant::now().checked_add(t));
        let within = |channel: ChannelOptions| match deadline {
            Some(at) => channel.timeout(at.saturating_duration_since(Instant::now())),
            None => channel,
        };
        loop {
            let first: Opening<Sender> = self.open_async(address, within(options.requests()));
            let requests = first.await?;
            let second: Opening<Receiver> =
                self.open_async(&replies(address), within(options.replies()));
            let Some(mut ends) = said(requests, second.await?)? else {
                continue;
            };
            match ends.1.recv_async().await {
                Ok(welcome) => return welcomed(address, ends, welcome.word, &options),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Says on both channels that they belong together. `None`: another service has come meanwhile, and has one of them.
fn said(mut requests: Sender, mut replies: Receiver) -> Result<Option<(Sender, Receiver)>, Error> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if requests.status().peer != replies.status().peer {
        return Ok(None);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let said = requests.send((b"", number)).map(drop).map_err(Error::from);
    let said = said.and_then(|()| Ok(replies.send_back((b"", number))?));
    match said {
        Ok(()) => Ok(Some((requests, replies))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn welcomed(
    address: &str,
    (requests, replies): (Sender, Receiver),
    word: u64,
    options: &ServiceOptions,
) -> Result<Client, Error> {
    if word == WELCOME {
        return Ok(Client::new(address, requests, replies, options));
    }
    let text = format!(
        "service `{address}` takes at most {word} clients of one user: close some, or raise ServiceOptions::clients_per_user"
    );
    Err(Error::new(ErrorKind::Limit, text))
}
