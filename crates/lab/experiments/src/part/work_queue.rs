//! Requests that want a page, and those that have one: one thread for as many callers as there are.

use super::super::lines::{Progress, now_ns, say};
use super::super::plan::PAGE;
use anyhow::Result;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tranship::{BufferMut, Error, Pool};

/// What a caller waits for: the place in the pool's queue is its own.
type Page = Box<dyn Future<Output = Result<BufferMut, Error>> + Send + Unpin>;

/// The time that a page is held varies by this part of it, up or down.
const VARIES: f64 = 0.2;
/// How often the parent hears how far it is.
const REPORT: Duration = Duration::from_millis(50);
/// Bytes of a request: the paper's payload.
const PAYLOAD: usize = 1024;
/// Time between two looks while a caller waits for memory, and while none does.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(10);

pub(super) struct WorkQueue {
    pool: Pool,
    hold: Duration,
    waiting: VecDeque<(u64, Page)>,
    /// By when they are done; a number tells those of one moment apart.
    held: BTreeMap<(Instant, u64), (u64, BufferMut)>,
    numbers: u64,
    random: u64,
    looked: Instant,
    said: Instant,
    progress: Progress,
}

impl WorkQueue {
    pub fn new(pool: Pool, hold_ms: u64, seed: u64) -> WorkQueue {
        let now = Instant::now();
        WorkQueue {
            pool,
            hold: Duration::from_millis(hold_ms),
            waiting: VecDeque::new(),
            held: BTreeMap::new(),
            numbers: 0,
            random: seed | 1,
            looked: now,
            said: now,
            progress: Progress::default(),
        }
    }

    /// All who wait or have a page.
    pub fn callers(&self) -> usize {
        self.waiting.len() + self.held.len()
    }

    /// A caller comes, and takes the last place in the queue if there is no page for it.
    pub fn come(&mut self, request: u64) -> Result<()> {
        let mut page: Page = Box::new(self.pool.alloc_async(usize::try_from(PAGE)?));
        match poll(&mut page) {
            Poll::Ready(page) => self.take(request, page?),
            Poll::Pending => self.waiting.push_back((request, page)),
        }
        Ok(())
    }

    /// Of those who wait the last so many leave.
    pub fn leave(&mut self, callers: usize) {
        let stay = self.waiting.len().saturating_sub(callers);
        self.waiting.truncate(stay);
    }

    /// Those at the head of the queue for whom there is a page now get it.
    pub fn serve(&mut self) -> Result<()> {
        let now = Instant::now();
        let since = now.duration_since(self.looked).as_nanos();
        let waited = since.saturating_mul(self.waiting.len() as u128);
        self.progress.blocked_ns += u64::try_from(waited).unwrap_or(u64::MAX);
        self.looked = now;
        while let Some((request, page)) = self.waiting.front_mut() {
            let request = *request;
            let Poll::Ready(page) = poll(page) else {
                break;
            };
            self.waiting.pop_front();
            self.take(request, page?);
        }
        Ok(())
    }

    /// One who has had its page for long enough.
    pub fn done(&mut self) -> Option<(u64, BufferMut)> {
        let first = self.held.first_entry()?;
        if first.key().0 > Instant::now() {
            return None;
        }
        self.progress.done += 1;
        Some(first.remove())
    }

    /// A message whose bytes are wrong.
    pub fn wrong(&mut self) {
        self.progress.wrong += 1;
    }

    /// When to look again.
    pub fn pause(&self) -> Duration {
        let due = self.held.keys().next().map(|(due, _)| *due);
        let due = due.map_or(LATER, |due| due.saturating_duration_since(Instant::now()));
        let most = if self.waiting.is_empty() { LATER } else { SOON };
        due.min(most)
    }

    /// Reports to the parent now and then; false: the parent is not there.
    pub fn report(&mut self) -> bool {
        if self.progress.at_ns != 0 && self.said.elapsed() < REPORT {
            return true;
        }
        self.said = Instant::now();
        self.progress.at_ns = now_ns();
        self.progress.collect_ns = self.pool.stats().collect_ns;
        say(&self.progress)
    }

    fn take(&mut self, request: u64, mut page: BufferMut) {
        page[..PAYLOAD].fill(mark(request));
        // Knuth's linear congruential generator.
        self.random = (self.random.wrapping_mul(6_364_136_223_846_793_005))
            .wrapping_add(1_442_695_040_888_963_407);
        #[allow(clippy::cast_precision_loss)] // 24 bits
        let part = (self.random >> 40) as f64 / f64::from(1u32 << 24);
        let hold = self.hold.mul_f64(1.0 + VARIES * (2.0 * part - 1.0));
        self.numbers += 1;
        let due = (Instant::now() + hold, self.numbers);
        self.held.insert(due, (request, page));
    }
}

/// What a request's bytes are.
pub(super) fn mark(request: u64) -> u8 {
    request.to_le_bytes()[0]
}

fn poll(page: &mut Page) -> Poll<Result<BufferMut, Error>> {
    // Who looks anyway needs no waking.
    Pin::new(page).poll(&mut Context::from_waker(Waker::noop()))
}
