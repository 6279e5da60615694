//! The memory that an allocator uses of a heap. It is admitted in large steps, so that an allocator that takes and
//! gives all the time seldom asks. An allocator that was refused is refused at once for a while.

use crate::base::lock;
use crate::heap::Heap;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tranship_proto::PoolId;

/// A step is an eighth of what is used, within these bounds. Twice as much may be admitted and not used.
const LEAST_STEP: u64 = 256 << 10;
const MOST_STEP: u64 = 16 << 20;

/// The longest wait for a manager that hangs. A later answer is undone.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time until an allocator that was refused, or asked to give back, asks again: doubled by each refusal, up to the
/// second.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(8);
/// Time between two reports.
const PERIOD: Duration = Duration::from_millis(250);

/// The account of a cache or an allocator whose memory is admitted as a [`Heap`]. Threads may share it.
///
/// Only [`ensure`](Account::ensure) waits for the manager; all other calls are allowed under the owner's locks. A
/// dropped account gives everything back.
///
/// Without a manager the account goes on up to the heap's limit. The next manager is told of all bytes; those that it
/// does not admit are [in excess](Account::excess).
///
/// ```
/// use tranship_core::{Account, Domain};
/// use tranship_core::heap::{Heap, HeapOptions};
///
/// let domain = Domain::embedded()?;
/// let account = Account::new(Heap::create(&domain, HeapOptions::new(64 << 20).name("cache"))?);
/// assert!(account.ensure(4096) && account.charge(4096));
/// assert_eq!(account.used_bytes(), 4096);
/// account.discharge(4096);
/// assert_eq!(account.excess(), 0); // nothing is wanted back
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Account {
    heap: Heap,
    books: Mutex<Books>,
    /// Held while the manager is asked.
    asking: Mutex<Duration>,
}

#[derive(Debug)]
struct Books {
    used: u64,
    /// Time until which the account asks for nothing.
    quiet_until: Option<Instant>,
    /// Bytes that were ensured last and are still to be charged, and the time until which they are kept.
    wanted: Option<(Instant, u64)>,
    /// The last report: its time, the manager's heap, and the figures.
    reported: Option<(Instant, (PoolId, u64, u64))>,
    /// Time of the last look for a manager, while there is none.
    looked: Option<Instant>,
}

impl Account {
    /// Makes the account of a heap of which nothing is used yet.
    pub fn new(heap: Heap) -> Account {
        Account {
            heap,
            books: Mutex::new(Books {
                used: 0,
                quiet_until: None,
                wanted: None,
                reported: None,
                looked: None,
            }),
            asking: Mutex::new(FIRST_PAUSE),
        }
    }

    /// Returns the heap.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Whether `bytes` can be charged; asks the manager if they cannot yet. One thread at a time waits for the answer,
    /// at most 100 ms: the others get the present state. Without a manager it looks for one now and then.
    ///
    /// Do not call it under a lock that the function of [`Heap::on_turn`] takes.
    pub fn ensure(&self, bytes: u64) -> bool {
        let mut books = lock(&self.books);
        let now = Instant::now();
        // Memory that is given back meanwhile is kept for this request.
        if bytes > 0 {
            books.wanted = Some((now + FIRST_PAUSE, bytes));
        }
        if self.heap.is_alone() {
            let is_due = |at| now.duration_since(at) >= PERIOD;
            if books.looked.is_none_or(is_due) {
                books.looked = Some(now);
                drop(books);
                self.heap.turn();
                books = lock(&self.books);
            }
        }
        if self.missing(&books, bytes) == 0 {
            return true;
        }
        self.heed(&mut books);
        let is_quiet = books.quiet_until.is_some_and(|until| now < until);
        if is_quiet || self.heap.is_alone() {
            return false;
        }
        drop(books);
        let Ok(mut pause) = self.asking.try_lock() else {
            return false;
        };
        // Another thread may have asked just now.
        let books = lock(&self.books);
        if self.missing(&books, bytes) == 0 {
            return true;
        }
        let wanted = books.used.saturating_add(bytes);
        // Bytes that are held and not admitted are asked for, too.
        let least = wanted.saturating_sub(self.heap.held_bytes()).max(1);
        let step = step(books.used);
        drop(books);
        let deadline = Some(now + PATIENCE);
        let got = self.heap.admit_until(least, least + step, deadline);
        let mut books = lock(&self.books);
        // No manager refused anything.
        if self.heap.is_alone() {
            return self.missing(&books, bytes) == 0;
        }
        *pause = match &got {
            Ok(_) => FIRST_PAUSE,
            Err(error) => {
                tracing::debug!(heap = %self.heap.id(), %error, "no more memory");
                books.quiet_until = Some(Instant::now() + *pause);
                (*pause * 2).min(LAST_PAUSE)
            }
        };
        self.report(&mut books);
        got.is_ok()
    }

