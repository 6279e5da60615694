//! Driver of a channel: the thread that does the channel's work. The program's own thread does the work while it is in
//! a call of the channel; otherwise the channel's thread does it. Thus no thread switch lies between the program and
//! the socket, and news that arrives while the program is elsewhere is still handled.
//!
//! Each event wakes one of the threads that wait on one epoll instance. That thread does the work and watches the
//! socket again. The kernel wakes the thread that began to wait last: this is the program's thread, whenever it waits.

use crate::wire::Wire;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tranship_core::carrier::Driver;
use tranship_core::{BufferMut, Error, Pool, error};
use tranship_sys::epoll::{Epoll, Interest, Ready};
use tranship_sys::eventfd;

/// Number of the doorbell in the epoll instance; that of the connection is 0.
const DOORBELL: u64 = 1;
/// The first pause of a thread that a waiting program replaces; it doubles up to the last.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// Time that one wait for memory lasts before the thread checks whether the memory is still wanted.
const MEMORY_ROUND: Duration = Duration::from_millis(50);
/// Longest delay before a channel's thread reads the other end's messages while the program sends all the time and
/// waits for nothing.
const TICK: Duration = Duration::from_millis(1);
/// Time between two checks where the kernel cannot wait.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Work of one side of a channel. Only [`Side::finish`] waits.
pub(crate) trait Side: Send + Sized {
    /// Reason for the end.
    type Over: Send;
    fn wire(&mut self) -> &mut Wire;
    /// Does everything that can be done now.
    fn turn(&mut self) -> Result<(), Self::Over>;
    /// Does the work that the program's end has made necessary.
    fn stir(&mut self) -> Result<(), Self::Over>;
    /// Returns the time until there is work to do even if nothing happens.
    fn pause(&self) -> Duration;
    /// Returns whether the next news can wait for [`TICK`]: it only says what the other end has taken.
    fn is_patient(&mut self) -> bool {
        false
    }
    /// Returns the pool and the size of the memory without which nothing more can be done.
    fn lacks(&self) -> Option<(Pool, usize)> {
        None
    }
    /// Takes the result of the wait for the memory that [`Side::lacks`] named.
    fn supply(&mut self, _memory: Result<BufferMut, Error>) {}
    /// Ends the channel, on the channel's own thread.
    fn finish(self, over: Self::Over);
}

pub(crate) struct ChannelDriver<S: Side> {
    state: Mutex<State<S>>,
    /// The thread that holds the state must check for work again after it releases the state.
    again: AtomicBool,
    /// The program waits for the connection.
    waits: AtomicBool,
    /// The connection has told that something is new, and is not watched.
    told: AtomicBool,
    epoll: Epoll,
    /// Doorbell, also in the epoll instance: for news that the connection does not show.
    doorbell: OwnedFd,
    thread: Mutex<Thread>,
    called: Condvar,
}

struct State<S: Side> {
    /// The side; none after the end.
    side: Option<S>,
    over: Option<S::Over>,
}

#[derive(Default)]
struct Thread {
    /// The thread is needed.
    is_called: bool,
    /// The thread does not wait for the connection, because the program does.
    is_parked: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Side + 'static> ChannelDriver<S> {
    pub(crate) fn new(mut side: S) -> Result<Arc<ChannelDriver<S>>, Error> {
        let epoll = Epoll::new().map_err(error::system("epoll_create"))?;
        let doorbell = eventfd::create().map_err(error::system("eventfd"))?;
        let added = epoll.add(&doorbell, DOORBELL, Interest::Read);
        added.map_err(error::system("epoll_ctl"))?;
        side.wire().watch(&epoll)?;
        let side = Some(side);
        Ok(Arc::new(ChannelDriver {
            state: Mutex::new(State { side, over: None }),
            again: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            told: AtomicBool::new(false),
            epoll,
            doorbell,
            thread: Mutex::default(),
            called: Condvar::new(),
        }))
    }

