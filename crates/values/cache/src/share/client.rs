//! A connected reader, as the share server sees it.

use super::account::Account;
use super::copies::Copies;
use super::counts::Counts;
use super::wire::{Asked, Limits, Refused, Say, TAIL, VERSION};
use crate::store::Store;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tranship_core::{Body, Buffer, DomainId, Error, ErrorKind, Pool, Sender, error};

/// Questions before others have their turn.
const TURN: usize = 64;

/// Longest time that a question waits for memory from a slow manager.
const LATE: Duration = Duration::from_secs(10);

/// State that all readers share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) copies: Copies,
    /// Accounts of all domains that hold something or are connected.
    pub(super) accounts: HashMap<DomainId, Account>,
    pub(super) limits: Limits,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) sender: Sender,
    domain: DomainId,
    asked: Asked,
    greeted: bool,
    /// Output for which there was no room.
    waits: Option<Out>,
    /// Time since when its last question waits for memory.
    late: Option<Instant>,
    /// Time since when it has not taken its answers, or not accepted the pool.
    pub(super) stuck: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Out {
    say: Say,
    copy: Option<Buffer>,
}

impl Client {
    pub(super) fn new(sender: Sender) -> Client {
        Client {
            domain: sender.status().peer,
            sender,
            asked: Asked::default(),
            greeted: false,
            waits: None,
            late: None,
            stuck: Some(Instant::now()),
        }
    }

    pub(super) fn domain(&self) -> DomainId {
        self.domain
    }

    /// Returns whether it has been shown the pool.
    pub(super) fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Returns whether the client waits for room in its ring, and not for questions.
    pub(super) fn is_choked(&self) -> bool {
        self.waits.is_some()
    }

    /// Returns whether the client waits for the manager.
    pub(super) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Answers its questions; true if there may be more.
    pub(super) fn turn(
        &mut self,
        common: &mut Common,
        store: &Store,
        counts: &Counts,
    ) -> Result<bool, Error> {
        if !self.greet(common.copies.pool(), common.limits)? {
            return Ok(false);
        }
        if let Some(out) = self.waits.take() {
            let out = self.admit_again(out, common, counts);
            if !self.send(out)? {
                return Ok(false);
            }
        }
        if self.late.is_some() && !self.reply(common, store, counts)? {
            return Ok(false);
        }
        for _ in 0..TURN {
            let Some(message) = self.sender.try_recv_back()? else {
                return Ok(false);
            };
            let Body::Inline(piece) = message.body else {
                return Err(Error::new(
                    ErrorKind::PeerViolation,
                    "a question with a buffer",
                ));
            };
            let whole = self.asked.take(&piece, message.word);
            if !whole.map_err(error::of_kind(ErrorKind::PeerViolation))? {
                continue;
            }
            Counts::bump(&counts.gets, 1);
            if !self.reply(common, store, counts)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Answers the question that it has asked; false if the answer waits for something.
    fn reply(
        &mut self,
        common: &mut Common,
        store: &Store,
        counts: &Counts,
    ) -> Result<bool, Error> {
        let found = self.find(common, store, counts);
        if let Err(Refused::Late { .. }) = found
            && self.late.get_or_insert_with(Instant::now).elapsed() < LATE
        {
            return Ok(false);
        }
        self.late = None;
        self.asked.clear();
        self.send(Self::answer(found, counts))
    }

    /// Shows it the pool, and sends its limits.
    fn greet(&mut self, pool: &Pool, limits: Limits) -> Result<bool, Error> {
        if !self.greeted && self.sender.try_assign(pool)? {
            self.greeted = true;
            self.stuck = None;
            let say = Say::Hello(VERSION, limits);
            return self.send(Out { say, copy: None });
        }
        Ok(self.greeted)
    }

    fn answer(found: Result<Out, Refused>, counts: &Counts) -> Out {
        match found {
            Ok(out) => {
                Counts::bump(&counts.hits, u64::from(out.copy.is_some()));
                out
            }
            Err(refused) => {
                Counts::bump(&counts.refused, 1);
                let say = Say::Refused(refused);
                Out { say, copy: None }
            }
        }
    }

    /// Admits a waiting answer again: nothing held it while it waited, so a check in between has taken it off the
    /// account.
    fn admit_again(&self, out: Out, common: &mut Common, counts: &Counts) -> Out {
        let Some(copy) = &out.copy else {
            return out;
        };
        let account = common.accounts.entry(self.domain).or_default();
        match account.admit(self.domain, copy, &common.limits, Instant::now()) {
            Ok(()) => out,
            Err(refused) => {
                Counts::bump(&counts.refused, 1);
                let say = Say::Refused(refused);
                Out { say, copy: None }
            }
        }
    }

    fn find(&self, common: &mut Common, store: &Store, counts: &Counts) -> Result<Out, Refused> {
        let key = self.asked.key();
        let Some(item) = store.get(key, None) else {
            let say = Say::Miss;
            return Ok(Out { say, copy: None });
        };
        let Common {
            copies,
            accounts,
            limits,
        } = common;
        let account = accounts.entry(self.domain).or_default();
        // Before it costs a copy.
        account.fits((item.value.len() + TAIL) as u64, limits)?;
        let look = || {
            accounts
                .iter_mut()
                .for_each(|(domain, account)| account.look(*domain))
        };
        let copy = copies.show(key, &item, counts, look)?;
        let account = accounts.entry(self.domain).or_default();
        account.admit(self.domain, &copy, limits, Instant::now())?;
        let ttl = u32::try_from(item.ttl).ok();
        Ok(Out {
            say: Say::Hit(ttl),
            copy: Some(copy),
        })
    }

    /// Sends an answer. False if there is no room for it yet: then it waits.
    fn send(&mut self, out: Out) -> Result<bool, Error> {
        let (word, bytes) = out.say.encode();
        let sent = match &out.copy {
            Some(copy) => {
                let sent = self.sender.try_send((copy.clone(), word));
                sent.map_err(|not| not.error)
            }
            None => self
                .sender
                .try_send((&bytes[..], word))
                .map_err(|not| not.error),
        };
        match sent {
            Ok(_) => {
                self.stuck = None;
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::PoolPending) => {
                self.waits = Some(out);
                self.stuck = self.stuck.or_else(|| Some(Instant::now()));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Says why it is not let in.
    pub(super) fn refuse(mut self, most: usize) {
        let most = most as u64;
        let (word, bytes) = Say::Refused(Refused::Readers { most }).encode();
        // If it is gone, no client asks.
        let _ = self.sender.try_send((&bytes[..], word));
    }
}
