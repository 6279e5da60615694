//! Making a link: each side makes its own half, shows it, and maps the other's.

use super::beside;
use super::{Receiver, Sender, shared::LinkShared, typing};
use crate::base::checked_name;
use crate::domain::{Asked, DomainCore, EventWithFds};
use crate::error::{self, Awaited, Error, ErrorKind, OutOfRange, TimedOut};
use crate::options::ChannelOptions;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranship_proto::{ChannelId, Event, Refusal, RefusalCode, Request, Role};
use tranship_ring::{Ending, HalfRo, HalfRw, Lines, MAX_TYPE_BYTES, Side};

/// Time that the manager has to say whether a domain listens. After it the manager counts as silent.
const ANSWER: Duration = Duration::from_secs(1);

/// A connection that this domain accepts and the manager has still to confirm.
#[derive(Debug)]
pub(super) struct Accepting {
    link: Arc<LinkShared>,
    asked: Asked,
    /// Error of a message type that does not fit. The connection is made all the same, so that the other end finds it
    /// out, too.
    unfit: Option<Error>,
}

/// A connection to a name for which a caller waits.
pub(super) struct NamedOpening {
    domain: DomainCore,
    name: String,
    role: Role,
    options: ChannelOptions,
    begun: Instant,
    deadline: Option<Instant>,
    /// The present request. None: the manager is away, or has just come back, or the request's listener has gone.
    asking: Option<Asking>,
    /// Since when the manager has been told that the time is over.
    ended: Option<Instant>,
}

/// The request to the manager, and the half that it was shown.
struct Asking {
    half: (OwnedFd, HalfRw),
    asked: Asked,
}

/// One end of a link, of either role.
#[derive(Debug)]
#[doc(hidden)]
pub enum End {
    /// The end that sends.
    Source(Sender),
    /// The end that receives.
    Sink(Receiver),
}

/// Checks that a channel can be made with these options: when they are given, not when a peer connects.
pub(crate) fn check(options: &ChannelOptions) -> Result<(), Error> {
    checked_lines(options.lines)?;
    let described = options.message_type.as_ref().map_or(0, |text| text.len());
    if described > MAX_TYPE_BYTES {
        return Err(OutOfRange {
            what: "bytes of the text of the message type (ChannelOptions::message_type)",
            value: described as u64,
            min: 1,
            max: MAX_TYPE_BYTES as u64,
        }
        .into());
    }
    if let Some(arrivals) = &options.arrivals {
        let checked = crate::pool::check(arrivals);
        checked
            .map_err(|error| error.context("the pool for arrivals (ChannelOptions::arrivals)"))?;
        if options.snapshots.is_some() {
            let text = "copies go to one pool: ChannelOptions::snapshots or ChannelOptions::arrivals, not both";
            return Err(Error::new(ErrorKind::BadArgument, text));
        }
    }
    Ok(())
}

fn checked_lines(lines: u32) -> Result<(), Error> {
    if lines.is_power_of_two() && (Lines::MIN..=Lines::MAX).contains(&lines) {
        return Ok(());
    }
    Err(OutOfRange {
        what: "the ring's lines (ChannelOptions::lines, a power of two)",
        value: lines.into(),
        min: Lines::MIN.into(),
        max: Lines::MAX.into(),
    }
    .into())
}

/// Maps the other half. Also returns the inode, which tells it from all other memory.
pub(super) fn other_half(fd: &OwnedFd, role: Role, lines: u32) -> Result<(HalfRo, u64), Error> {
    checked_lines(lines)?;
    let half = match role {
        Role::Source => HalfRo::open(fd, Side::Source, lines)?,
        Role::Sink => HalfRo::open(fd, Side::Sink, lines)?,
    };
    Ok((half, crate::base::inode(fd)))
}

