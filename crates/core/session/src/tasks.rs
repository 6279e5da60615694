//! The tasks that await something of a domain, in any executor: their wakers, and until when they may sleep.
//!
//! | a task that finds nothing | a thread that has something for it |
//! |---|---|
//! | puts its waker here | publishes, or takes the manager's news |
//! | says that it sleeps (a ring's flag) | rings the doorbell, or says that there are news |
//! | looks again | takes the waker away from here, and wakes |
//!
//! Whatever comes after the look therefore finds the waker. A waker is used once, so a woken task stores it again. A
//! wake-up proves nothing: it is a reason to look.
//!
//! NOT here: the thread that waits for the doorbells (`core`: `link/reactor.rs`), and their meaning.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};
use tranship_sys::epoll::{Epoll, Interest, Ready};
use tranship_sys::eventfd;

/// The event that a task awaits: a channel's number, or one that [`Tasks::key`] gave.
pub type Key = u64;

/// Above every channel.
const KEYS: Key = 1 << 32;
const NEWS: Key = u64::MAX;
const KICK: Key = u64::MAX - 1;

#[derive(Debug, Default)]
pub struct Tasks {
    poller: OnceLock<Poller>,
    state: Mutex<State>,
    /// There is news for which any of the tasks may have waited.
    news: AtomicBool,
}

/// The descriptors that the reactor waits on. They are made with the first task that has to wait.
#[derive(Debug)]
struct Poller {
    epoll: Epoll,
    kick: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    tasks: HashMap<Key, Task>,
    /// Tasks that look again at a certain time in any case.
    timers: BTreeSet<(Instant, Key)>,
    last_key: Key,
    /// Whether the reactor runs.
    runs: bool,
    /// Whether there was a task since the last query.
    used: bool,
    /// While the reactor sleeps: how long at most.
    sleeps_until: Option<Instant>,
}

#[derive(Debug)]
struct Task {
    waker: Waker,
    at: Option<Instant>,
}

/// Why the reactor woke up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The manager may have news.
    News,
    /// The reactor's own descriptor.
    Kick,
    /// The doorbell of this channel, which may have been hung up.
    Doorbell { channel: Key, hung_up: bool },
}

impl State {
    fn take(&mut self, key: Key) -> Option<Waker> {
        let task = self.tasks.remove(&key)?;
        if let Some(at) = task.at {
            self.timers.remove(&(at, key));
        }
        Some(task.waker)
    }

    fn set_timer(&mut self, key: Key, at: Option<Instant>) {
        let Some(task) = self.tasks.get_mut(&key) else {
            return; // woken meanwhile
        };
        if let Some(before) = std::mem::replace(&mut task.at, at) {
            self.timers.remove(&(before, key));
        }
        if let Some(at) = at {
            self.timers.insert((at, key));
        }
    }
}

