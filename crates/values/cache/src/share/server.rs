//! The thread that readers of other processes ask: lets them in, answers, and sees to it that none holds more than its
//! part.

use super::account::Account;
use super::client::{Client, Common};
use super::copies::Copies;
use super::counts::Counts;
use super::options::Share;
use super::wire::LINES;
use crate::store::Store;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tranship_core::{
    ChannelOptions, Error, ErrorKind, Listener, PollItem, PoolOptions, Sender, poll,
};

/// Time between two checks for held values and slow readers.
const TICK: Duration = Duration::from_millis(250);
/// Most new readers that are let in before the present ones have their turn.
const TURN: usize = 16;
/// Time between two checks whether a new reader has the pool, or whether there is memory for an answer.
const NEW: Duration = Duration::from_millis(2);
/// Channels of one domain, which is one reader however many it has.
const CHANNELS: usize = 4;
/// Time between two attempts to get missing memory.
const PAUSE: Duration = Duration::from_millis(25);

/// The server of readers in other processes, while its thread does not run.
#[derive(Debug)]
pub(crate) struct ShareServer {
    share: Share,
    patience: Duration,
    /// Listener; none while the name cannot be had.
    listener: Option<Listener<Sender>>,
    clients: Vec<Client>,
    common: Common,
    looked: Instant,
    /// Error that was reported last.
    said: Option<ErrorKind>,
}

impl ShareServer {
    /// Creates a share server at a name. `patience`: longest time that a reader may take no answers.
    ///
    /// # Errors
    /// If the manager refuses the pool.
    pub(crate) fn new(share: &Share, patience: Duration) -> Result<ShareServer, Error> {
        let options = PoolOptions::new(share.memory).name(&share.name);
        Ok(ShareServer {
            common: Common {
                copies: Copies::new(share.domain.create_pool(options)?),
                accounts: HashMap::new(),
                limits: share.limits(),
            },
            share: share.clone(),
            patience,
            listener: None,
            clients: Vec::new(),
            looked: Instant::now(),
            said: None,
        })
    }

    /// Takes the name. If another server has it, [`ShareServer::run`] takes it when that server releases it.
    ///
    /// # Errors
    /// If it cannot be had.
    pub(crate) fn listen(&mut self) -> Result<(), Error> {
        if self.listener.is_none() {
            let options = ChannelOptions::new().lines(LINES);
            let domain = &self.share.domain;
            self.listener = Some(domain.listen_with::<Sender>(&self.share.name, options)?);
        }
        Ok(())
    }

    /// Works until it is told to stop, by a flag and a descriptor that can be read then; could go on after that.
    pub(crate) fn run(
        mut self,
        store: &Store,
        counts: &Counts,
        stop: &AtomicBool,
        doorbell: &OwnedFd,
    ) -> ShareServer {
        let mut more = false;
        loop {
            let waited = self.wait(if more { Duration::ZERO } else { TICK }, doorbell);
            // Ordering: acquire; partner: the release of the thread that tells it to stop.
            if stop.load(Ordering::Acquire) {
                return self;
            }
            if let Err(error) = waited {
                self.complain(&error);
                std::thread::sleep(PAUSE);
            }
            self.let_in(counts);
            more = self.serve(store, counts);
            if self.looked.elapsed() >= TICK {
                self.look(counts);
            }
        }
    }

    fn wait(&mut self, mut limit: Duration, doorbell: &OwnedFd) -> Result<(), Error> {
        // Connected readers are served all the same.
        if let Err(error) = self.listen() {
            self.complain(&error);
            limit = limit.min(PAUSE);
        }
        // No descriptor reports that a reader has the pool, or that there is memory for an answer.
        let waits = |client: &Client| !client.is_greeted() || client.is_late();
        if self.clients.iter().any(waits) {
            limit = limit.min(NEW);
        }
        // Nothing is read from a client that waits so: an early question of it would make this return at once, again
        // and again.
        let clients = self.clients.iter_mut().filter(|client| !waits(client));
        let clients = clients.map(|client| {
            if client.is_choked() {
                PollItem::sender(&mut client.sender)
            } else {
                PollItem::control(&mut client.sender)
            }
        });
        let mut all: Vec<_> = clients.collect();
        all.extend(self.listener.as_ref().map(PollItem::listener));
        all.push(PollItem::readable(doorbell));
        poll(&mut all, Some(limit)).map(drop)
    }

    fn complain(&mut self, error: &Error) {
        if self.said.replace(error.kind()) != Some(error.kind()) {
            tracing::warn!(%error, name = self.share.name, "values cannot be shown by reference for now");
        }
    }

    fn let_in(&mut self, counts: &Counts) {
        for _ in 0..TURN {
            let Some(listener) = &self.listener else {
                break;
            };
            // Takes the manager's news, and joins the next one when the last has gone.
            let sender = match listener.accept_timeout(Duration::ZERO) {
                Ok(sender) => sender,
                Err(error) if error == ErrorKind::TimedOut => {
                    self.said = None;
                    break;
                }
                Err(error) => {
                    self.complain(&error);
                    break;
                }
            };
            let client = Client::new(sender);
            if !self.has_place(&client) {
                self.look(counts);
            }
            if self.has_place(&client) {
                self.common.accounts.entry(client.domain()).or_default();
                self.clients.push(client);
            } else {
                tracing::warn!(most = self.share.readers, "a reader is refused");
                client.refuse(self.share.readers);
            }
        }
        Counts::set(&counts.readers, self.clients.len() as u64);
    }

    fn has_place(&self, client: &Client) -> bool {
        let (most, accounts) = (self.share.readers, &self.common.accounts);
        let domain = client.domain();
        let channels = self.clients.iter().filter(|g| g.domain() == domain).count();
        channels < CHANNELS && (accounts.contains_key(&domain) || accounts.len() < most)
    }

    fn serve(&mut self, store: &Store, counts: &Counts) -> bool {
        let (common, patience) = (&mut self.common, self.patience);
        let mut more = false;
        self.clients.retain_mut(|client| {
            let turned = client.turn(common, store, counts);
            let stuck = client
                .stuck
                .is_some_and(|since| since.elapsed() >= patience);
            match turned {
                Ok(again) if !stuck => {
                    more |= again;
                    return true;
                }
                Ok(_) => tracing::warn!(?patience, "a reader that took no answers is sent away"),
                Err(error) if matches!(error.kind(), ErrorKind::PeerGone | ErrorKind::PeerDied) => {
                    return false;
                }
                Err(error) => tracing::warn!(%error, "a reader is sent away"),
            }
            Counts::bump(&counts.expelled, 1);
            false
        });
        more
    }

    /// Checks which readers have released which values, and which values are stored no more.
    fn look(&mut self, counts: &Counts) {
        self.looked = Instant::now();
        self.clients
            .retain_mut(|client| !client.sender.status().peer_gone);
        for (domain, account) in &mut self.common.accounts {
            account.look(*domain);
        }
        self.forget();
        self.common.copies.tidy(counts);
        Counts::set(&counts.readers, self.clients.len() as u64);
    }

    /// Removes readers that are gone and hold nothing.
    fn forget(&mut self) {
        let clients = &self.clients;
        let here = |domain| clients.iter().any(|client| client.domain() == domain);
        let gone = |domain, account: &Account| account.is_empty() && !here(domain);
        self.common
            .accounts
            .retain(|domain, account| !gone(*domain, account));
    }
}