pub(super) fn own_half(role: Role, options: &ChannelOptions) -> Result<(OwnedFd, HalfRw), Error> {
    let lines = options.lines;
    checked_lines(lines)?;
    let half = match role {
        Role::Source => HalfRw::create(Side::Source, lines)?,
        Role::Sink => HalfRw::create(Side::Sink, lines)?,
    };
    if let Some(text) = &options.message_type {
        half.1.describe(text);
    }
    Ok(half)
}

impl NamedOpening {
    pub(super) fn new(
        domain: &DomainCore,
        name: &str,
        role: Role,
        options: &ChannelOptions,
    ) -> NamedOpening {
        let begun = Instant::now();
        NamedOpening {
            domain: domain.clone(),
            name: name.into(),
            role,
            options: options.clone(),
            begun,
            deadline: options.timeout.and_then(|t| begun.checked_add(t)),
            asking: None,
            ended: None,
        }
    }

    /// Returns the time after which the caller waits no more.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Takes the manager's answer, if there is one by `until`. `None`: look again; there is no answer yet, or the
    /// manager is away.
    ///
    /// # Errors
    /// `TimedOut` after the time that the options say, `ManagerAway` if there is no manager then, and any error that
    /// prevents the connection.
    pub(super) fn look(&mut self, until: Option<Instant>) -> Result<Option<End>, Error> {
        let away = match self.look_once(until) {
            // A caller that waits for a name waits for the manager that knows it, too.
            Err(error) if error == ErrorKind::ManagerAway => Some(error),
            Ok(None) => None,
            done => return done,
        };
        if self.deadline.is_none_or(|d| Instant::now() < d) {
            return Ok(None);
        }
        match (away, &self.asking, self.ended) {
            (Some(away), ..) => Err(away),
            (None, None, _) => Err(self.timed_out(Awaited::Offer(self.name.clone()))),
            // A caller that does not wait at all is told no reason for waiting.
            _ if self.options.timeout == Some(Duration::ZERO) => {
                Err(self.timed_out(Awaited::Offer(self.name.clone())))
            }
            // The manager says whether a domain listens.
            (None, Some(asking), None) => {
                self.domain.end_connect(asking.asked)?;
                self.ended = Some(Instant::now());
                Ok(None)
            }
            (None, Some(_), Some(ended)) if ended.elapsed() < ANSWER => Ok(None),
            (None, Some(_), Some(_)) => {
                Err(self.timed_out(Awaited::Manager("a connection that is given up")))
            }
        }
    }

    fn timed_out(&self, awaited: Awaited) -> Error {
        TimedOut::since(self.begun, awaited).into()
    }

    fn look_once(&mut self, until: Option<Instant>) -> Result<Option<End>, Error> {
        let domain = &self.domain;
        let asking = match self.asking.take() {
            Some(asking) => asking,
            None => begin_open(domain, &self.name, self.role, &self.options)?,
        };
        match domain.answer(asking.asked, until) {
            Ok(None) => {
                self.asking = Some(asking);
                Ok(None)
            }
            Ok(Some(came)) => {
                let what = (self.name.as_str(), self.role);
                let end = end_open(domain, asking, came, what, &self.options);
                end.map(Some)
            }
            Err(error) => {
                let refusal = error.find::<Refusal>().copied();
                if refusal.is_none() {
                    domain.forget(asking.asked);
                }
                asking.half.1.end(Ending::Never);
                match refusal {
                    Some(refusal) if self.ended.is_some() => Err(match refusal.code {
                        RefusalCode::NoSuchName => {
                            self.timed_out(Awaited::Offer(self.name.clone()))
                        }
                        RefusalCode::PeerGone => {
                            self.timed_out(Awaited::Acceptance(self.name.clone()))
                        }
                        _ => error,
                    }),
                    // The request's listener has gone, or does not answer: the manager is asked again, with a half that
                    // no domain has seen.
                    Some(refusal) if refusal.went_away() => {
                        let asking = begin_open(domain, &self.name, self.role, &self.options)?;
                        self.asking = Some(asking);
                        Ok(None)
                    }
                    _ => Err(error),
                }
            }
        }
    }
}

