//! The descriptor by which an end is woken. The manager makes it, or this process for an end of its own.

use super::shared::{Doorbell, LinkShared};
use super::sleep::LOOK;
use crate::base::lock;
use crate::domain::{Key, POLL_INTERVAL};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use tranship_proto::{Event, Request};
use tranship_ring::doorbell;
use tranship_sys::epoll::{Interest, wait_each};
use tranship_sys::socket;

impl LinkShared {
    /// Returns the key by which a task that awaits this end is registered.
    pub(super) fn key(&self) -> Key {
        self.channel.0.into()
    }

    /// Whether there is a descriptor to sleep on. If not, the manager is asked for one, and its answer taken when it is
    /// there. This does not wait.
    pub(super) fn has_doorbell(&self) -> bool {
        let mut doorbell = lock(&self.doorbell);
        if doorbell.again.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        if doorbell.near.is_some() {
            return true;
        }
        if self.inside.is_some() {
            return self.make_doorbell(&mut doorbell);
        }
        let asked = doorbell.asked.take();
        drop(doorbell); // the manager is not spoken to under its lock
        let channel = self.channel;
        let ask = || {
            let ask = |req| Request::WakeFd { req, channel };
            self.domain.ask_now(ask, &[])
        };
        let asked = asked.map_or_else(ask, Ok);
        let answer = asked.and_then(|asked| {
            let answer = self.domain.answer(asked, Some(Instant::now()));
            answer.map(|answer| (asked, answer))
        });
        let mut doorbell = lock(&self.doorbell);
        match answer {
            Ok((asked, None)) => doorbell.asked = Some(asked),
            Ok((_, Some((Event::WakeEnd { .. }, fds)))) => {
                doorbell.near = fds.into_iter().next().map(Arc::new)
            }
            // Manager or peer are away.
            _ => doorbell.again = Some(Instant::now() + LOOK),
        }
        doorbell.near.is_some()
    }

    /// Makes a descriptor that the other end, in this process, rings.
    fn make_doorbell(&self, doorbell: &mut Doorbell) -> bool {
        let made = self.other().zip(socket::one_way().ok());
        match made {
            Some((other, (near, far))) => {
                other.set_peer_fd(far);
                doorbell.near = Some(Arc::new(near));
            }
            None => doorbell.again = Some(Instant::now() + POLL_INTERVAL),
        }
        doorbell.near.is_some()
    }

    /// Has the reactor watch this end's descriptor; false if there is none now.
    pub(super) fn is_watched(&self) -> bool {
        if !self.has_doorbell() {
            return false;
        }
        let mut doorbell = lock(&self.doorbell);
        if !doorbell.watched
            && let Some(near) = &doorbell.near
        {
            doorbell.watched = self.domain.tasks.watch(near, self.key()).is_ok();
        }
        doorbell.watched
    }

    /// Notes that the reactor found this end's descriptor readable. Bytes that are written after this are found once
    /// more.
    pub(super) fn rung(&self, hung_up: bool) {
        let doorbell = lock(&self.doorbell);
        let (true, Some(near)) = (doorbell.watched, &doorbell.near) else {
            return; // somebody else waits on it now
        };
        doorbell::clear(near);
        if hung_up {
            self.is_lost(doorbell);
        }
    }

    /// Notes that a thread that waits on this end's descriptor itself found it readable.
    pub(super) fn answer_doorbell(&self) {
        let doorbell = lock(&self.doorbell);
        if let Some(near) = &doorbell.near {
            doorbell::clear(near);
            let hung_up = wait_each(&[(near.as_fd(), Interest::HangUp)], Some(Duration::ZERO));
            if hung_up.is_ok_and(|hung_up| hung_up[0]) {
                self.is_lost(doorbell);
            }
        }
    }

    /// Notes that the descriptor's other end is gone: the peer has died, or never got it.
    fn is_lost(&self, mut doorbell: MutexGuard<'_, Doorbell>) {
        if let (true, Some(near)) = (doorbell.watched, &doorbell.near) {
            self.domain.tasks.unwatch(near);
        }
        doorbell.watched = false;
        doorbell.again = Some(Instant::now() + POLL_INTERVAL);
        if !doorbell.polled {
            doorbell.near = None;
        }
        drop(doorbell);
        self.look_for_death();
    }

    /// Returns this end's descriptor, to wait on.
    pub(super) fn doorbell_at_hand(&self) -> Option<Arc<OwnedFd>> {
        let doorbell = lock(&self.doorbell);
        let may = doorbell.again.is_none_or(|again| Instant::now() >= again);
        doorbell.near.clone().filter(|_| may)
    }

    /// Takes the bytes in this end's descriptor, and the reactor off it, which would take bytes that are meant for this
    /// thread.
    pub(super) fn ring_for_ourselves(&self) {
        let mut doorbell = lock(&self.doorbell);
        if let Some(near) = &doorbell.near {
            if doorbell.watched {
                self.domain.tasks.unwatch(near);
            }
            doorbell::clear(near);
        }
        doorbell.watched = false;
    }
}

impl LinkShared {
    /// Notes that no thread polls the descriptor any more.
    pub(super) fn unpoll(&self) {
        let doorbell = std::mem::take(&mut *lock(&self.doorbell));
        if let Some(near) = &doorbell.near {
            if doorbell.polled {
                self.domain.poll_no_more(near);
            }
            if doorbell.watched {
                self.domain.tasks.unwatch(near);
            }
        }
        if let Some(asked) = doorbell.asked {
            self.domain.forget(asked);
        }
    }
}