    /// Runs the channel's own thread until its end.
    pub(crate) fn run(&self) {
        loop {
            lock(&self.thread).is_called = false;
            let mut state = lock(&self.state);
            self.again.store(false, Ordering::SeqCst);
            let Some(side) = &mut state.side else { return };
            let done = self.turn(side, true);
            let (pause, lacks) = (side.pause(), side.lacks());
            let is_patient = side.is_patient();
            if let Some(over) = state.over.take().or(done.err()) {
                let side = state.side.take();
                drop(state);
                if let Some(side) = side {
                    side.finish(over);
                }
                return self.ring();
            }
            drop(state);
            // Ordering: SeqCst, after the state is released; partner: the fence in `attempt`. A thread that found the
            // state taken is seen here.
            fence(Ordering::SeqCst);
            if self.again.swap(false, Ordering::SeqCst) {
                continue;
            }
            if let Some((pool, bytes)) = lacks {
                let memory = pool.alloc_timeout(bytes, MEMORY_ROUND);
                if let Some(side) = &mut lock(&self.state).side {
                    side.supply(memory);
                }
                continue;
            }
            // A program that began to wait meanwhile may have found the state taken.
            // Ordering: SeqCst, as in `wait`: it sees the state free, or we see it wait.
            if self.waits.load(Ordering::SeqCst) {
                self.ring();
            }
            match is_patient {
                true => _ = self.park(TICK),
                false => self.rest(pause),
            }
        }
    }

    /// Rests until there may be something for the channel's thread.
    fn rest(&self, pause: Duration) {
        let mut parked = PAUSES[0];
        while self.waits.load(Ordering::SeqCst) {
            // All news is the program's to handle.
            if self.park(parked) {
                return;
            }
            parked = (parked * 2).min(PAUSES[1]);
        }
        self.sleep(pause, true);
    }

    /// Leaves the connection alone for at most `limit`. Returns whether the thread was called meanwhile.
    fn park(&self, limit: Duration) -> bool {
        let mut thread = lock(&self.thread);
        thread.is_parked = true;
        let is_wanted = |thread: &mut Thread| thread.is_called || !thread.is_parked;
        let waited = self
            .called
            .wait_timeout_while(thread, limit, |thread| !is_wanted(thread));
        let (mut thread, _) = waited.unwrap_or_else(PoisonError::into_inner);
        thread.is_parked = false;
        thread.is_called
    }

    /// Sleeps until there is news, for at most `limit`.
    fn sleep(&self, limit: Duration, is_thread: bool) {
        let mut ready: Vec<Ready> = Vec::with_capacity(2);
        if self.epoll.wait(&mut ready, Some(limit)).is_err() {
            std::thread::sleep(limit.min(POLL_INTERVAL));
        }
        if ready.iter().any(|ready| ready.token != DOORBELL) {
            self.told.store(true, Ordering::SeqCst);
        }
        // A call to the thread is left to the thread.
        if ready.iter().any(|ready| ready.token == DOORBELL)
            && (is_thread || !lock(&self.thread).is_called)
        {
            // This fails only if another thread was quicker.
            let _ = eventfd::drain(&self.doorbell);
        }
    }

    fn ring(&self) {
        // This fails only if the doorbell is rung already.
        let _ = eventfd::signal(&self.doorbell);
    }

    /// Notes that the thread is needed, and wakes it.
    fn call(&self) {
        let mut thread = lock(&self.thread);
        if std::mem::replace(&mut thread.is_called, true) {
            return;
        }
        match thread.is_parked {
            true => self.called.notify_one(),
            false => self.ring(),
        }
    }

    /// Does everything that can be done, and watches the connection again.
    fn turn(&self, side: &mut S, is_thread: bool) -> Result<(), S::Over> {
        let mut was_told = false;
        loop {
            side.turn()?;
            // Ordering: SeqCst, before the connection is watched again. A thread that was told later comes here itself,
            // or makes this one check again. `told` stays set until the connection is watched: more news may arrive
            // before that.
            was_told |= self.told.swap(false, Ordering::SeqCst);
            // The program itself reports the messages that it takes, in a moment.
            if side.wire().arm(&self.epoll, was_told, is_thread) {
                return Ok(());
            }
        }
    }

    fn stir_now(&self, side: &mut S) -> Result<(), S::Over> {
        side.stir()?;
        match side.wire().arm(&self.epoll, false, false) {
            true => Ok(()),
            false => self.turn(side, false),
        }
    }

    /// Does the work on the program's thread. If another thread holds the state, that thread does it then.
    fn attempt(&self, work: impl FnOnce(&mut S) -> Result<(), S::Over>) {
        // Ordering: SeqCst, before the attempt; partners: the fences after the release, in `run` and below. The thread
        // that holds the state and keeps us from it sees this store then.
        self.again.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.again.store(false, Ordering::SeqCst);
        if state.over.is_some() {
            return;
        }
        let Some(side) = &mut state.side else { return };
        let done = work(side);
        let is_needed = done.is_err() || side.lacks().is_some();
        state.over = done.err();
        drop(state);
        // Ordering: as in `run`.
        fence(Ordering::SeqCst);
        // Another thread of the program may have come and gone meanwhile, for example one that is short of memory.
        if is_needed || self.again.load(Ordering::SeqCst) {
            self.call();
        }
    }
}