impl Drop for NamedOpening {
    /// A peer that has got it nevertheless sees that this end is gone.
    fn drop(&mut self) {
        if let Some(asking) = self.asking.take().filter(|_| !self.domain.fork.is_child()) {
            asking.half.1.end(Ending::Never);
            self.domain.cancel_connect(asking.asked);
        }
    }
}

fn begin_open(
    domain: &DomainCore,
    name: &str,
    role: Role,
    options: &ChannelOptions,
) -> Result<Asking, Error> {
    checked_name(name)?;
    let half = own_half(role, options)?;
    let (beside, lines) = (options.beside.as_ref(), options.lines);
    // No peer is known yet: a desk is shown to any publisher.
    let shown = beside.map(|beside| beside.shown(u32::MAX)).transpose()?;
    let shown = shown.unwrap_or_default();
    let request = |req| beside::connect(beside, req, name.into(), (role, lines));
    let asked = domain.ask_now(request, &beside::with_half(half.0.as_fd(), &shown))?;
    Ok(Asking { half, asked })
}

fn end_open(
    domain: &DomainCore,
    Asking { half, asked }: Asking,
    (event, fds): EventWithFds,
    (name, role): (&str, Role),
    options: &ChannelOptions,
) -> Result<End, Error> {
    let mut fds = fds.into_iter();
    let (
        Event::Opened {
            channel,
            peer,
            peer_uid,
            peer_pid,
            lines,
            ring_lines,
            shared,
            ..
        },
        Some(theirs),
        Some(process),
    ) = (event, fds.next(), fds.next())
    else {
        return Err(error::protocol("an answer to Connect that is none"));
    };
    let result = other_half(&theirs, role.opposite(), lines).and_then(|theirs| {
        typing::compare(options, &theirs.0)?;
        let link = LinkShared::new(
            domain,
            channel,
            role,
            name,
            (peer, peer_uid, peer_pid),
            process,
            half,
            theirs,
            options,
        );
        let link = link.with_beside(fds.collect(), ring_lines, shared);
        let end = finish(domain, link, options)?;
        // The manager that made the channel is gone, and the next one was perhaps not told of it.
        if domain.era() == asked.era {
            Ok(end)
        } else {
            end.abandon();
            Err(ErrorKind::ManagerAway.into())
        }
    });
    close_on_error(domain, channel, result)
}

/// Begins to accept a connection to one of this domain's names: asks the manager.
pub(super) fn begin_accept(
    domain: &DomainCore,
    name: &str,
    incoming: EventWithFds,
    options: &ChannelOptions,
) -> Result<Accepting, Error> {
    let mut fds = incoming.1.into_iter();
    let (
        Event::Incoming {
            channel,
            peer,
            peer_uid,
            peer_pid,
            role,
            lines,
            ..
        },
        Some(theirs),
    ) = (incoming.0, fds.next())
    else {
        return Err(error::protocol("an incoming channel that is none"));
    };
    let beside = options.beside.as_ref();
    let halves = own_half(role, options).and_then(|own| {
        let shown = beside.map(|beside| beside.shown(peer_uid)).transpose()?;
        let theirs = other_half(&theirs, role.opposite(), lines)?;
        Ok((own, theirs, shown.unwrap_or_default()))
    });
    let (own, theirs, beside_it) = match halves {
        Ok(halves) => halves,
        Err(error) => {
            let _ = domain.tell(&Request::Reject { channel }, &[]);
            return Err(error);
        }
    };
    let unfit = typing::compare(options, &theirs.0).err();
    let shown = own.0.try_clone().map_err(error::system("fcntl"))?;
    // The peer may use the channel, and offer a pool, before our answer comes: put the link on record
    // first, with the peer's process filled in from the answer.
    let (placeholder, _write) =
        tranship_sys::socket::pair().map_err(error::system("socketpair"))?;
    let link = LinkShared::new(
        domain,
        channel,
        role,
        name,
        (peer, peer_uid, peer_pid),
        placeholder,
        own,
        theirs,
        options,
    );
    let link = Arc::new(link.with_beside(fds.collect(), 0, false));
    domain.register.add_link(channel, link.clone());
    let lines = options.lines;
    let request = |req| beside::accept(beside, req, channel, lines);
    let asked = domain.ask_now(request, &beside::with_half(shown.as_fd(), &beside_it));
    let asked = close_on_error(domain, channel, asked)?;
    Ok(Accepting { link, asked, unfit })
}