impl Tasks {
    fn state(&self) -> MutexGuard<'_, State> {
        // Whole at each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poller(&self, news: impl AsFd) -> io::Result<&Poller> {
        if let Some(poller) = self.poller.get() {
            return Ok(poller);
        }
        let (epoll, kick) = (Epoll::new()?, eventfd::create()?);
        epoll.add(&kick, KICK, Interest::Read)?;
        epoll.add(news, NEWS, Interest::News)?;
        // A second thread's is closed again.
        Ok(self.poller.get_or_init(|| Poller { epoll, kick }))
    }

    /// Returns a key for an awaited event that is not of a channel.
    pub fn key(&self) -> Key {
        let mut state = self.state();
        state.last_key += 1;
        KEYS + state.last_key
    }

    /// Stores a task until it is woken. `news` is readable when the manager has some. Returns true if the reactor does
    /// not run: it counts as running from here on, and the caller starts it.
    pub fn put(&self, key: Key, waker: &Waker, news: impl AsFd) -> io::Result<bool> {
        self.poller(news)?;
        let mut state = self.state();
        state.used = true;
        match state.tasks.get_mut(&key) {
            Some(task) if task.waker.will_wake(waker) => {}
            Some(task) => task.waker = waker.clone(),
            None => {
                let waker = waker.clone();
                state.tasks.insert(key, Task { waker, at: None });
            }
        }
        state.set_timer(key, None);
        Ok(!std::mem::replace(&mut state.runs, true))
    }

    /// Has a task look again at that time.
    pub fn wake_at(&self, key: Key, at: Instant) {
        let mut state = self.state();
        state.set_timer(key, Some(at));
        if state.sleeps_until.is_some_and(|until| at < until) {
            drop(state);
            self.kick();
        }
    }

    /// Removes a task that no longer waits.
    pub fn forget(&self, key: Key) {
        let forgotten = self.state().take(key);
        drop(forgotten); // not under the lock: it is code of the executor
    }

    /// Notes news for which any of the tasks may wait. They learn of it by [`Tasks::tell_news`], when no lock is held.
    pub fn has_news(&self) {
        self.news.store(true, Ordering::Release);
    }

    /// Wakes all tasks if there is news.
    pub fn tell_news(&self) {
        // Ordering: Acquire, partner: the Release in `has_news`: a woken task sees the news.
        if self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire) {
            let mut state = self.state();
            state.timers.clear();
            let all = std::mem::take(&mut state.tasks);
            drop(state);
            all.into_values().for_each(|task| task.waker.wake());
        }
    }

    pub fn wake(&self, key: Key) {
        let waker = self.state().take(key);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the channels that are awaited.
    pub fn channels(&self) -> Vec<Key> {
        let state = self.state();
        state.tasks.keys().copied().filter(|k| *k < KEYS).collect()
    }

    /// Ends the reactor's sleep.
    pub fn kick(&self) {
        if let Some(poller) = self.poller.get() {
            let _ = eventfd::signal(&poller.kick);
        }
    }

    /// Watches the doorbell of a channel.
    pub fn watch(&self, doorbell: impl AsFd, channel: Key) -> io::Result<()> {
        match self.poller.get() {
            Some(poller) => poller.epoll.add(doorbell, channel, Interest::Read),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub fn unwatch(&self, doorbell: impl AsFd) {
        if let Some(poller) = self.poller.get() {
            let _ = poller.epoll.remove(doorbell);
        }
    }

    /// Puts the reactor to sleep until an event, a task's time, or `until`.
    pub fn sleep(&self, until: Instant, woken: &mut Vec<Woken>) -> io::Result<()> {
        woken.clear();
        let Some(poller) = self.poller.get() else {
            return Ok(());
        };
        let mut state = self.state();
        let first = state.timers.first().map_or(until, |(at, _)| until.min(*at));
        state.sleeps_until = Some(first);
        drop(state);
        let mut ready = Vec::new();
        let left = first.saturating_duration_since(Instant::now());
        // A fraction of a millisecond is none to a clock that ticks slower.
        let waited = poller
            .epoll
            .wait(&mut ready, Some(left.max(Duration::from_micros(1))));
        self.state().sleeps_until = None;
        waited?;
        woken.extend(ready.into_iter().map(|ready: Ready| match ready.token {
            NEWS => Woken::News,
            KICK => Woken::Kick,
            channel => Woken::Doorbell {
                channel,
                hung_up: ready.hung_up,
            },
        }));
        if woken.contains(&Woken::Kick) {
            let _ = eventfd::drain(&poller.kick);
        }
        Ok(())
    }

    /// Wakes tasks whose time has come.
    pub fn wake_due(&self, now: Instant) {
        let mut wakers = Vec::new();
        let mut state = self.state();
        while let Some(&(at, key)) = state.timers.first()
            && at <= now
        {
            match state.take(key) {
                Some(waker) => wakers.push(waker),
                None => _ = state.timers.pop_first(),
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Says whether the reactor may end: no task waits, and none did since the last question. From then on it counts as
    /// not running.
    pub fn ends(&self) -> bool {
        let mut state = self.state();
        let idle = state.tasks.is_empty() && !std::mem::take(&mut state.used);
        if idle {
            state.runs = false;
        }
        idle
    }

    /// Says that the reactor does not run after all.
    pub fn ended(&self) {
        self.state().runs = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task(tasks: &Tasks, news: &OwnedFd, key: Key) -> Arc<Count> {
        let count = Arc::new(Count::default());
        let _ = tasks.put(key, &Waker::from(Arc::clone(&count)), news);
        count
    }

    fn woken(count: &Count) -> u32 {
        count.0.swap(0, Ordering::Relaxed)
    }

    #[test]
    fn a_waker_is_used_once() {
        let (tasks, news) = (Tasks::default(), eventfd::create().expect("eventfd"));
        let (a, b) = (task(&tasks, &news, 1), task(&tasks, &news, 2));
        tasks.wake(1);
        tasks.wake(1);
        assert_eq!((woken(&a), woken(&b)), (1, 0));
        tasks.tell_news();
        assert_eq!(woken(&b), 0, "there are none");
        tasks.has_news();
        tasks.tell_news();
        tasks.tell_news();
        assert_eq!((woken(&a), woken(&b)), (0, 1));
        let c = task(&tasks, &news, 2);
        tasks.forget(2);
        tasks.wake(2);
        assert_eq!(woken(&c), 0);
    }

    #[test]
    fn the_latest_waker_and_the_latest_time_count() {
        let (tasks, news) = (Tasks::default(), eventfd::create().expect("eventfd"));
        let old = task(&tasks, &news, 1);
        let now = Instant::now();
        tasks.wake_at(1, now);
        let new = task(&tasks, &news, 1);
        tasks.wake_due(now);
        assert_eq!((woken(&old), woken(&new)), (0, 0), "its time went with it");
        tasks.wake_at(1, now + Duration::from_secs(2));
        tasks.wake_at(1, now + Duration::from_secs(1));
        tasks.wake_due(now + Duration::from_millis(999));
        assert_eq!(woken(&new), 0);
        tasks.wake_due(now + Duration::from_secs(1));
        assert_eq!((woken(&old), woken(&new)), (0, 1));
        tasks.wake_at(1, now);
        tasks.wake_due(now);
        assert_eq!(woken(&new), 0, "it was woken and did not come back");
    }

    #[test]
    fn the_reactor_is_told_of_what_comes_sooner() {
        let (tasks, news) = (Tasks::default(), eventfd::create().expect("eventfd"));
        let count = task(&tasks, &news, 1);
        let far = Instant::now() + Duration::from_secs(1000);
        let mut why = Vec::new();
        std::thread::scope(|s| {
            s.spawn(|| tasks.sleep(far, &mut why).expect("epoll"));
            while tasks.state().sleeps_until.is_none() {
                std::thread::yield_now();
            }
            tasks.wake_at(1, Instant::now());
        });
        assert_eq!(why, [Woken::Kick]);
        tasks.wake_due(Instant::now());
        assert_eq!(woken(&count), 1);
        eventfd::signal(&news).expect("signal");
        let doorbell = eventfd::create().expect("eventfd");
        tasks.watch(&doorbell, 7).expect("epoll");
        eventfd::signal(&doorbell).expect("signal");
        tasks.sleep(far, &mut why).expect("epoll");
        let doorbell_7 = Woken::Doorbell {
            channel: 7,
            hung_up: false,
        };
        assert!(why.len() == 2 && why.contains(&Woken::News) && why.contains(&doorbell_7));
        tasks.unwatch(&doorbell);
        eventfd::signal(&news).expect("signal");
        tasks.sleep(far, &mut why).expect("epoll");
        assert_eq!(why, [Woken::News]);
    }

    #[test]
    fn the_reactor_ends_when_nobody_waited_for_a_while() {
        let (tasks, news) = (Tasks::default(), eventfd::create().expect("eventfd"));
        assert!(
            tasks.put(1, Waker::noop(), &news).expect("poller"),
            "start it"
        );
        assert!(!tasks.put(2, Waker::noop(), &news).expect("poller"));
        assert_eq!(tasks.channels().len(), 2);
        assert!(!tasks.ends());
        tasks.forget(1);
        assert!(!tasks.ends());
        tasks.forget(2);
        assert!(!tasks.ends(), "one waited until now");
        assert!(tasks.ends());
        let key = tasks.key();
        assert!(
            tasks.put(key, Waker::noop(), &news).expect("poller"),
            "again"
        );
        tasks.forget(key);
        assert!(
            tasks.channels().is_empty() && !tasks.ends(),
            "there was one"
        );
        assert!(tasks.ends());
    }
}
