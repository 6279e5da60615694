//! The heap's account: the bytes in use, the bytes that the manager admitted, and requests for more in large steps.
//!
//! Without a manager, everything is allowed up to the limit of the environment. A manager that appears is told how much
//! is in use already. If it admits less, the rest is owed, and asked for together with the next request.
//!
//! The allocator's own tables count like the heap that they serve. They grow while something else is charged. They are
//! therefore not requested by themselves, but together with the next charge.

use crate::environment::Environment;
use crate::link::{Gone, Link, News};
use crate::meta;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_items::lock::{Guard, Lock};
use tranship_sys::{process, time};

/// Bounds of the step, an eighth of the heap, in which memory is requested and given back.
const LEAST_STEP: u64 = 1 << 20;
const MOST_STEP: u64 = 64 << 20;

/// Between two attempts to reach a manager: longer after each that failed.
const FIRST_PAUSE_NS: u64 = 50_000_000;
const LAST_PAUSE_NS: u64 = 10_000_000_000;

static BOOKS: Lock<Books> = Lock::new(Books::new());
/// The manager wants memory back: the heap gives as much as it can.
static PRESSED: AtomicBool = AtomicBool::new(false);

struct Books {
    /// Bytes in use, without the tables.
    used: u64,
    admitted: u64,
    target: u64,
    /// The present connection, and the statistics from the time at which the manager was last reached.
    link: Option<Link>,
    environment: Option<Environment>,
    name: String,
    retry_ns: u64,
    pause_ns: u64,
}

/// The account's figures, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that the heap has from the kernel: in use, cached, or free for the next allocation; and its tables.
    pub used_bytes: u64,
    /// Bytes that the manager has admitted; 0 without a manager.
    pub admitted_bytes: u64,
    /// Whether a manager accounts for the heap.
    pub managed: bool,
}

/// Charges `bytes` that are going to be used. Returns `false` if they were refused. May wait for the manager.
pub(crate) fn charge(bytes: u64) -> bool {
    let mut books = BOOKS.lock();
    let max = books.environment().map_or(u64::MAX, |e| e.max_bytes);
    if books.total() + bytes > max {
        return false;
    }
    books.used += bytes;
    let allowed = books.link_up() && books.total() <= books.admitted || books.ask();
    if !allowed {
        books.used -= bytes;
    }
    allowed
}

/// Records that `bytes` went back to the kernel.
pub(crate) fn discharge(bytes: u64) {
    let mut books = BOOKS.lock();
    books.used = books.used.saturating_sub(bytes);
    let keep = books.step();
    books.give_back(keep);
}

/// Takes the manager's messages, now and then; returns whether memory is to be given back as far as possible.
pub(crate) fn listen() -> bool {
    let mut books = BOOKS.lock();
    let mut news = Vec::new();
    let heard = match &mut books.link {
        Some(link) => link.listen(&mut news),
        None => return false,
    };
    books.hear(&news);
    if heard.is_err() {
        books.part();
    }
    PRESSED.swap(false, Ordering::Relaxed)
}

/// Reports the heap's figures: bytes that are free and kept.
pub(crate) fn report(cached_bytes: u64) {
    let mut books = BOOKS.lock();
    let used = books.total();
    let cached = cached_bytes.min(used);
    let Some(link) = &mut books.link else { return };
    if link.report(used - cached, cached).is_err() {
        books.part();
    }
}

/// Reports the figures of a silent program, and gives back what is admitted beyond its use.
pub(crate) fn settle(cached_bytes: u64) {
    report(cached_bytes);
    BOOKS.lock().give_back(LEAST_STEP);
}

/// Returns the account's figures.
pub(crate) fn usage() -> Usage {
    let books = BOOKS.lock();
    Usage {
        used_bytes: books.total(),
        admitted_bytes: books.admitted,
        managed: books.link.is_some(),
    }
}

/// Takes the lock before a fork.
pub(crate) fn hold() {
    BOOKS.hold();
}

/// Releases the locks after a fork, in the parent.
///
/// # Safety
/// The rules of [`Lock::release`] hold.
pub(crate) unsafe fn release() {
    // SAFETY: passed on.
    unsafe { BOOKS.release() };
}

