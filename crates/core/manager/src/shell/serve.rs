//! The parties' shares of the loop.

use super::conn::Carrying;
use super::keep::Discarded;
use super::parts::{CLIENT, KIND, PARTY, Shell, WATCH};
use super::party::{Party, Task};
use super::watchdog::Phase;
use super::worker::{self, News};
use crate::state::{ClientId, FdToken};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tranship_sys::epoll::{Epoll, Interest, Ready};
use tranship_sys::process;

/// A party's share of each turn.
pub(super) const SHARE: Duration = Duration::from_micros(300);
/// The processor time of one turn, several times over. A party takes more if the kernel works in the manager's name,
/// for example for hundreds of thousands of waiters on the party's sockets.
const LONG: Duration = Duration::from_millis(20);
/// The factor by which a party's rest is longer than its turn was.
const REST: u32 = 16;

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

    /// Does some of a party's tasks, for its share of the time.
    pub(super) fn serve_party(&mut self, uid: u32) {
        let (begin, used) = (Instant::now(), process::thread_time());
        self.beat.at(Phase::Events, uid, 0);
        let mut ready: Vec<Ready> = Vec::new();
        match self.parties.get_mut(&uid) {
            Some(party) => {
                party.queued = false;
                let _ = party.epoll.wait(&mut ready, Some(Duration::ZERO));
            }
            None => return,
        }
        for r in ready {
            match r.token & KIND {
                CLIENT => self.client_ready(ClientId(r.token & !KIND), r),
                _ => self.process_ended(FdToken(r.token & !KIND)),
            }
        }
        while let Some(task) = self.parties.get_mut(&uid).and_then(|p| p.tasks.pop_front()) {
            self.close_piled(uid);
            let (place, client) = task.place();
            self.beat.at(place, uid, client);
            match task {
                Task::Read(client) => self.read(client),
                Task::Arrived(client) => {
                    if let Some(party) = self.parties.get_mut(&uid) {
                        party.arrived -= 1;
                    }
                    self.arrived(client);
                    self.use_workers(uid);
                }
                Task::Write(client) => self.write(client),
                Task::Ended(pidfd) => self.last_words(pidfd),
                Task::Answer(input) => self.feed(*input),
                Task::Sweep => self.sweep(uid),
                Task::Look => self.look_at_flights(uid),
            }
            self.sort_trash();
            if begin.elapsed() >= SHARE {
                break;
            }
        }
        // The manager's own user can stop it anyway.
        if begin.elapsed() >= LONG && uid != process::geteuid() {
            let used = process::thread_time().saturating_sub(used);
            if used >= LONG {
                tracing::warn!(
                    uid,
                    ms = used.as_millis(),
                    "a turn of this user took long: it has none for a while"
                );
                self.rest(uid, used.saturating_mul(REST));
            }
        }
        let over = match self.parties.get(&uid) {
            Some(party) if party.rests => false,
            Some(party) if !party.tasks.is_empty() => {
                self.wake(uid);
                false
            }
            Some(party) => party.is_over() && !party.queued,
            None => false,
        };
        if over && let Some(party) = self.parties.remove(&uid) {
            let _ = self.epoll.remove(&party.epoll);
        }
    }

    /// Handles the end of a watched process: its earlier messages are read first.
    fn process_ended(&mut self, pidfd: FdToken) {
        let Some(kept) = self.fds.get(&pidfd).cloned() else {
            return;
        };
        self.unwatch(pidfd);
        self.enqueue(kept.uid, Task::Ended(pidfd));
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

    pub(super) fn worker_speaks(&mut self, worker: u64) {
        match self.workers.hear(&self.epoll, worker) {
            News::Nothing => return,
            News::Free => {}
            News::Lost { client, before } => self.lost(ClientId(client), before),
            News::Carried(client, carried) => {
                let client = ClientId(client);
                match self.conns.get_mut(&client) {
                    Some(conn) => {
                        conn.carried = Carrying::Arrived(carried);
                        let uid = conn.uid;
                        if let Some(party) = self.parties.get_mut(&uid) {
                            party.arrived += 1;
                            self.enqueue(uid, Task::Arrived(client));
                        }
                    }
                    // The client is gone.
                    None => self.throw_carried(*carried),
                }
            }
        }
        for uid in std::mem::take(&mut self.waits_for_worker) {
            self.use_workers(uid);
        }
        self.sort_trash();
    }

    fn throw_carried(&mut self, carried: worker::Carried) {
        // Their owner no longer matters: the manager's own user pays.
        let uid = tranship_sys::process::geteuid();
        for (facts, fd) in carried.fds {
            if let Some(fd) = fd {
                let small = facts.sealed.is_memory() && facts.size <= worker::SMALL_BYTES;
                let what = None;
                self.throw(uid, Discarded { fd, what, small });
            }
        }
    }
}
