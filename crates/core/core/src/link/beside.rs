//! Objects that the ends of a topic's channel show each other beside their halves: the ring's lines, a bell, a desk.
//! Also the names that several domains share.

use crate::error::{self, Error};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tranship_proto::{ChannelId, DomainId, NameKind, Req, Request, Role};
use tranship_session::Offered;
use tranship_sys::process;

/// Makes the bell of a user, or returns the existing one. A queue has its claims in its place, for all users.
pub(super) type Bells = dyn Fn(u32) -> Result<Arc<OwnedFd>, Error> + Send + Sync;

/// Objects that this end shows. A channel of no topic shows none.
#[derive(Clone)]
pub(crate) enum Beside {
    /// A reader's desk.
    Desk {
        desk: Arc<OwnedFd>,
        /// Whether it is a queue's.
        queue: bool,
        /// The writers to which the reader is connected already.
        have: Vec<DomainId>,
    },
    /// A writer's ring.
    Ring {
        /// Whether it is a queue's.
        queue: bool,
        /// Whether other domains may have the name too.
        shared: bool,
        lines: Arc<OwnedFd>,
        count: u32,
        bells: Arc<Bells>,
    },
    /// No object: other domains may listen at the channel's name too.
    Shared,
    /// No object: the channel has to go to a domain that is none of these.
    Others(Vec<DomainId>),
}

impl Beside {
    /// Whether it is of a topic or a queue, whose ends look again. Those of a shared name do not.
    pub(super) fn is_topic(&self) -> bool {
        matches!(self, Beside::Desk { .. } | Beside::Ring { .. })
    }

    /// Says whether other domains may have the name too.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Beside::Ring { shared, .. } => *shared,
            Beside::Shared => true,
            Beside::Desk { .. } | Beside::Others(_) => false,
        }
    }

    /// Returns the kind of name that an end which shows this is of.
    pub(super) fn kind(beside: Option<&Beside>) -> NameKind {
        match beside {
            Some(Beside::Desk { queue, .. } | Beside::Ring { queue, .. }) => {
                NameKind::of_ring(*queue)
            }
            _ => NameKind::Channel,
        }
    }

    /// Returns the descriptors for a peer of this user.
    pub(super) fn shown(&self, peer_uid: u32) -> Result<Vec<Arc<OwnedFd>>, Error> {
        Ok(match self {
            Beside::Desk { desk, .. } => vec![Arc::clone(desk)],
            Beside::Ring { lines, bells, .. } => vec![Arc::clone(lines), bells(peer_uid)?],
            Beside::Shared | Beside::Others(_) => Vec::new(),
        })
    }
}

/// Returns what an end of this process shows to the other end: descriptors of that end's own, the number of the ring's
/// lines, and whether other domains may have the name too.
pub(super) fn shown_inside(beside: Option<&Beside>) -> Result<(Vec<OwnedFd>, u32, bool), Error> {
    let Some(beside) = beside else {
        return Ok((Vec::new(), 0, false));
    };
    let shown = beside.shown(process::geteuid())?;
    let shown = shown.iter().map(|fd| fd.try_clone());
    let shown = shown.collect::<Result<_, _>>();
    let shown = shown.map_err(error::system("fcntl"))?;
    let count = match beside {
        Beside::Ring { count, .. } => *count,
        _ => 0,
    };
    Ok((shown, count, beside.is_shared()))
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Beside::Desk { .. } => "Desk",
            Beside::Ring { .. } => "Ring",
            Beside::Shared => "Shared",
            Beside::Others(_) => "Others",
        })
    }
}

/// Returns the kind under which a name is offered.
pub(super) fn offered(beside: Option<&Beside>, role: Role) -> Offered {
    match beside {
        Some(Beside::Ring { queue, shared, .. }) => Offered::Ring {
            queue: *queue,
            shared: *shared,
        },
        Some(Beside::Shared) => Offered::Shared(role),
        _ => Offered::Channel(role),
    }
}

/// Returns the request that connects to a name.
pub(super) fn connect(
    beside: Option<&Beside>,
    req: Req,
    name: String,
    (role, lines): (Role, u32),
) -> Request {
    match beside {
        Some(Beside::Desk { queue, have, .. }) => Request::Subscribe {
            req,
            name,
            lines,
            queue: *queue,
            have: have.clone(),
        },
        Some(Beside::Others(have)) => Request::ConnectBesides {
            req,
            name,
            role,
            lines,
            have: have.clone(),
        },
        _ => Request::Connect {
            req,
            name,
            role,
            lines,
            wait: true,
        },
    }
}

/// Returns the request that accepts a connection.
pub(super) fn accept(beside: Option<&Beside>, req: Req, channel: ChannelId, lines: u32) -> Request {
    match beside {
        Some(Beside::Ring { count, .. }) => Request::AcceptSubscriber {
            req,
            channel,
            lines,
            ring_lines: *count,
        },
        _ => Request::Accept {
            req,
            channel,
            lines,
        },
    }
}

/// Puts the shown objects behind the half.
pub(super) fn with_half<'a>(
    half: BorrowedFd<'a>,
    shown: &'a [Arc<OwnedFd>],
) -> Vec<BorrowedFd<'a>> {
    let shown = shown.iter().map(|fd| fd.as_fd());
    std::iter::once(half).chain(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen failing: a sender to a shared name did not wait for the descriptor of a receiver that sleeps on it.
    #[test]
    fn the_ends_of_a_shared_name_are_no_topics() {
        let desk = tranship_sys::eventfd::create().expect("eventfd");
        let desk = Beside::Desk {
            desk: Arc::new(desk),
            queue: false,
            have: Vec::new(),
        };
        assert!(desk.is_topic());
        assert!(!Beside::Shared.is_topic());
        assert!(!Beside::Others(Vec::new()).is_topic());
    }
}