/// Releases the locks after a fork, in the child. The connection belongs to the parent. The child has a copy of the
/// heap, and the manager is told when the child needs more.
///
/// # Safety
/// The rules of [`Lock::release`] hold.
pub(crate) unsafe fn release_in_child() {
    // SAFETY: passed on.
    unsafe { BOOKS.release() };
    let mut books: Guard<'_, Books> = BOOKS.lock();
    books.part();
    (books.retry_ns, books.pause_ns) = (0, FIRST_PAUSE_NS);
    PRESSED.store(false, Ordering::Relaxed);
}

impl Books {
    const fn new() -> Books {
        Books {
            used: 0,
            admitted: 0,
            target: u64::MAX,
            link: None,
            environment: None,
            name: String::new(),
            retry_ns: 0,
            pause_ns: FIRST_PAUSE_NS,
        }
    }

    /// Returns the environment's settings, read once, as early as possible.
    fn environment(&mut self) -> Option<&Environment> {
        if self.environment.is_none() && process::has_environment() {
            self.environment = Some(Environment::read());
        }
        self.environment.as_ref()
    }

    /// Returns the bytes that need to be admitted.
    fn total(&self) -> u64 {
        self.used + meta::counted_bytes()
    }

    fn step(&self) -> u64 {
        (self.used / 8).clamp(LEAST_STEP, MOST_STEP)
    }

    fn link_up(&self) -> bool {
        self.link.is_some()
    }

    /// Asks for more, and returns whether the present use is allowed.
    #[cold]
    fn ask(&mut self) -> bool {
        if self.link.is_none() {
            self.reach();
        }
        let (used, step) = (self.total(), self.step());
        let Some(link) = &mut self.link else {
            return true;
        };
        let least = used.saturating_sub(self.admitted);
        if least == 0 {
            return true;
        }
        let mut news = Vec::new();
        let answer = link.admit(least, least + step, &mut news);
        self.hear(&news);
        match answer {
            Ok(Ok(bytes)) => {
                self.admitted += bytes;
                true
            }
            Ok(Err(_refused)) => false,
            Err(Gone) => {
                self.part();
                true
            }
        }
    }

    /// Looks for the manager that the environment names.
    fn reach(&mut self) {
        let now = time::coarse_ns();
        if now < self.retry_ns {
            return;
        }
        if self.name.is_empty() {
            self.name = process::command_name();
        }
        let used = self.total();
        let Some((socket, max)) = self
            .environment()
            .and_then(|e| Some((e.socket.clone()?, e.max_bytes)))
        else {
            return;
        };
        match Link::open(&socket, &self.name, max.min(MOST_BYTES), used) {
            Ok(opened) => {
                self.admitted = opened.admitted_bytes;
                self.link = Some(opened.link);
                self.pause_ns = FIRST_PAUSE_NS;
            }
            Err(Gone) => {
                self.retry_ns = now + self.pause_ns;
                self.pause_ns = (2 * self.pause_ns).min(LAST_PAUSE_NS);
            }
        }
    }

    /// Records that there is no manager any more.
    fn part(&mut self) {
        self.link = None;
        (self.admitted, self.target) = (0, u64::MAX);
        self.retry_ns = time::coarse_ns() + self.pause_ns;
    }

    fn hear(&mut self, news: &[News]) {
        for news in news {
            match news {
                News::Shrink(target) => self.target = *target,
                // A heap that was to have less, and may now have more, may keep its memory.
                News::Quota(quota) => self.target = self.target.max(*quota),
            }
        }
        if self.total() > self.target {
            PRESSED.store(true, Ordering::Relaxed);
        }
    }

    /// Gives back memory that is admitted and not used, except `keep` bytes; under pressure, all of it.
    fn give_back(&mut self, keep: u64) {
        let spare = self.admitted.saturating_sub(self.total());
        let pressed = self.admitted > self.target;
        let keep = if pressed { 0 } else { keep };
        if spare <= 2 * keep || spare == 0 {
            return;
        }
        let bytes = spare - keep;
        let Some(link) = &mut self.link else { return };
        match link.give_back(bytes) {
            Ok(true) => {
                self.admitted -= bytes;
                if self.admitted <= self.target {
                    self.target = u64::MAX;
                }
            }
            Ok(false) => {}
            Err(Gone) => self.part(),
        }
    }
}

/// The most bytes that a manager accepts as a heap's largest size.
const MOST_BYTES: u64 = 1 << 46;
