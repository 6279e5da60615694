//! Waiting on channels, listeners, domains and foreign descriptors together.

use super::listener::Accepts;
use super::rung::Bell;
use super::shared::LinkShared;
use super::sleep::{LOOK, sleep_on_any};
use super::{ChannelEnd, Listener, Receiver, Sender};
use crate::domain::{DomainCore, POLL_INTERVAL};
use crate::error::{self, Error};
use crate::membership::Domain;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use tranship_ring::{MAX_WORDS, Point, SETTLE, Waker};
use tranship_sys::epoll::{Interest, wait_each};

/// One thing to wait for with [`poll`].
///
/// ```
/// # use tranship_core as tranship;
/// # use tranship_core::{Domain, PoolOptions, Receiver, Sender};
/// use std::io::Write;
/// use tranship::{PollItem, poll};
/// # let domain = Domain::embedded()?;
/// # let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
/// # let listener = domain.listen::<Receiver>("local:video")?;
/// # let mut sender = domain.open::<Sender>("local:video")?;
/// # let mut receiver = listener.accept()?;
///
/// let (mut here, there) = std::os::unix::net::UnixStream::pair()?;
/// here.write_all(b"!")?;
/// sender.send(b"a frame")?;
/// let mut items = [PollItem::receiver(&mut receiver), PollItem::readable(&there)];
/// assert_eq!(poll(&mut items, None)?, [0, 1]); // the places of all that are ready
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PollItem<'a>(What<'a>);

