//! Each user's use of limited resources, and its room. Every resource is checked here before it is taken.
//!
//! Besides its own limit, a user has a share of the whole: at most three quarters of the rest that other users leave.
//! The next user therefore always finds something, however many have taken their full share (like the dynamic
//! thresholds of switches that share a buffer between ports). The manager's own user is exempt: a manager that serves
//! only itself may use everything.

use crate::state::refusal;
use std::collections::BTreeMap;
use tranship_proto::{Limited, Refusal, RefusalCode};

/// Domains that record histories; each user has its share of them.
const MOST_TRACES: u64 = 256;

/// A limited resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// Connections without a domain, and domains.
    Connections,
    /// Pools and heaps.
    Pools,
    /// Ends of channels.
    Channels,
    /// Exports, and connects that wait for one.
    Names,
    /// Descriptors of the manager's process.
    Descriptors,
    /// Entries of the manager's tables that need no descriptor.
    Records,
    /// Memory granted, admitted and stranded.
    Bytes,
    /// Domains that record histories.
    Traces,
}

impl Of {
    /// Returns the resource's name in a refusal.
    fn limited(self) -> Limited {
        match self {
            Of::Connections => Limited::Connections,
            Of::Pools => Limited::Pools,
            Of::Channels => Limited::Channels,
            Of::Names => Limited::Names,
            Of::Descriptors => Limited::Descriptors,
            Of::Records => Limited::Records,
            Of::Bytes => Limited::Bytes,
            Of::Traces => Limited::Traces,
        }
    }
}

pub(crate) const KINDS: usize = 8;

/// Counts of one user, or of all.
type Counts = [u64; KINDS];

#[derive(Debug)]
pub(crate) struct Accounts {
    users: BTreeMap<u32, Counts>,
    sums: Counts,
    /// The limits of one user, whatever the whole is.
    limits: Counts,
    /// The limits of all users together.
    all: Counts,
    /// Memory that can be granted at present, including granted memory.
    now: u64,
    /// The manager's own user.
    owner: Option<u32>,
    /// Bytes of other users' memory that each user holds and is charged for.
    charged: BTreeMap<u32, u64>,
}

impl Accounts {
    pub fn new(limits: &crate::Limits) -> Accounts {
        let mut accounts = Accounts {
            users: BTreeMap::new(),
            sums: [0; KINDS],
            limits: [u64::MAX; KINDS],
            all: [u64::MAX; KINDS],
            now: u64::MAX,
            owner: None,
            charged: BTreeMap::new(),
        };
        for (of, limit) in [
            (Of::Connections, limits.connections.into()),
            (Of::Pools, limits.pools.into()),
            (Of::Channels, limits.channels.into()),
            (Of::Names, limits.names.into()),
            (Of::Descriptors, limits.descriptors.into()),
            (Of::Records, limits.records.into()),
            (Of::Bytes, limits.memory.unwrap_or(u64::MAX)),
        ] {
            accounts.limits[of as usize] = limit;
        }
        accounts.all[Of::Records as usize] = 4 * u64::from(limits.records);
        accounts.all[Of::Traces as usize] = MOST_TRACES;
        accounts
    }

    pub fn set_owner(&mut self, uid: u32) {
        self.owner = Some(uid);
    }

    pub fn is_owner(&self, uid: u32) -> bool {
        self.owner == Some(uid)
    }

    pub fn set_all(&mut self, of: Of, all: u64) {
        self.all[of as usize] = all;
    }

    /// Lowers the memory that can be granted in all, for the time of a shortage.
    pub fn set_now(&mut self, bytes: u64) {
        self.now = bytes;
    }

    /// Returns the memory that can be granted at present, including granted memory.
    pub fn most_now(&self) -> u64 {
        self.now
    }

    pub fn all(&self, of: Of) -> u64 {
        self.all[of as usize]
    }

    pub fn sum(&self, of: Of) -> u64 {
        self.sums[of as usize]
    }

    pub fn has(&self, uid: u32, of: Of) -> u64 {
        self.users.get(&uid).map_or(0, |c| c[of as usize])
    }

    /// Returns a user's limit in all.
    pub fn limit(&self, uid: u32, of: Of) -> u64 {
        let others = self.sum(of) - self.has(uid, of);
        let all = match of {
            Of::Bytes => self.all(of).min(self.now),
            _ => self.all(of),
        };
        let left = all.saturating_sub(others);
        let share = if self.owner == Some(uid) || left == u64::MAX {
            left
        } else {
            share(left)
        };
        self.limits[of as usize].min(share)
    }

    /// Returns a user's limit if no other user has anything.
    pub fn most(&self, uid: u32, of: Of) -> u64 {
        let all = self.all(of);
        let share = if self.owner == Some(uid) || all == u64::MAX {
            all
        } else {
            share(all)
        };
        self.limits[of as usize].min(share)
    }

    /// Returns how much more a user may have.
    pub fn room(&self, uid: u32, of: Of) -> u64 {
        self.limit(uid, of).saturating_sub(self.has(uid, of))
    }

    /// Returns how much more memory a user may have. Memory of other users that it holds counts against its own limits:
    /// the configured one, and its share. It does not count against the rest for all, where its owner's use is counted
    /// already.
    // Trust: the writers of others' pools say how much memory it is.
    pub fn room_charged(&self, uid: u32) -> u64 {
        let room = self.room(uid, Of::Bytes);
        let charged = self.charged.get(&uid).copied().unwrap_or(0);
        let share = match self.owner == Some(uid) {
            true => u64::MAX,
            false => self.limit(uid, Of::Bytes),
        };
        let own = self.limits[Of::Bytes as usize].min(share);
        let has = self.has(uid, Of::Bytes);
        room.min(own.saturating_sub(has.saturating_add(at_most_half(charged, own))))
    }

