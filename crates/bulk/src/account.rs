//! Membership with the manager: names of `shm:`, and memory admitted by the byte.
//!
//! A process joins at its first `shm:` address, by [`tranship_core::Domain::connect`]; all its bulk domains share that
//! membership. What pools they have by then is charged at once. Who uses `local:`, `copy:` or the network only needs no
//! manager, and is charged by none.

use crate::{Error, Kind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tranship_core::{Domain, Heap, HeapOptions};

/// No heap of the manager's is larger.
const MOST_BYTES: u64 = 1 << 46;

/// One membership, joined or not yet.
#[derive(Default)]
pub(crate) struct Account(Mutex<Books>);

#[derive(Default)]
struct Books {
    joined: Option<(Domain, Heap)>,
    /// Of pools, admitted or to be admitted by who joins.
    held_bytes: u64,
}

/// Memory that is charged as long as this lives.
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let books = self.lock();
        f.debug_struct("Account")
            .field("joined", &books.joined.as_ref().map(|(domain, _)| domain))
            .field("held_bytes", &books.held_bytes)
            .finish()
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

impl Account {
    /// The process's.
    pub(crate) fn process() -> Arc<Account> {
        static PROCESS: Mutex<Option<(u32, Arc<Account>)>> = Mutex::new(None);
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        match &*process {
            Some((of, account)) if *of == pid => Arc::clone(account),
            // A forked child joins for itself.
            _ => Arc::clone(&process.insert((pid, Arc::default())).1),
        }
    }

    /// That of a domain which has joined.
    pub(crate) fn over(domain: &Domain) -> Result<Arc<Account>, Error> {
        let account = Arc::<Account>::default();
        account.lock().join(domain.clone())?;
        Ok(account)
    }

    /// The membership; joins if need be, which may start a manager.
    pub(crate) fn domain(&self) -> Result<Domain, Error> {
        let mut books = self.lock();
        if let Some((domain, _)) = &books.joined {
            return Ok(domain.clone());
        }
        let domain = Domain::builder().connect()?;
        books.join(domain.clone())?;
        Ok(domain)
    }

    /// Asks for memory before it is made.
    pub(crate) fn charge(self: &Arc<Account>, bytes: u64) -> Result<Charge, Error> {
        let mut books = self.lock();
        if let Some((_, heap)) = &books.joined {
            heap.admit(bytes, bytes)?;
        }
        books.held_bytes += bytes;
        drop(books);
        Ok(Charge {
            account: Arc::clone(self),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge {
    /// More, for the same account.
    pub(crate) fn more(&self, bytes: u64) -> Result<Charge, Error> {
        self.account.charge(bytes)
    }
}

impl Books {
    fn join(&mut self, domain: Domain) -> Result<(), Error> {
        let options = HeapOptions::new(MOST_BYTES).name("bulk pools");
        let heap = domain.create_heap(options)?;
        if self.held_bytes > 0 {
            heap.admit(self.held_bytes, self.held_bytes)?;
        }
        self.joined = Some((domain, heap));
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut books = self.account.lock();
        books.held_bytes -= self.bytes;
        if let Some((_, heap)) = &books.joined {
            heap.give_back(self.bytes);
        }
    }
}

/// For `map_err`: of a name that cannot be had, as every backend says it.
pub(crate) fn endpoint(error: Error) -> Error {
    match error.kind() {
        Kind::NoSuchName | Kind::NameTaken | Kind::SameRole | Kind::BadArgument => {
            Error::of(Kind::InvalidEndpoint)(error)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_core::StatRecord;

    fn admitted(domain: &Domain) -> u64 {
        let records = domain.stat().expect("stat");
        let heaps = records.iter().filter_map(|record| match record {
            StatRecord::Heap(heap) => Some(heap.admitted_bytes),
            _ => None,
        });
        heaps.sum()
    }

    #[test]
    fn what_was_held_before_is_charged_at_joining() {
        let domain = Domain::embedded().expect("embedded");
        let account = Arc::<Account>::default();
        let early = account.charge(3 << 20).expect("nobody to ask");
        account.lock().join(domain.clone()).expect("join");
        assert_eq!(admitted(&domain), 3 << 20);
        let late = account.charge(1 << 20).expect("admitted");
        assert_eq!(admitted(&domain), 4 << 20);
        drop(early);
        assert_eq!(admitted(&domain), 1 << 20);
        drop(late);
        assert_eq!(admitted(&domain), 0);
    }

    #[test]
    fn more_than_there_is_is_refused_and_not_charged() {
        let config = tranship_manager::Config {
            total: Some(8 << 20),
            ..tranship_manager::Config::default()
        };
        let domain = Domain::builder().config(config).embedded();
        let domain = domain.expect("embedded");
        let account = Account::over(&domain).expect("joined");
        let most = account.charge(8 << 20).expect("all of it");
        assert_eq!(account.charge(4096).map(drop), Err(Kind::Quota.into()));
        drop(most);
        assert_eq!(admitted(&domain), 0);
        account.charge(4096).expect("there is room again");
        // Who has more than that before joining cannot join.
        let greedy = Arc::<Account>::default();
        let _held = greedy.charge(9 << 20).expect("nobody to ask");
        assert_eq!(greedy.lock().join(domain.clone()), Err(Kind::Quota.into()));
    }
}