#[derive(Debug)]
enum What<'a> {
    Receiver(&'a mut Receiver),
    Sender(&'a mut Sender),
    Control(&'a mut Sender),
    Listener(&'a Accepts),
    Domain(&'a DomainCore),
    Reader(&'a mut dyn Polled),
    Bell(&'a Bell),
    Descriptor(BorrowedFd<'a>, Interest),
}

/// A topic's or a queue's reader, which sleeps on its domain's descriptor.
#[doc(hidden)]
pub trait Polled: std::fmt::Debug {
    /// Returns the domain.
    fn domain(&self) -> &Domain;
    /// Returns whether a message or an error waits.
    fn has_something(&mut self) -> bool;
    /// Notes that the reader goes to sleep. Returns the longest time of the sleep.
    ///
    /// # Errors
    /// `TimedOut`, `ManagerAway`, `CutOff`, `Limit`, `System` where there is no descriptor; `Forked`.
    fn arm(&mut self) -> Result<Duration, Error>;
    /// Wakes up, and takes the wake-up bytes.
    fn disarm(&mut self);
}

impl<'a> PollItem<'a> {
    pub(crate) fn of_domain(domain: &'a DomainCore) -> PollItem<'a> {
        PollItem(What::Domain(domain))
    }

    /// Makes an item that is ready when there is a message, or the end: `try_recv` says which.
    pub fn receiver(receiver: &'a mut Receiver) -> PollItem<'a> {
        PollItem(What::Receiver(receiver))
    }
    /// Makes an item that is ready when there is room for a message, or the receiver is gone: `try_send` says which.
    pub fn sender(sender: &'a mut Sender) -> PollItem<'a> {
        PollItem(What::Sender(sender))
    }
    /// Makes an item that is ready when the receiver has sent something back, or is gone: `try_recv_back` says which.
    pub fn control(sender: &'a mut Sender) -> PollItem<'a> {
        PollItem(What::Control(sender))
    }
    /// Makes an item that is ready when another domain has connected. That peer may be gone again: use `try_accept`.
    pub fn listener<E: ChannelEnd>(listener: &'a Listener<E>) -> PollItem<'a> {
        PollItem(What::Listener(listener.accepts()))
    }
    /// Makes an item of a reader that sleeps on its domain's descriptor.
    #[doc(hidden)]
    pub fn polled(reader: &'a mut dyn Polled) -> PollItem<'a> {
        PollItem(What::Reader(reader))
    }
    /// Makes an item that is ready while a bell is rung.
    #[doc(hidden)]
    pub fn bell(bell: &'a Bell) -> PollItem<'a> {
        PollItem(What::Bell(bell))
    }
    /// Makes an item that is ready when a descriptor of any kind can be read, hangs up or has an error.
    pub fn readable(fd: &'a impl AsFd) -> PollItem<'a> {
        PollItem(What::Descriptor(fd.as_fd(), Interest::Read))
    }
    /// Makes an item that is ready when a descriptor of any kind can be written, hangs up or has an error.
    pub fn writable(fd: &'a impl AsFd) -> PollItem<'a> {
        PollItem(What::Descriptor(fd.as_fd(), Interest::Write))
    }

    fn link(&self) -> Option<&LinkShared> {
        match &self.0 {
            What::Receiver(receiver) => Some(&receiver.link),
            What::Sender(sender) | What::Control(sender) => Some(&sender.link),
            _ => None,
        }
    }

    fn core(&self) -> Option<&DomainCore> {
        match &self.0 {
            What::Listener(listener) => Some(listener.domain()),
            What::Domain(domain) => Some(domain),
            What::Reader(reader) => Some(reader.domain().core()),
            _ => self.link().map(|link| &link.domain),
        }
    }

    /// Whether messages have been coming by the item.
    fn is_flowing(&self) -> bool {
        matches!(&self.0, What::Receiver(receiver) if receiver.is_flowing())
    }

    fn disarm(&mut self) {
        if let What::Reader(reader) = &mut self.0 {
            reader.disarm();
        }
    }

    /// Whether the item is ready, by shared memory and the manager's news that were taken.
    fn is_ready(&mut self, domains: &[Turned]) -> bool {
        match &mut self.0 {
            What::Sender(sender) => sender.may_send(),
            What::Domain(domain) => {
                let turned = domains.iter().find(|d| d.core.is(domain));
                turned.is_some_and(|d| d.rest || d.core.seen() != d.seen)
            }
            What::Reader(reader) => reader.has_something(),
            _ => self.has_come(),
        }
    }

    /// Whether a message or a connection has come in.
    fn has_come(&self) -> bool {
        match &self.0 {
            What::Receiver(receiver) => receiver.may_have_news(),
            What::Control(sender) => sender.link.may_have_reply(),
            What::Listener(listener) => listener.has_connection(),
            What::Bell(bell) => bell.is_rung(),
            _ => false,
        }
    }

    /// Whether the link's word and the manager's report everything that the item waits for.
    fn is_told_by_words(&self) -> bool {
        match &self.0 {
            What::Receiver(receiver) if receiver.puts_aside() => false,
            What::Receiver(_) | What::Control(_) => {
                self.link().is_some_and(|link| link.driver().is_none())
            }
            What::Listener(listener) => listener.doorbell().is_none(),
            What::Bell(_) => true,
            _ => false,
        }
    }

    /// The items' own word, which is no link's and no domain's.
    fn point(&self) -> Option<Point<'_>> {
        match &self.0 {
            What::Bell(bell) => Some(Point::always(bell.word())),
            _ => None,
        }
    }
}

/// A domain of the items.
struct Turned {
    core: DomainCore,
    /// The manager's word up to which news had been taken when the call began.
    seen: u32,
    /// News remains in its descriptor for the caller to look at. The descriptor is not waited on any more.
    rest: bool,
}

/// A link's sleep: the peer's word, and since when.
type Sleep = Option<(u32, Instant)>;

/// Waits until at least one of these is ready, at most `timeout` (`None`: for ever). Returns the places of all ready
/// items, in order; none when the time is over. Takes the manager's news meanwhile, for every domain of the items.
///
/// Channels and names of one domain are waited for on their futex words. Beside anything else each channel gets a descriptor at
/// its first wait.
///
/// # Errors
/// [`ErrorKind::Forked`](crate::ErrorKind::Forked) for items of the parent;
/// [`ErrorKind::System`](crate::ErrorKind::System) where the kernel cannot wait on a descriptor.
pub fn poll(items: &mut [PollItem<'_>], timeout: Option<Duration>) -> Result<Vec<usize>, Error> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    if let Some((core, links)) = on_words(items) {
        core.check_fork()?;
        return Ok(poll_words(items, core, &links, deadline));
    }
    let mut domains: Vec<Turned> = Vec::new();
    for core in items.iter().filter_map(PollItem::core) {
        core.check_fork()?;
        if !domains.iter().any(|d| d.core.is(core)) {
            domains.push(Turned {
                core: core.clone(),
                seen: core.seen(),
                rest: false,
            });
        }
    }
    let mut sleeps: Vec<Sleep> = vec![None; items.len()];
    let ready = loop {
        match round(items, &mut domains, &mut sleeps, deadline) {
            Ok(ready) if ready.is_empty() && deadline.is_none_or(|d| Instant::now() < d) => {}
            done => break done,
        }
    };
    for item in items {
        item.disarm();
        if let Some(link) = item.link() {
            link.ring.disarm();
            link.ring_for_ourselves();
        }
    }
    ready
}

/// Returns the items' one domain, and their links, if all of them can be waited for on words. That is cheaper than a
/// wait on descriptors.
fn on_words<'a>(items: &'a [PollItem<'_>]) -> Option<(&'a DomainCore, Vec<&'a LinkShared>)> {
    let core = items.first()?.core()?;
    let of_it = |item: &PollItem<'_>| item.core().is_none_or(|other| other.is(core));
    let all = items
        .iter()
        .all(|item| item.is_told_by_words() && of_it(item));
    let links: Vec<_> = items.iter().filter_map(PollItem::link).collect();
    let words = links.len() + items.iter().filter_map(PollItem::point).count();
    (all && words < MAX_WORDS).then_some((core, links))
}

/// Waits as [`poll`] does, on words.
fn poll_words(
    items: &[PollItem<'_>],
    core: &DomainCore,
    links: &[&LinkShared],
    deadline: Option<Instant>,
) -> Vec<usize> {
    let flowing = items.iter().any(PollItem::is_flowing);
    loop {
        if core.has_news() {
            core.turn_quietly();
        }
        let ready = items.iter().enumerate().filter(|(_, item)| item.has_come());
        let ready: Vec<_> = ready.map(|(place, _)| place).collect();
        if !ready.is_empty() || deadline.is_some_and(|d| Instant::now() >= d) {
            return ready;
        }
        let has_come = || items.iter().any(PollItem::has_come);
        let bells: Vec<_> = items.iter().filter_map(PollItem::point).collect();
        sleep_on_any(
            core,
            links,
            &bells,
            Waker::Fences,
            deadline,
            flowing,
            has_come,
        );
    }
}

/// Waits once. Returns the items that are ready after it.
fn round(
    items: &mut [PollItem<'_>],
    domains: &mut [Turned],
    sleeps: &mut [Sleep],
    deadline: Option<Instant>,
) -> Result<Vec<usize>, Error> {
    let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
    let mut limit = left.map_or(LOOK, |left| LOOK.min(left));
    for (item, sleep) in items.iter_mut().zip(sleeps) {
        limit = limit.min(arm(item, sleep)?);
    }
    // The second look: everything that comes from here on shows up on a descriptor.
    if items.iter_mut().any(|item| item.is_ready(domains))
        || domains.iter().any(|d| d.core.has_news())
    {
        limit = Duration::ZERO;
    } else if domains.iter().any(|d| d.rest) {
        limit = limit.min(POLL_INTERVAL);
    }

    let doorbells: Vec<_> = items.iter().map(|i| i.link()?.doorbell_at_hand()).collect();
    let mut fds: Vec<(BorrowedFd<'_>, Interest)> = Vec::new();
    let mut places = Vec::new();
    for (place, (item, doorbell)) in items.iter().zip(&doorbells).enumerate() {
        match (&item.0, doorbell) {
            (What::Descriptor(fd, interest), _) => fds.push((*fd, *interest)),
            (What::Bell(bell), _) => fds.push((bell.as_fd(), Interest::Read)),
            (_, Some(doorbell)) => fds.push((doorbell.as_fd(), Interest::Read)),
            (What::Listener(listener), None) => match listener.doorbell() {
                Some(doorbell) => fds.push((doorbell, Interest::Read)),
                None => continue,
            },
            _ => continue,
        }
        places.push(place);
    }
    let waited_on = domains.iter().filter(|d| !d.rest);
    fds.extend(waited_on.map(|d| (d.core.pollable(), Interest::Read)));
    let told = wait_each(&fds, Some(limit)).map_err(error::system("poll"))?;
    drop(fds);

    let (of_items, of_domains) = told.split_at(places.len());
    let mut readable = vec![false; items.len()];
    for (place, told) in places.into_iter().zip(of_items) {
        readable[place] = *told;
    }
    // The bytes of a reader's descriptor are in its domain's.
    items.iter_mut().for_each(PollItem::disarm);
    let mut of_domains = of_domains.iter();
    for domain in domains.iter_mut() {
        let told = !domain.rest && of_domains.next().is_some_and(|told| *told);
        // News of a domain that is not waited on is taken, too: its peers may wait for that.
        if told || domain.core.has_news() || domain.core.has_left_overs() {
            domain.core.turn_quietly();
            domain.rest = (told || domain.rest) && is_readable(&domain.core);
        }
    }
    for (item, told) in items.iter().zip(&readable) {
        if let (What::Bell(bell), true) = (&item.0, told) {
            bell.hush();
        }
        match item.link() {
            Some(link) if *told => link.answer_doorbell(),
            // A peer that died may have had no time to ring.
            Some(link) if limit > Duration::ZERO => link.look_for_death(),
            _ => {}
        }
    }
    let all = items.iter_mut().zip(readable).enumerate();
    let ready = all.filter_map(|(place, (item, told))| {
        let descriptor = told && matches!(item.0, What::Descriptor(..));
        (descriptor || item.is_ready(domains)).then_some(place)
    });
    Ok(ready.collect())
}

/// Notes that a link sleeps on its descriptor, if it has one. Returns the longest time of the sleep.
fn arm(item: &mut PollItem<'_>, sleep: &mut Sleep) -> Result<Duration, Error> {
    if let What::Reader(reader) = &mut item.0 {
        return match reader.has_something() {
            true => Ok(Duration::ZERO),
            false => reader.arm(),
        };
    }
    let Some(link) = item.link() else {
        return Ok(LOOK);
    };
    link.ring_for_ourselves();
    if !link.has_doorbell() {
        return Ok(POLL_INTERVAL);
    }
    let word = link.ring.arm();
    let same = sleep.filter(|(before, _)| *before == word);
    let (_, since) = *sleep.insert(same.unwrap_or((word, Instant::now())));
    Ok(match &item.0 {
        What::Receiver(receiver) if receiver.puts_aside() => POLL_INTERVAL,
        // The receiver gives lines back without a fence.
        What::Sender(_) if since.elapsed() < SETTLE => SETTLE,
        _ => LOOK,
    })
}

fn is_readable(core: &DomainCore) -> bool {
    wait_each(&[(core.pollable(), Interest::Read)], Some(Duration::ZERO)).is_ok_and(|told| told[0])
}
