//! A server's threads, and its sockets.

use super::shared::Shared;
use super::worker::Worker;
use crate::share::ShareServer;
use std::any::Any;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tranship_sys::eventfd;

/// Callback of a caller that wants to be told.
type Told = Box<dyn FnOnce() + Send>;

pub(super) struct Running {
    pub(super) shared: Arc<Shared>,
    pub(super) listener: Arc<TcpListener>,
    pub(super) datagrams: Option<UdpSocket>,
    doorbells: Vec<OwnedFd>,
    share_doorbell: OwnedFd,
    threads: Mutex<Threads>,
    /// The server ends, for good.
    ending: AtomicBool,
    gone: Mutex<Gone>,
}

/// Threads of a server, while they do not serve.
#[derive(Default)]
pub(super) struct Crew {
    pub(super) workers: Vec<Worker>,
    /// Share server, for readers by reference.
    pub(super) share_server: Option<ShareServer>,
}

#[derive(Default)]
struct Threads {
    workers: Vec<JoinHandle<Option<Worker>>>,
    share_server: Option<JoinHandle<Option<ShareServer>>>,
}

#[derive(Default)]
struct Gone {
    /// The process that has it.
    to: Option<u32>,
    /// Thread that ended although it was not told to, and the reason.
    failed: Option<String>,
    tell: Option<Told>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} workers", self.doorbells.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    pub(super) fn new(
        shared: Arc<Shared>,
        listener: Arc<TcpListener>,
        datagrams: Option<UdpSocket>,
        doorbells: Vec<OwnedFd>,
    ) -> io::Result<Running> {
        Ok(Running {
            share_doorbell: eventfd::create()?,
            shared,
            listener,
            datagrams,
            doorbells,
            threads: Mutex::default(),
            ending: AtomicBool::new(false),
            gone: Mutex::default(),
        })
    }

    /// Makes the threads work.
    pub(super) fn serve(self: &Arc<Running>, crew: Crew) -> io::Result<()> {
        // Ordering: as in `pause`; threads that begin see it.
        let ends = self.is_stopping();
        self.shared.stop.store(ends, Ordering::Release);
        let mut threads = lock(&self.threads);
        for worker in crew.workers {
            let name = format!("cache-{}", worker.number());
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name(name.clone());
            let work = move || own.watch(&name, || worker.run());
            threads.workers.push(thread.spawn(work)?);
        }
        if let Some(share_server) = crew.share_server {
            let (own, doorbell) = (Arc::clone(self), self.share_doorbell.try_clone()?);
            let work = move || {
                let Shared {
                    store, shown, stop, ..
                } = &*own.shared;
                let serve = || share_server.run(store, shown, stop, &doorbell);
                let share_server = own.watch("cache-shm", serve);
                let _ = eventfd::drain(&doorbell);
                share_server
            };
            let thread = std::thread::Builder::new().name("cache-shm".to_owned());
            threads.share_server = Some(thread.spawn(work)?);
        }
        Ok(())
    }

    /// Makes the threads stop where they are.
    pub(super) fn pause(&self) -> Crew {
        // Ordering: release, partner of the workers' acquire after the doorbell.
        self.shared.stop.store(true, Ordering::Release);
        for doorbell in self.doorbells.iter().chain([&self.share_doorbell]) {
            let _ = eventfd::signal(doorbell);
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        let ended = threads.workers.into_iter().map(JoinHandle::join);
        Crew {
            workers: ended.filter_map(|worker| worker.ok().flatten()).collect(),
            share_server: threads
                .share_server
                .and_then(|share_server| share_server.join().ok().flatten()),
        }
    }

    /// Runs a thread's work, which goes on until all are told to stop. A thread that ends before takes the server with
    /// it: its clients are gone, its part of the work is not done, and its half-done work is not known.
    fn watch<T>(&self, name: &str, work: impl FnOnce() -> T) -> Option<T> {
        let done = self.watch_panics(name, work)?;
        // Ordering: acquire, partner of the release in `pause`.
        if !self.shared.stop.load(Ordering::Acquire) {
            self.failed(format!("thread `{name}` ended by itself"));
        }
        Some(done)
    }

    /// Runs work that may end, otherwise like [`Running::watch`].
    pub(super) fn watch_panics<T>(&self, name: &str, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.failed(format!("thread `{name}` panicked: {}", words(&*panic)));
                None
            }
        }
    }

    pub(super) fn end(&self) {
        // Ordering: release with acquire in `is_stopping`.
        self.ending.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Notes that the server was handed over.
    pub(super) fn gone(&self, to: u32) {
        let mut gone = lock(&self.gone);
        gone.to = Some(to);
        let tell = gone.tell.take();
        drop(gone);
        if let Some(tell) = tell {
            tell();
        }
    }

    fn failed(&self, why: String) {
        tracing::error!(why, "the cache cannot go on");
        let mut gone = lock(&self.gone);
        gone.failed.get_or_insert(why);
        let tell = gone.tell.take();
        drop(gone);
        if let Some(tell) = tell {
            tell();
        }
    }

    /// Returns why it cannot go on, if it cannot.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.gone).failed.clone()
    }

    pub(super) fn gone_to(&self) -> Option<u32> {
        lock(&self.gone).to
    }

    pub(super) fn when_gone(&self, tell: Told) {
        let mut gone = lock(&self.gone);
        if gone.to.is_some() || gone.failed.is_some() {
            drop(gone);
            tell();
        } else {
            gone.tell = Some(tell);
        }
    }
}

/// Returns the message of a panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a word")
}
