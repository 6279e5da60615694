//! `local:NAME`: names within this process, for channels between its threads. No manager knows of them.

use super::feed::Feed;
use super::inside::{self, Wish};
use super::open::End;
use super::typing;
use crate::base::checked_name;
use crate::base::{lock, millis};
use crate::domain::DomainCore;
use crate::error::{Awaited, Error, ErrorKind, TimedOut};
use crate::options::ChannelOptions;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tranship_proto::Role;

/// A listener that waits under a name.
struct Offer {
    domain: DomainCore,
    role: Role,
    options: ChannelOptions,
    feed: Arc<Feed>,
}

static NAMES: LazyLock<Mutex<HashMap<String, Arc<Offer>>>> = LazyLock::new(Mutex::default);
static OFFERED: Condvar = Condvar::new();

/// Takes the name back.
pub(crate) struct Guard {
    name: String,
    offer: Arc<Offer>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.offer.domain.fork.is_child() {
            return; // the name may be a listener's of the child by now
        }
        let mut names = lock(&NAMES);
        let ours = |offer: &Arc<Offer>| Arc::ptr_eq(offer, &self.offer);
        let offer = match names.get(&self.name).is_some_and(ours) {
            true => names.remove(&self.name),
            false => None,
        };
        drop(names);
        drop(offer); // not under the lock: ends may wait in it
    }
}

/// Takes a name.
pub(crate) fn listen(
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
    feed: &Arc<Feed>,
) -> Result<Guard, Error> {
    checked_name(name)?;
    domain.check_fork()?;
    let offer = Arc::new(Offer {
        domain: domain.clone(),
        role,
        options: options.clone(),
        feed: Arc::clone(feed),
    });
    let mut names = lock(&NAMES);
    // What a forked child finds is its parent's.
    let taken = names
        .get(name)
        .filter(|offer| !offer.domain.fork.is_child());
    if taken.is_some() {
        let text = format!(
            "`local:{name}` is taken in this process; names are free again when their listener is dropped"
        );
        return Err(Error::new(ErrorKind::NameTaken, text));
    }
    let before = names.insert(name.to_owned(), Arc::clone(&offer));
    drop(names);
    drop(before);
    OFFERED.notify_all();
    Ok(Guard {
        name: name.to_owned(),
        offer,
    })
}

/// Connects to a name; waits until somebody has taken it.
pub(crate) fn open(
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
) -> Result<End, Error> {
    checked_name(name)?;
    domain.check_fork()?;
    let offer = find(name, options.timeout)?;
    if offer.role == role {
        let text = format!(
            "whoever listens at `local:{name}` has that role, too: one sends, one receives"
        );
        return Err(Error::new(ErrorKind::SameRole, text));
    }
    typing::compare_within(options, &offer.options)?;
    let (here, there) = (
        Wish { domain, options },
        Wish {
            domain: &offer.domain,
            options: &offer.options,
        },
    );
    let (own, other) = match role {
        Role::Source => {
            let (sender, receiver) = inside::pair(name, here, there, None)?;
            (End::Source(sender), End::Sink(receiver))
        }
        Role::Sink => {
            let (sender, receiver) = inside::pair(name, there, here, None)?;
            (End::Sink(receiver), End::Source(sender))
        }
    };
    if !offer.feed.put(other) {
        let text = format!("too many wait at `local:{name}` to be accepted");
        return Err(Error::new(ErrorKind::Limit, text));
    }
    offer.domain.tasks.has_news();
    offer.domain.tasks.tell_news();
    Ok(own)
}

fn find(name: &str, timeout: Option<Duration>) -> Result<Arc<Offer>, Error> {
    let started = Instant::now();
    let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
    let mut names = lock(&NAMES);
    loop {
        let found = names
            .get(name)
            .filter(|offer| !offer.domain.fork.is_child());
        if let Some(offer) = found {
            return Ok(Arc::clone(offer));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        names = match left {
            Some(Duration::ZERO) => {
                let (awaited, waited_ms) = (
                    Awaited::Offer(format!("local:{name}")),
                    millis(started.elapsed()),
                );
                return Err(TimedOut { awaited, waited_ms }.into());
            }
            Some(left) => {
                let waited = OFFERED.wait_timeout(names, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => OFFERED.wait(names).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
