//! A server's threads, and its sockets.

use super::shared::Shared;
use super::worker::Worker;
use crate::share::ShareServer;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tranship_sys::eventfd;

/// What somebody wants to be told.
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

/// Who serves, while nobody does.
#[derive(Default)]
pub(super) struct Crew {
    pub(super) workers: Vec<Worker>,
    /// For readers by reference.
    pub(super) share_server: Option<ShareServer>,
}

#[derive(Default)]
struct Threads {
    workers: Vec<JoinHandle<Worker>>,
    share_server: Option<JoinHandle<ShareServer>>,
}

#[derive(Default)]
struct Gone {
    /// The process that has it.
    to: Option<u32>,
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

    /// Has these work.
    pub(super) fn serve(&self, crew: Crew) -> io::Result<()> {
        // Ordering: as in `pause`; threads that begin see it.
        let ends = self.is_stopping();
        self.shared.stop.store(ends, Ordering::Release);
        let mut threads = lock(&self.threads);
        for worker in crew.workers {
            let thread = std::thread::Builder::new().name(format!("cache-{}", worker.number()));
            threads.workers.push(thread.spawn(move || worker.run())?);
        }
        if let Some(share_server) = crew.share_server {
            let (shared, doorbell) = (Arc::clone(&self.shared), self.share_doorbell.try_clone()?);
            let work = move || {
                let share_server =
                    share_server.run(&shared.store, &shared.shown, &shared.stop, &doorbell);
                let _ = eventfd::drain(&doorbell);
                share_server
            };
            let thread = std::thread::Builder::new().name("cache-shm".to_owned());
            threads.share_server = Some(thread.spawn(work)?);
        }
        Ok(())
    }

    /// Has them stop where they are.
    pub(super) fn pause(&self) -> Crew {
        // Ordering: release, partner of the workers' acquire after the doorbell.
        self.shared.stop.store(true, Ordering::Release);
        for doorbell in self.doorbells.iter().chain([&self.share_doorbell]) {
            let _ = eventfd::signal(doorbell);
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        let ended = threads.workers.into_iter().map(JoinHandle::join);
        Crew {
            workers: ended.filter_map(Result::ok).collect(),
            share_server: threads
                .share_server
                .and_then(|share_server| share_server.join().ok()),
        }
    }

    pub(super) fn end(&self) {
        // Ordering: release with acquire in `is_stopping`.
        self.ending.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// It was handed over.
    pub(super) fn gone(&self, to: u32) {
        let mut gone = lock(&self.gone);
        gone.to = Some(to);
        let tell = gone.tell.take();
        drop(gone);
        if let Some(tell) = tell {
            tell();
        }
    }

    pub(super) fn gone_to(&self) -> Option<u32> {
        lock(&self.gone).to
    }

    pub(super) fn when_gone(&self, tell: Told) {
        let mut gone = lock(&self.gone);
        if gone.to.is_some() {
            drop(gone);
            tell();
        } else {
            gone.tell = Some(tell);
        }
    }
}
