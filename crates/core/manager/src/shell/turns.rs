//! The turns of the parties: which party has tasks, which rests, and what wakes it.

use super::parts::{PARTY, Shell, WATCH};
use super::party::{Party, Task};
use crate::state::FdToken;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tranship_sys::epoll::{Epoll, Interest};

/// A party's share of each turn.
pub(super) const SHARE: Duration = Duration::from_micros(300);
/// The delay before memory for ended clients is given back.
const TRIM: Duration = Duration::from_secs(1);

impl Shell {
    /// Returns a user's party, and makes it if there is none.
    pub(super) fn party(&mut self, uid: u32) -> io::Result<&mut Party> {
        if !self.parties.contains_key(&uid) {
            let epoll = Epoll::new()?;
            let token = PARTY | u64::from(uid);
            self.epoll.add(&epoll, token, Interest::Read)?;
            let party = Party {
                epoll,
                tasks: VecDeque::new(),
                queued: false,
                rests: false,
                members: 0,
                carry: VecDeque::new(),
                arrived: 0,
                small: VecDeque::new(),
                foreign: VecDeque::new(),
                sweeping: false,
                flying: VecDeque::new(),
                lingering: VecDeque::new(),
            };
            self.parties.insert(uid, party);
        }
        let party = self.parties.get_mut(&uid);
        party.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Gives a party the next turn.
    pub(super) fn wake(&mut self, uid: u32) {
        if let Some(party) = self.parties.get_mut(&uid)
            && !party.rests
            && !std::mem::replace(&mut party.queued, true)
        {
            self.runnable.push_back(uid);
        }
    }

    /// Gives a party no turn for a time.
    pub(super) fn rest(&mut self, uid: u32, time: Duration) {
        if let Some(party) = self.parties.get_mut(&uid)
            && let Some(until) = Instant::now().checked_add(time)
            && !std::mem::replace(&mut party.rests, true)
        {
            // The party would be ready all the time.
            let _ = self.epoll.remove(&party.epoll);
            self.resting.push((until, uid));
        }
    }

    /// Parties that have rested long enough have turns again.
    pub(super) fn end_rests(&mut self, now: Instant) {
        for (_, uid) in self.resting.extract_if(.., |(until, _)| *until <= now) {
            if let Some(party) = self.parties.get_mut(&uid) {
                party.rests = false;
                let _ = self
                    .epoll
                    .add(&party.epoll, PARTY | u64::from(uid), Interest::Read);
                if !std::mem::replace(&mut party.queued, true) {
                    self.runnable.push_back(uid);
                }
            }
        }
    }

    pub(super) fn enqueue(&mut self, uid: u32, task: Task) {
        if let Some(party) = self.parties.get_mut(&uid) {
            party.tasks.push_back(task);
            self.wake(uid);
        }
    }

    /// Watches a process until it ends.
    pub(super) fn watch(&mut self, pidfd: FdToken) -> io::Result<()> {
        let kept = self.fds.get(&pidfd).cloned();
        let kept = kept.ok_or(io::ErrorKind::NotFound)?;
        let party = self.party(kept.uid)?;
        party.epoll.add(&**kept, WATCH | pidfd.0, Interest::Read)?;
        party.members += 1;
        Ok(())
    }

    pub(super) fn unwatch(&mut self, pidfd: FdToken) {
        let Some(kept) = self.fds.get(&pidfd) else {
            return;
        };
        if let Some(party) = self.parties.get_mut(&kept.uid)
            && party.epoll.remove(&***kept).is_ok()
        {
            party.members -= 1;
            self.wake(kept.uid);
        }
    }

    pub(super) fn trim_soon(&mut self) {
        if self.trims && self.trim.is_none() {
            self.trim = Some(Instant::now() + TRIM);
        }
    }
}