/// Takes the manager's answer, if there is one by the deadline.
pub(super) fn end_accept(
    domain: &DomainCore,
    accepting: &Accepting,
    options: &ChannelOptions,
    deadline: Option<Instant>,
) -> Result<Option<End>, Error> {
    let link = &accepting.link;
    let result = match domain.answer(accepting.asked, deadline) {
        Ok(None) => return Ok(None),
        Ok(Some((Event::Accepted { .. }, fds))) => {
            if let Some(process) = fds.into_iter().next() {
                link.set_peer_process(process);
            }
            match &accepting.unfit {
                Some(error) => Err(error.clone()),
                None => End::new(Arc::clone(link), options),
            }
        }
        Ok(Some(_)) => Err(error::protocol("an answer to Accept that is none")),
        Err(error) => {
            if error.find::<Refusal>().is_none() {
                domain.forget(accepting.asked);
            }
            Err(error)
        }
    };
    close_on_error(domain, link.channel, result).map(Some)
}

/// Gives up a connection that no caller takes any more.
pub(super) fn drop_accept(domain: &DomainCore, accepting: &Accepting) {
    domain.forget(accepting.asked);
    let nobody: Result<(), Error> = Err(ErrorKind::PeerGone.into());
    let _ = close_on_error(domain, accepting.link.channel, nobody);
}

fn finish(domain: &DomainCore, link: LinkShared, options: &ChannelOptions) -> Result<End, Error> {
    let link = Arc::new(link);
    domain.register.add_link(link.channel, link.clone());
    domain.take_early(link.channel)?;
    End::new(link, options)
}

fn close_on_error<T>(
    domain: &DomainCore,
    channel: ChannelId,
    result: Result<T, Error>,
) -> Result<T, Error> {
    if result.is_err() {
        domain.drop_early(channel);
        forget(domain, channel);
        let _ = domain.tell(&Request::CloseChannel { channel }, &[]);
    }
    result
}

/// Takes a link off the register: it was never used. Its peer may have been told of it by a manager that is gone.
fn forget(domain: &DomainCore, channel: ChannelId) {
    if let Some(link) = LinkShared::of(domain, channel) {
        domain.register.remove_link(channel);
        link.ring.end(Ending::Never);
        link.unpoll();
    }
}

/// Returns the error of a carrier that made the wrong end.
fn wrong_end(does: &str) -> Error {
    let text = format!("the carrier has made the other end, which {does}");
    Error::new(ErrorKind::ChannelDirection, text)
}

impl End {
    fn new(link: Arc<LinkShared>, options: &ChannelOptions) -> Result<End, Error> {
        Ok(match link.role {
            Role::Source => End::Source(Sender::new(link, options)?),
            Role::Sink => End::Sink(Receiver::new(link, options)?),
        })
    }

    pub(crate) fn into_sender(self) -> Result<Sender, Error> {
        match self {
            End::Source(sender) => {
                sender.link.register(sender.place());
                Ok(sender)
            }
            End::Sink(_) => Err(wrong_end("receives")),
        }
    }

    pub(crate) fn into_receiver(self) -> Result<Receiver, Error> {
        match self {
            End::Sink(receiver) => {
                receiver.link.register(receiver.place());
                Ok(receiver)
            }
            End::Source(_) => Err(wrong_end("sends")),
        }
    }

    /// Gives up an end whose peer may be in use already: the peer must not take this for a close in order.
    fn abandon(self) {
        match self {
            End::Source(sender) => sender.abandon(),
            End::Sink(receiver) => drop(receiver),
        }
    }
}
