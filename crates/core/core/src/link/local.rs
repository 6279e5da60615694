//! Names within this process, for channels between its threads. No manager knows of them.
//!
//! | a name is | found by |
//! |---|---|
//! | `local:NAME` | all domains of this process. Writers of a topic or a queue may share it, one of each domain |
//! | a topic's or a queue's plain name | the domain that has it; other domains find it at the manager |

use super::beside::Beside;
use super::feed::Feed;
use super::inside::{self, Wish};
use super::open::End;
use super::typing;
use crate::base::checked_name;
use crate::base::lock;
use crate::domain::DomainCore;
use crate::error::{self, Awaited, Error, ErrorKind, TimedOut};
use crate::options::ChannelOptions;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tranship_proto::{DomainId, Refusal, Role};
use tranship_sys::futex;

/// The domains that find a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Within {
    /// All of this process.
    Process,
    /// The domain that has the name.
    Domain,
}

/// A listener that waits under a name.
struct Offer {
    domain: DomainCore,
    within: Within,
    role: Role,
    options: ChannelOptions,
    feed: Arc<Feed>,
}

impl Offer {
    /// Says whether writers of other domains may have the name too.
    fn is_shared(&self) -> bool {
        let beside = self.options.beside.as_ref();
        beside.is_some_and(|beside| beside.is_topic() && beside.is_shared())
    }

    /// Says whether two offers may have one name.
    fn shares_with(&self, other: &Offer) -> bool {
        let kind = |offer: &Offer| Beside::kind(offer.options.beside.as_ref());
        let both = self.is_shared() && other.is_shared() && kind(self) == kind(other);
        both && !self.domain.is(&other.domain)
    }

    /// Whether a domain that looks for the name finds it.
    fn is_for(&self, domain: &DomainCore, within: Within) -> bool {
        // A forked child would find its parent's offers.
        self.within == within
            && (within == Within::Process || self.domain.is(domain))
            && !self.domain.fork.is_child()
    }
}

/// The offers of each name.
#[derive(Default)]
struct Names(HashMap<String, Vec<Arc<Offer>>>);

impl Names {
    /// Returns the offers of a name that a domain finds.
    fn of<'a>(
        &'a self,
        name: &str,
        domain: &'a DomainCore,
        within: Within,
    ) -> impl Iterator<Item = &'a Arc<Offer>> {
        let offers = self.0.get(name).into_iter().flatten();
        offers.filter(move |offer| offer.is_for(domain, within))
    }

    /// Takes out the unwanted offers of a name, to be dropped without the lock.
    fn take_out(&mut self, name: &str, unwanted: impl Fn(&Offer) -> bool) -> Vec<Arc<Offer>> {
        let Some(offers) = self.0.get_mut(name) else {
            return Vec::new();
        };
        let out = offers.extract_if(.., |offer| unwanted(offer)).collect();
        if offers.is_empty() {
            self.0.remove(name);
        }
        out
    }
}

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);
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
        let ours = |offer: &Offer| std::ptr::eq(offer, &*self.offer);
        let offer = lock(&NAMES).take_out(&self.name, ours);
        drop(offer); // not under the lock: ends may wait in it
    }
}

/// Takes a name.
pub(crate) fn listen(
    domain: &DomainCore,
    (name, within): (&str, Within),
    role: Role,
    options: &ChannelOptions,
    feed: &Arc<Feed>,
) -> Result<Guard, Error> {
    checked_name(name)?;
    domain.check_fork()?;
    let offer = Arc::new(Offer {
        domain: domain.clone(),
        within,
        role,
        options: options.clone(),
        feed: Arc::clone(feed),
    });
    let mut names = lock(&NAMES);
    if !names
        .of(name, domain, within)
        .all(|other| offer.shares_with(other))
    {
        let text = format!(
            "`local:{name}` is taken in this process; names are free again when their listener is dropped"
        );
        return Err(Error::new(ErrorKind::NameTaken, text));
    }
    let before = names.take_out(name, |offer| offer.domain.fork.is_child());
    let offers = names.0.entry(name.to_owned()).or_default();
    offers.push(Arc::clone(&offer));
    drop(names);
    drop(before);
    OFFERED.notify_all();
    stir(domain);
    Ok(Guard {
        name: name.to_owned(),
        offer,
    })
}

/// Makes the domain's threads and tasks that wait for news look again.
fn stir(domain: &DomainCore) {
    domain.tasks.has_news();
    domain.tasks.tell_news();
    let _ = futex::wake_some(domain.wake_word());
}

/// Connects to a name. Waits until a listener has taken it.
pub(crate) fn open(
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
) -> Result<End, Error> {
    checked_name(name)?;
    domain.check_fork()?;
    let offer = find(domain, name, options.timeout)?;
    join(&offer, domain, name, role, options)
}

/// Connects to a name, if a listener has taken it whose domain is none of `have`. Does not wait.
pub(crate) fn try_open(
    domain: &DomainCore,
    (name, within): (&str, Within),
    (role, have): (Role, &[DomainId]),
    options: impl FnOnce() -> Result<ChannelOptions, Error>,
) -> Result<Option<End>, Error> {
    let is_new = |offer: &&Arc<Offer>| !have.contains(&offer.domain.id());
    let offer = lock(&NAMES).of(name, domain, within).find(is_new).cloned();
    match offer {
        Some(offer) => join(&offer, domain, name, role, &options()?).map(Some),
        None => Ok(None),
    }
}

fn join(
    offer: &Offer,
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
) -> Result<End, Error> {
    let kind = Beside::kind(offer.options.beside.as_ref());
    if Beside::kind(options.beside.as_ref()) != kind {
        return Err(error::refused(Refusal::other_kind(kind)));
    }
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
    stir(&offer.domain);
    Ok(own)
}

fn find(domain: &DomainCore, name: &str, timeout: Option<Duration>) -> Result<Arc<Offer>, Error> {
    let started = Instant::now();
    let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
    let mut names = lock(&NAMES);
    loop {
        if let Some(found) = names.of(name, domain, Within::Process).next() {
            return Ok(Arc::clone(found));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        names = match left {
            Some(Duration::ZERO) => {
                let awaited = Awaited::Offer(format!("local:{name}"));
                return Err(TimedOut::since(started, awaited).into());
            }
            Some(left) => {
                let waited = OFFERED.wait_timeout(names, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => OFFERED.wait(names).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
