//! Private memory that the manager admits by the byte: a pool without chunks, for programs with an allocator of their
//! own.

use crate::domain::{DomainCore, OwnHeap};
use crate::error::{self, Error};
use crate::membership::Domain;
use std::sync::Arc;
use std::time::Instant;
use tranship_proto::{Event, PoolId, Request};

pub use crate::options::HeapOptions;

/// Private memory of this domain, charged to it like its pools. The owner decides about the bytes (for example
/// anonymous memory under an allocator). The heap only asks before they are used, and tells when they were given to the
/// kernel. Threads may share it.
///
/// Nothing enforces it: an owner that does not ask is not charged. After a restart of the manager the domain reports by
/// itself how much it holds. A dropped heap gives everything back.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::Domain;
/// use tranship::heap::{Heap, HeapOptions};
///
/// let domain = Domain::embedded()?;
/// let heap = Heap::create(&domain, HeapOptions::new(64 << 20).name("cache"))?;
/// let granted = heap.admit(4096, 1 << 20)?; // at least a page, a MiB if there is
/// assert!((4096..=1 << 20).contains(&granted));
/// heap.give_back(granted);
/// assert_eq!(heap.held_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Heap {
    domain: DomainCore,
    own: Arc<OwnHeap>,
}

impl Heap {
    /// Makes a heap: private memory that is charged to this domain by the byte.
    ///
    /// Asks the manager and waits for its answer, as [`Domain::create_pool`] does.
    ///
    /// # Errors
    /// `BadArgument` for a maximum outside its range or a name that is too long; `Limit`, `Access`, `Refused` by the
    /// manager; `TimedOut` when it does not answer; `ManagerAway`, `CutOff`; `Forked`.
    pub fn create(domain: &Domain, options: HeapOptions) -> Result<Heap, Error> {
        let core = domain.core();
        core.check_fork()?;
        core.patiently(None, || Heap::make(core, options.clone()))
    }

    fn make(domain: &DomainCore, options: HeapOptions) -> Result<Heap, Error> {
        let (name, max_bytes) = (options.name, options.max_bytes);
        let make = |req| Request::CreateHeap {
            req,
            name: name.clone(),
            max_bytes,
            held_bytes: 0,
        };
        let created = domain.call(make, &[])?.0;
        let Event::HeapCreated {
            heap, quota_bytes, ..
        } = created
        else {
            return Err(error::unexpected(&created, "a heap was asked for"));
        };
        let own = Arc::new(OwnHeap::new(name, max_bytes, heap, quota_bytes));
        domain.register.add_heap(own.clone());
        Ok(Heap {
            domain: domain.clone(),
            own,
        })
    }

    /// Returns the heap's id, counted together with those of pools. It changes when the manager is restarted.
    pub fn id(&self) -> PoolId {
        self.own.id()
    }

    /// Asks for `bytes` more, or at least for `least_bytes` (not 0). Returns how many were admitted. It asks the
    /// manager, so use it for large steps.
    ///
    /// # Errors
    /// `Quota` if not even `least_bytes` can be admitted now; `ManagerAway`.
    pub fn admit(&self, least_bytes: u64, bytes: u64) -> Result<u64, Error> {
        self.admit_until(least_bytes, bytes, None)
    }

    pub(crate) fn admit_until(
        &self,
        least_bytes: u64,
        bytes: u64,
        deadline: Option<Instant>,
    ) -> Result<u64, Error> {
        let before = self.own.books();
        let debt = before.debt();
        let make = |req| Request::Admit {
            req,
            heap: before.id,
            bytes: bytes.saturating_add(debt),
            least_bytes: least_bytes.saturating_add(debt),
        };
        let answer = self.domain.call_if_prompt(make, &[], deadline)?.0;
        let Event::Admitted { bytes: got, .. } = answer else {
            return Err(error::unexpected(&answer, "memory was asked for"));
        };
        Ok(self.own.admit(before, got))
    }

    /// Reports that `bytes` were given to the kernel (more than are held are not counted).
    pub fn give_back(&self, bytes: u64) {
        let (heap, surplus) = self.own.give_back(bytes);
        if surplus > 0 {
            let bytes = surplus;
            // A manager that is away is told the held bytes when it is back.
            let _ = self.domain.tell(&Request::GiveBack { heap, bytes }, &[]);
        }
        if self.held_bytes() <= self.own.target_bytes() {
            self.own.clear_target();
        }
    }

    /// Reports the bytes that are allocated in the heap, and the bytes that are free and kept. A heap that reports (at
    /// most four times a second) takes part in memory scheduling: allocated memory is not taken from it, and refused
    /// memory counts as wanted.
    pub fn report(&self, live_bytes: u64, cached_bytes: u64) {
        let heap = self.id();
        let figures = Request::HeapFigures {
            heap,
            live_bytes,
            cached_bytes,
        };
        // A manager that is away gets the next report.
        let _ = self.domain.tell(&figures, &[]);
    }

    /// Returns the bytes that were admitted and not given back.
    pub fn held_bytes(&self) -> u64 {
        self.own.held()
    }

    /// Returns whether no manager has the heap: the last one is gone, and no other was told of it yet.
    pub fn is_alone(&self) -> bool {
        self.own.books().is_alone()
    }

    /// Returns the bytes that are held and not admitted: they were taken without a manager, and the next one has not
    /// admitted them.
    pub fn unadmitted_bytes(&self) -> u64 {
        self.own.books().debt()
    }

    /// Returns the bytes that the owner may use: the admitted ones, or without a manager the heap's maximum.
    pub(crate) fn usable_bytes(&self) -> u64 {
        let books = self.own.books();
        match books.is_alone() {
            true => self.own.max_bytes,
            false => books.held - books.debt(),
        }
    }

    /// Notes that `bytes` in all are in use. If no manager has the heap, they count as held.
    pub(crate) fn use_alone(&self, bytes: u64) {
        self.own.hold_alone(bytes);
    }

    /// Takes the manager's news, and rejoins one that came back.
    pub(crate) fn turn(&self) {
        self.domain.turn_quietly();
    }

    /// Returns the bytes that the heap may have now.
    pub fn quota_bytes(&self) -> u64 {
        self.own.quota_bytes()
    }

    /// Has `owner` called in each [`turn`](crate::Domain::turn), by any thread: to give back memory that the manager
    /// wants ([`pressure`](Heap::pressure)), and to report the use. It must not wait for a lock that a caller of the
    /// library may hold, nor make a call that asks the manager. Only the first call has an effect.
    pub fn on_turn(&self, owner: impl Fn() + Send + Sync + 'static) {
        self.own.on_turn(Box::new(owner));
    }

    /// Returns the size to which the manager wants the heap to shrink, in bytes, if it does. A
    /// [`turn`](crate::Domain::turn) learns of it.
    pub fn pressure(&self) -> Option<u64> {
        let target = self.own.target_bytes();
        (target < self.held_bytes()).then_some(target)
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.domain.check_fork().is_ok() {
            self.domain.register.remove_heap(&self.own);
            let heap = self.id();
            let _ = self.domain.tell(&Request::DestroyHeap { heap }, &[]);
            self.domain.let_go();
        }
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap")
            .field("name", &self.own.name)
            .field("books", &self.own.books())
            .finish_non_exhaustive()
    }
}
