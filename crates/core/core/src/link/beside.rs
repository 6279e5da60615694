//! What the ends of a topic's channel show each other beside their halves: the ring's lines and a bell, and a desk.

use crate::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tranship_proto::{ChannelId, Req, Request, Role};

/// Makes the bell of a user, or returns the one that there is.
pub(super) type Bells = dyn Fn(u32) -> Result<Arc<OwnedFd>, Error> + Send + Sync;

/// What this end shows. Channels that are no topic's show nothing.
#[derive(Clone)]
pub(crate) enum Beside {
    /// A subscriber's desk.
    Desk(Arc<OwnedFd>),
    /// A publisher's ring.
    Ring {
        lines: Arc<OwnedFd>,
        count: u32,
        bells: Arc<Bells>,
    },
}

impl Beside {
    /// Returns the descriptors for a peer of this user.
    pub(super) fn shown(&self, peer_uid: u32) -> Result<Vec<Arc<OwnedFd>>, Error> {
        Ok(match self {
            Beside::Desk(desk) => vec![Arc::clone(desk)],
            Beside::Ring { lines, bells, .. } => vec![Arc::clone(lines), bells(peer_uid)?],
        })
    }
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Beside::Desk(_) => "Desk",
            Beside::Ring { .. } => "Ring",
        })
    }
}

/// The request that offers a name.
pub(super) fn offer(beside: Option<&Beside>, req: Req, name: String, role: Role) -> Request {
    match beside {
        Some(_) => Request::Publish { req, name },
        None => Request::Export { req, name, role },
    }
}

/// The request that connects to a name.
pub(super) fn connect(
    beside: Option<&Beside>,
    req: Req,
    name: String,
    (role, lines): (Role, u32),
) -> Request {
    match beside {
        Some(_) => Request::Subscribe { req, name, lines },
        None => Request::Connect {
            req,
            name,
            role,
            lines,
            wait: true,
        },
    }
}

/// The request that accepts a connection.
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

/// Puts what is shown behind the half.
pub(super) fn with_half<'a>(
    half: BorrowedFd<'a>,
    shown: &'a [Arc<OwnedFd>],
) -> Vec<BorrowedFd<'a>> {
    let shown = shown.iter().map(|fd| fd.as_fd());
    std::iter::once(half).chain(shown).collect()
}
