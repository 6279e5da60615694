//! The steps from a name to a client's two channels.

use crate::calls::Calls;
use crate::error::is_gone;
use crate::options::ServiceOptions;
use crate::word::WELCOME;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tranship_core::{Domain, DomainId, Error, ErrorKind, Opening, Receiver, Sender};

/// The time that a process of several may take to welcome a client that has both its channels. Then others have their turn.
pub(crate) const SILENT: Duration = Duration::from_secs(1);

/// The address of the replies: that of the requests, and the domain where several serve it.
pub(crate) fn replies(address: &str, shared_by: Option<DomainId>) -> String {
    match shared_by {
        Some(domain) => format!("{address}/replies/{domain}"),
        None => format!("{address}/replies"),
    }
}

/// The address of the replies of the service that has the other end.
pub(crate) fn replies_of(address: &str, requests: &Sender) -> String {
    let status = requests.status();
    replies(address, status.peer_shares.then_some(status.peer))
}

/// Says on both channels that they belong together. `None`: another service has come meanwhile, and has one of them.
pub(crate) fn said(
    mut requests: Sender,
    mut replies: Receiver,
) -> Result<Option<(Sender, Receiver)>, Error> {
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

/// The error of a service that has both channels of a client, and has not welcomed it.
pub(crate) fn unwelcome(address: &str, requests: &Sender, since: Instant) -> Error {
    let status = requests.status();
    let text = format!(
        "service `{address}` (domain {}, process {}) has both channels of this client, and has not welcomed it in {} ms: its workers are busy or stopped, or it is no service",
        status.peer,
        status.peer_pid,
        since.elapsed().as_millis()
    );
    Error::new(ErrorKind::TimedOut, text)
}

pub(crate) fn welcomed(
    domain: &Domain,
    address: &str,
    ends: (Sender, Receiver),
    word: u64,
    options: &ServiceOptions,
) -> Result<Calls, Error> {
    if word == WELCOME {
        return Ok(Calls::new(domain, address, ends, options));
    }
    let text = format!(
        "service `{address}` takes at most {word} clients of one user: close some, or raise ServiceOptions::clients_per_user"
    );
    Err(Error::new(ErrorKind::Limit, text))
}

/// A connection that is being made, beside others, to a further process that serves a name.
#[derive(Debug)]
pub(crate) enum Joining {
    Requests(Opening<Sender>),
    Replies(Box<Sender>, Opening<Receiver>, Instant),
    Welcome(Box<(Sender, Receiver)>, Instant),
}

impl Joining {
    /// Asks for a process whose domain is none of `have`.
    pub(crate) fn begin(
        domain: &Domain,
        address: &str,
        options: &ServiceOptions,
        have: &[DomainId],
    ) -> Joining {
        Joining::Requests(domain.open_async(address, options.requests().besides(have)))
    }

    /// The process that has taken a channel of this client.
    pub(crate) fn with(&self) -> Option<DomainId> {
        let requests = match self {
            Joining::Requests(_) => return None,
            Joining::Replies(requests, ..) => requests,
            Joining::Welcome(ends, _) => &ends.0,
        };
        Some(requests.status().peer)
    }

    /// Does what can be done without waiting: the connection, or the rest of the way.
    pub(crate) fn step(
        self,
        domain: &Domain,
        address: &str,
        options: &ServiceOptions,
    ) -> Result<Result<Calls, Joining>, Error> {
        match self {
            Joining::Requests(mut opening) => {
                let Some(requests) = opening.try_open()? else {
                    return Ok(Err(Joining::Requests(opening)));
                };
                let replies = replies_of(address, &requests);
                let opening = domain.open_async(&replies, options.replies());
                let now = Instant::now();
                Joining::Replies(Box::new(requests), opening, now).step(domain, address, options)
            }
            Joining::Replies(requests, mut opening, since) => match opening.try_open()? {
                Some(replies) => match said(*requests, replies)? {
                    Some(ends) => Ok(Err(Joining::Welcome(Box::new(ends), Instant::now()))),
                    None => Err(ErrorKind::PeerGone.into()),
                },
                None => {
                    wanted(address, &requests, since)?;
                    Ok(Err(Joining::Replies(requests, opening, since)))
                }
            },
            Joining::Welcome(mut ends, since) => match ends.1.try_recv()? {
                Some(welcome) => welcomed(domain, address, *ends, welcome.word, options).map(Ok),
                None => {
                    wanted(address, &ends.0, since)?;
                    Ok(Err(Joining::Welcome(ends, since)))
                }
            },
        }
    }
}

/// Fails if a process that has to answer is gone, or has taken too long.
fn wanted(address: &str, requests: &Sender, since: Instant) -> Result<(), Error> {
    if requests.status().peer_gone {
        return Err(ErrorKind::PeerGone.into());
    }
    match since.elapsed() < SILENT {
        true => Ok(()),
        false => Err(unwelcome(address, requests, since)),
    }
}