impl<S: Side + 'static> Driver for ChannelDriver<S> {
    fn stir(&self) {
        self.attempt(|side| self.stir_now(side));
    }

    fn look(&self) {
        self.attempt(|side| self.turn(side, false));
    }

    fn wait(&self, limit: Duration, is_ready: &dyn Fn() -> bool) {
        let since = Instant::now();
        // Ordering: SeqCst: the thread sees it when it has let go of the state, or we find that free.
        self.waits.store(true, Ordering::SeqCst);
        loop {
            self.attempt(|side| self.turn(side, false));
            if is_ready() {
                break;
            }
            let left = limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            self.sleep(left, false);
        }
        self.waits.store(false, Ordering::SeqCst);
        if since.elapsed() >= PAUSES[0] {
            let mut thread = lock(&self.thread);
            if std::mem::take(&mut thread.is_parked) {
                self.called.notify_one();
            }
        }
    }
}

impl<S: Side> std::fmt::Debug for ChannelDriver<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChannelDriver")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, BorrowedFd};
    use tranship_transport::{FrameBytes, Source, Target, Transport};

    /// A connection that always has something.
    #[derive(Debug)]
    struct Restless {
        news: OwnedFd,
        /// Number of times that the connection has more to do before it can be waited for.
        more: u32,
    }

    impl Transport for Restless {
        fn send(&mut self, _: &[u8], _: Option<&Arc<dyn Source>>) -> Result<(), Error> {
            Ok(())
        }

        fn recv(&mut self) -> Result<Option<(FrameBytes, usize)>, Error> {
            Ok(None)
        }

        fn came(&self) -> usize {
            0
        }

        fn fill(&mut self, _: &mut dyn Target) -> Result<bool, Error> {
            Ok(true)
        }

        fn done(&mut self) -> u64 {
            0
        }

        fn peer_place(&self) -> String {
            "here".to_owned()
        }

        fn why(&self) -> Option<String> {
            None
        }

        fn watched(&self) -> (BorrowedFd<'_>, bool) {
            (self.news.as_fd(), false)
        }

        fn arm(&mut self, _: bool) -> bool {
            self.more = self.more.saturating_sub(1);
            self.more == 0
        }
    }

    struct Nothing(Wire);

    impl Side for Nothing {
        type Over = ();

        fn wire(&mut self) -> &mut Wire {
            &mut self.0
        }

        fn turn(&mut self) -> Result<(), ()> {
            Ok(())
        }

        fn stir(&mut self) -> Result<(), ()> {
            Ok(())
        }

        fn pause(&self) -> Duration {
            Duration::ZERO
        }

        fn finish(self, (): ()) {}
    }

    /// A connection that has told of news is watched again, however often there was more news before that. An example
    /// is a connection that is lost while another one is there at once.
    #[test]
    fn what_was_told_is_watched_again() {
        for more in 1..4 {
            let news = eventfd::create().expect("a descriptor");
            eventfd::signal(&news).expect("news");
            let side = Nothing(Wire::new(Box::new(Restless { news, more })));
            let driver = ChannelDriver::new(side).expect("a driver");
            let tells = || {
                let mut ready = Vec::with_capacity(2);
                let waited = driver.epoll.wait(&mut ready, Some(Duration::ZERO));
                waited.expect("wait");
                !ready.is_empty()
            };
            assert!(tells(), "there is something");
            assert!(!tells(), "it is told once");
            driver.told.store(true, Ordering::SeqCst);
            let mut state = lock(&driver.state);
            let side = state.side.as_mut().expect("it lasts");
            driver.turn(side, true).expect("no end");
            assert!(tells(), "after {more} looks");
        }
    }

    /// A thread that found the state taken need not come again: the channel's thread looks after its news.
    #[test]
    fn who_came_meanwhile_is_not_forgotten() {
        let news = eventfd::create().expect("a descriptor");
        let side = Nothing(Wire::new(Box::new(Restless { news, more: 1 })));
        let driver = ChannelDriver::new(side).expect("a driver");
        driver.attempt(|_| {
            let other = std::thread::scope(|scope| scope.spawn(|| driver.stir()).join());
            other.expect("no panic");
            Ok(())
        });
        assert!(lock(&driver.thread).is_called);
    }
}