    /// Charges `bytes` more, if they are admitted. Never asks the manager.
    pub fn charge(&self, bytes: u64) -> bool {
        let mut books = lock(&self.books);
        let fits = self.missing(&books, bytes) == 0;
        if fits {
            books.used += bytes;
            self.heap.use_alone(books.used);
            books.wanted.take_if(|(_, wanted)| *wanted <= bytes);
        }
        fits
    }

    /// Asks the manager to admit as much of `bytes` as it will. Waits for the answer, at most 100 ms.
    pub fn ensure_some(&self, bytes: u64) {
        if bytes > 0 {
            let _ = self
                .heap
                .admit_until(1, bytes, Some(Instant::now() + PATIENCE)); // else it is in excess
        }
    }

    /// Charges `bytes` more whatever is admitted: they were used before. The missing bytes are asked for with the next
    /// `ensure`, and are [in excess](Account::excess) until then.
    pub fn charge_anyway(&self, bytes: u64) {
        let mut books = lock(&self.books);
        books.used += bytes;
        self.heap.use_alone(books.used);
    }

    /// Takes back a charge of `bytes`, which the kernel has again. Returns unused bytes to the manager, but for a step;
    /// all of them if the manager wants memory back.
    pub fn discharge(&self, bytes: u64) {
        let mut books = lock(&self.books);
        books.used = books.used.saturating_sub(bytes);
        self.settle_in(&mut books);
    }

    /// Takes the manager's wishes, and reports the use. Call it now and then, for example in each turn.
    pub fn settle(&self) {
        self.settle_in(&mut lock(&self.books));
    }

    /// Returns the bytes in use.
    pub fn used_bytes(&self) -> u64 {
        lock(&self.books).used
    }

    /// Returns the bytes to give to the kernel and discharge: the manager wants them back, or never admitted them.
    pub fn excess(&self) -> u64 {
        let books = lock(&self.books);
        let usable = self.heap.usable_bytes();
        let may = self.heap.pressure().unwrap_or(usable).min(usable);
        books.used.saturating_sub(may)
    }

    fn missing(&self, books: &Books, bytes: u64) -> u64 {
        let wanted = books.used.saturating_add(bytes);
        wanted.saturating_sub(self.heap.usable_bytes())
    }

    /// Notes the manager's wish: an account that has to shrink does not ask for more.
    fn heed(&self, books: &mut Books) -> bool {
        let pressed = self.heap.pressure().is_some();
        if pressed {
            books.quiet_until = Some(Instant::now() + FIRST_PAUSE);
        }
        pressed
    }

    fn settle_in(&self, books: &mut Books) {
        let step = match self.heed(books) {
            true => 0,
            false => step(books.used),
        };
        let wanted = books.wanted.filter(|(until, _)| Instant::now() < *until);
        books.wanted = wanted;
        let keep = step.max(wanted.map_or(0, |(_, bytes)| bytes));
        let spare = self.heap.held_bytes().saturating_sub(books.used);
        // Bytes that no manager admitted are not kept for later.
        let idle = spare.min(self.heap.unadmitted_bytes());
        if spare > keep + step {
            self.heap.give_back(spare - keep);
        } else if idle > 0 {
            self.heap.give_back(idle);
        }
        self.report(books);
    }

    fn report(&self, books: &mut Books) {
        let spare = self.heap.held_bytes().saturating_sub(books.used);
        let says = (self.heap.id(), books.used, spare);
        if books.reported.is_some_and(|(_, said)| said == says) {
            return;
        }
        let now = Instant::now();
        let is_due = |(at, _)| now.duration_since(at) >= PERIOD;
        if books.reported.is_none_or(is_due) {
            books.reported = Some((now, says));
            self.heap.report(books.used, spare);
        }
    }
}

fn step(used: u64) -> u64 {
    (used / 8).clamp(LEAST_STEP, MOST_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Domain;
    use crate::heap::HeapOptions;

    /// Otherwise a cache that evicts one large value for another would give the room away in between, and have to evict
    /// all.
    #[test]
    fn room_that_is_made_is_kept_for_what_it_was_made_for() {
        const LARGE: u64 = 40 << 20;
        let domain = Domain::embedded().unwrap();
        let heap = Heap::create(&domain, HeapOptions::new(64 << 20)).unwrap();
        let account = Account::new(heap);
        assert!(account.ensure(LARGE) && account.charge(LARGE));
        assert!(!account.ensure(LARGE), "the heap may have 64 MiB");
        account.discharge(LARGE);
        // Nor does a look in between, or something small, take it away.
        assert!(account.ensure(0) && account.charge(64));
        account.discharge(64);
        account.settle();
        assert!(account.ensure(LARGE) && account.charge(LARGE));
        // Memory that no thread waits for goes back, but for a step.
        account.discharge(LARGE);
        assert!(account.heap().held_bytes() < LARGE / 2);
    }
}