    /// Replaces a user's charge for other users' memory.
    pub fn charge(&mut self, uid: u32, before: u64, after: u64) {
        let charged = self.charged.entry(uid).or_default();
        *charged = (*charged + after).saturating_sub(before);
        if *charged == 0 {
            self.charged.remove(&uid);
        }
    }

    /// Checks that a user may have `n` more.
    pub fn check(&self, uid: u32, of: Of, n: u64) -> Result<(), Refusal> {
        if n <= self.room(uid, of) {
            return Ok(());
        }
        let (has, limit) = (self.has(uid, of), self.limit(uid, of));
        Err(of.limited().refuse(has + n, limit))
    }

    /// Checks that `n` more descriptors may be held for a user.
    pub fn check_descriptors(&self, uid: u32, n: u64) -> Result<(), Refusal> {
        let (sum, all) = (self.sum(Of::Descriptors), self.all(Of::Descriptors));
        if n > 0 && sum + n > all {
            return Err(self.no_descriptors());
        }
        self.check(uid, Of::Descriptors, n)
    }

    pub fn no_descriptors(&self) -> Refusal {
        let (held, most) = (self.sum(Of::Descriptors), self.all(Of::Descriptors));
        refusal(RefusalCode::NoDescriptors, held, most)
    }

    pub fn add(&mut self, uid: u32, of: Of, n: u64) {
        if n > 0 {
            self.users.entry(uid).or_default()[of as usize] += n;
            self.sums[of as usize] += n;
        }
    }

    pub fn sub(&mut self, uid: u32, of: Of, n: u64) {
        let Some(counts) = self.users.get_mut(&uid).filter(|_| n > 0) else {
            debug_assert_eq!(n, 0, "{uid} gives back {of:?} that it has not");
            return;
        };
        debug_assert!(counts[of as usize] >= n, "{uid} gives back {of:?}");
        counts[of as usize] = counts[of as usize].saturating_sub(n);
        self.sums[of as usize] = self.sums[of as usize].saturating_sub(n);
        if *counts == [0; KINDS] {
            self.users.remove(&uid);
        }
    }

    /// Returns how many users have some of a resource.
    pub fn users_with(&self, of: Of) -> usize {
        let some = self.users.values().filter(|c| c[of as usize] > 0);
        some.count()
    }
}

/// Returns the part of a limit that others' words may take away: at most half of it.
pub(crate) fn at_most_half(charged: u64, limit: u64) -> u64 {
    charged.min(limit / 2)
}

/// Returns three quarters.
fn share(left: u64) -> u64 {
    left / 4 * 3 + left % 4 * 3 / 4
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Accounts {
        pub fn charged(&self) -> &BTreeMap<u32, u64> {
            &self.charged
        }

        /// Returns the number of users that have anything.
        pub fn users(&self) -> usize {
            self.users.len()
        }

        /// Returns each user's use.
        pub fn each(&self) -> &BTreeMap<u32, Counts> {
            &self.users
        }

        /// Compares with fresh counts, for the audit.
        pub fn agrees(&self, counted: &BTreeMap<(u32, usize), u64>) -> Result<(), String> {
            let ours = self.users.iter().flat_map(|(uid, counts)| {
                let kinds = counts.iter().enumerate();
                kinds.map(move |(kind, n)| ((*uid, kind), *n))
            });
            let ours: BTreeMap<_, _> = ours.filter(|(_, n)| *n > 0).collect();
            let mut theirs = counted.clone();
            theirs.retain(|_, n| *n > 0);
            if ours == theirs {
                return Ok(());
            }
            Err(format!("accounts: {ours:?}, counted: {theirs:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_does_not_lower_its_own_limit() {
        let mut accounts = Accounts::new(&crate::Limits::default());
        accounts.set_all(Of::Bytes, 1 << 20);
        accounts.add(1, Of::Bytes, 1 << 19);
        assert_eq!(accounts.limit(1, Of::Bytes), 3 << 18);
        assert_eq!(accounts.limit(2, Of::Bytes), 3 << 17);
    }

    #[test]
    fn all_users_have_four_times_the_records_of_one() {
        let limits = crate::Limits {
            records: 1000,
            ..crate::Limits::default()
        };
        let mut accounts = Accounts::new(&limits);
        for uid in 1..4 {
            assert_eq!(accounts.limit(uid, Of::Records), 1000);
            accounts.add(uid, Of::Records, 900);
        }
        assert_eq!(accounts.limit(4, Of::Records), 975, "of what is left");
    }

    #[test]
    fn greed_leaves_something_for_the_next() {
        let mut accounts = Accounts::new(&crate::Limits::default());
        accounts.set_all(Of::Bytes, 1 << 20);
        accounts.set_owner(7);
        for uid in 1..5 {
            let room = accounts.room(uid, Of::Bytes);
            assert!(room >= 1 << 11, "{uid}: {room}");
            assert!(accounts.check(uid, Of::Bytes, room + 1).is_err());
            accounts.add(uid, Of::Bytes, room);
            assert_eq!(accounts.room(uid, Of::Bytes), 0);
        }
        // The manager's own may have the rest.
        let rest = (1 << 20) - accounts.sum(Of::Bytes);
        assert_eq!(accounts.room(7, Of::Bytes), rest);
        accounts.add(7, Of::Bytes, rest);
        assert_eq!(accounts.room(8, Of::Bytes), 0);
        // Memory that one user gives back is available to others.
        accounts.sub(1, Of::Bytes, 1 << 19);
        assert!(accounts.room(8, Of::Bytes) > 1 << 18);
    }
}
