//! A server's threads, and its sockets.

use super::shared::Shared;
use super::worker::Worker;
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
    bells: Vec<OwnedFd>,
    workers: Mutex<Vec<JoinHandle<Worker>>>,
    /// The server ends, for good.
    ending: AtomicBool,
    gone: Mutex<Gone>,
}

#[derive(Default)]
struct Gone {
    is: bool,
    tell: Option<Told>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} workers", self.bells.len())
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
        bells: Vec<OwnedFd>,
    ) -> Running {
        Running {
            shared,
            listener,
            datagrams,
            bells,
            workers: Mutex::default(),
            ending: AtomicBool::new(false),
            gone: Mutex::default(),
        }
    }

    /// Has these work.
    pub(super) fn serve(&self, workers: Vec<Worker>) -> io::Result<()> {
        // Ordering: as in `pause`; threads that begin see it.
        let ends = self.is_stopping();
        self.shared.stop.store(ends, Ordering::Release);
        let mut threads = lock(&self.workers);
        for worker in workers {
            let thread = std::thread::Builder::new().name(format!("cache-{}", worker.number()));
            threads.push(thread.spawn(move || worker.run())?);
        }
        Ok(())
    }

    /// Has them stop where they are.
    pub(super) fn pause(&self) -> Vec<Worker> {
        // Ordering: release, partner of the workers' acquire after the bell.
        self.shared.stop.store(true, Ordering::Release);
        for bell in &self.bells {
            let _ = eventfd::signal(bell);
        }
        let threads = std::mem::take(&mut *lock(&self.workers));
        let ended = threads.into_iter().map(JoinHandle::join);
        ended.filter_map(Result::ok).collect()
    }

    pub(super) fn end(&self) {
        // Ordering: release with acquire in `is_stopping`.
        self.ending.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// It was handed over.
    pub(super) fn gone(&self) {
        let mut gone = lock(&self.gone);
        gone.is = true;
        let tell = gone.tell.take();
        drop(gone);
        if let Some(tell) = tell {
            tell();
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        lock(&self.gone).is
    }

    pub(super) fn when_gone(&self, tell: Told) {
        let mut gone = lock(&self.gone);
        if gone.is {
            drop(gone);
            tell();
        } else {
            gone.tell = Some(tell);
        }
    }
}
