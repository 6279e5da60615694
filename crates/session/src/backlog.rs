//! Who has connected to a name and has not been accepted: so many at most, whoever they are, and no user at the expense of
//! another.

use super::wire::Parcel;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tranship_proto::{ChannelId, Event};
use tranship_sys::epoll::{Epoll, Interest};
use tranship_sys::socket::{self, ToStranger};

/// Connections that may wait at one name.
const MOST: usize = 128;
/// What else the listener's descriptor tells of: news of the manager's.
pub const NEWS: u64 = 0;

/// Takes one of them.
pub type Take = fn(&mut Backlog) -> Option<Parcel>;

#[derive(Default)]
pub struct Backlog {
    /// Oldest first, each with a number of its own.
    all: VecDeque<(u64, Parcel)>,
    last: u64,
    /// Tells of sockets that have something to be taken, at a name of sockets.
    speaks: Option<Arc<Epoll>>,
}

impl Backlog {
    /// From now on it is told there which sockets have something to be taken.
    pub fn tell(&mut self, speaks: Arc<Epoll>) {
        self.speaks = Some(speaks);
        let all = std::mem::take(&mut self.all);
        for (_, parcel) in all {
            self.push(parcel);
        }
    }

    /// Adds one. Turns somebody away for it where there are too many: the newest one of the user who has most. Of that the
    /// manager has to be told, if it was to be a link.
    pub fn push(&mut self, parcel: Parcel) -> Option<ChannelId> {
        let all = std::mem::take(&mut self.all).into_iter();
        let (over, rest): (VecDeque<_>, _) = all.partition(|(_, (_, fds))| is_over(fds));
        self.all = rest;
        for (_, parcel) in over {
            Backlog::turn_away(parcel);
        }
        self.last += 1;
        if let (Some(speaks), Some(socket)) = (&self.speaks, socket_of(&parcel)) {
            // It is looked at now and then in any case.
            let _ = speaks.add(socket, self.last, Interest::Read);
        }
        self.all.push_back((self.last, parcel));
        if self.all.len() <= MOST {
            return None;
        }
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, (event, _)) in &self.all {
            *users.entry(user(event)).or_default() += 1;
        }
        let most = users.into_iter().max_by_key(|(_, count)| *count)?.0;
        let newest = self.all.iter().rposition(|(_, (e, _))| user(e) == most)?;
        Backlog::turn_away(self.all.remove(newest)?.1)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The oldest.
    pub fn pop(&mut self) -> Option<Parcel> {
        let (_, parcel) = self.all.pop_front()?;
        Some(self.given_up(parcel))
    }

    /// A socket out of which something is to be taken.
    pub fn pop_speaking(&mut self) -> Option<Parcel> {
        let speaks = self.speaks.clone()?;
        let mut ready = Vec::new();
        speaks.wait(&mut ready, Some(Duration::ZERO)).ok()?;
        for number in ready.iter().map(|r| r.token).filter(|n| *n != NEWS) {
            let at = self.all.iter().position(|(n, _)| *n == number);
            match at.and_then(|at| self.all.remove(at)) {
                Some((_, parcel)) if is_over(&parcel.1) => _ = Backlog::turn_away(parcel),
                Some((_, parcel)) => return Some(self.given_up(parcel)),
                None => {}
            }
        }
        None
    }

    /// Who accepts it waits for it by himself.
    fn given_up(&self, parcel: Parcel) -> Parcel {
        if let (Some(speaks), Some(socket)) = (&self.speaks, socket_of(&parcel)) {
            let _ = speaks.remove(socket);
        }
        parcel
    }

    /// Its other end has given it up.
    pub fn cancel(&mut self, gone: ChannelId) {
        let is =
            |event: &Event| matches!(event, Event::Incoming { channel, .. } if *channel == gone);
        self.all.retain(|(_, (event, _))| !is(event));
    }

    /// What a manager that is gone was to make comes to nothing; sockets are as good as ever.
    pub fn keep_sockets(&mut self) {
        self.all.retain(|(_, parcel)| socket_of(parcel).is_some());
    }

    /// Adds those of another one.
    pub fn append(&mut self, mut other: Backlog) {
        for (_, parcel) in std::mem::take(&mut other.all) {
            self.push(parcel);
        }
    }

    /// Closes it, which its other end sees; a link, if it was to be one, is to be refused.
    pub fn turn_away((event, fds): Parcel) -> Option<ChannelId> {
        match event {
            Event::Incoming { channel, .. } => Some(channel),
            _ => {
                let mut fds = fds.into_iter();
                drop(fds.next().map(ToStranger::from));
                None
            }
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        for (_, parcel) in std::mem::take(&mut self.all) {
            Backlog::turn_away(parcel);
        }
    }
}

fn user(event: &Event) -> u32 {
    match event {
        Event::Incoming { peer_uid, .. } | Event::SocketIncoming { peer_uid, .. } => *peer_uid,
        _ => u32::MAX,
    }
}

fn socket_of((event, fds): &Parcel) -> Option<&OwnedFd> {
    match event {
        Event::SocketIncoming { .. } => fds.first(),
        _ => None,
    }
}

/// Has the other end gone, with nothing left to be taken? Of a half of a link, which is no socket, nobody can say so.
fn is_over(fds: &[OwnedFd]) -> bool {
    fds.first().is_some_and(socket::is_over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{DomainId, ExportId, Role};

    fn link(number: u32, user: u32) -> Parcel {
        let event = Event::Incoming {
            channel: ChannelId(number),
            export: ExportId(1),
            peer: DomainId(number),
            peer_uid: user,
            peer_pid: 1,
            role: Role::Sink,
            lines: 2,
        };
        (event, Vec::new())
    }

    fn number(parcel: Parcel) -> u32 {
        match parcel.0 {
            Event::Incoming { channel, .. } => channel.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_has_most_makes_room() {
        let mut backlog = Backlog::default();
        for n in 0..128 {
            assert!(backlog.push(link(n, 7)).is_none());
        }
        assert_eq!(backlog.push(link(500, 7)), Some(ChannelId(500)));
        assert_eq!(backlog.push(link(501, 8)), Some(ChannelId(127)));
        assert_eq!(backlog.push(link(502, 8)), Some(ChannelId(126)));
        backlog.cancel(ChannelId(0));
        assert_eq!(backlog.pop().map(number), Some(1));
        let rest: Vec<u32> = std::iter::from_fn(|| backlog.pop()).map(number).collect();
        assert_eq!(rest.len(), 126);
        assert_eq!(rest[124..], [501, 502]);
    }
}
