//! The server: threads with an epoll each, over one store.

mod classic;
mod connection;
mod datagram;
mod meta;
mod report;
mod shared;
mod worker;

pub use shared::{Options, Sending};

use crate::stats::{Counts, Stats};
use crate::store::{Store, StoreOptions};
use shared::Shared;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};
use tranship_sys::eventfd;

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    bells: Vec<OwnedFd>,
    address: SocketAddr,
    udp: Option<SocketAddr>,
}

impl Server {
    /// Starts to serve.
    ///
    /// # Errors
    /// If an address cannot be had, or the kernel refuses memory or descriptors.
    pub fn start(options: Options) -> io::Result<Server> {
        let listener = TcpListener::bind(options.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let datagrams = options.udp.map(UdpSocket::bind).transpose()?;
        let udp = datagrams.as_ref().map(UdpSocket::local_addr).transpose()?;
        let threads = options.threads.max(1);
        let store = Store::new(StoreOptions {
            memory: options.memory,
            shards: (threads * 8).next_power_of_two(),
        })
        .map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            store,
            counts: (0..threads).map(|_| Counts::default()).collect(),
            options,
            open: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            flush_at: AtomicI64::new(0),
            started: Instant::now(),
            birth: SystemTime::now(),
        });
        let listener = Arc::new(listener);
        let mut datagrams = datagrams;
        let mut server = Server {
            shared: Arc::clone(&shared),
            workers: Vec::new(),
            bells: Vec::new(),
            address,
            udp,
        };
        for number in 0..threads {
            let bell = eventfd::create()?;
            let worker = worker::Worker::new(
                Arc::clone(&shared),
                number,
                Arc::clone(&listener),
                datagrams.take(),
                bell.try_clone()?,
            )?;
            server.bells.push(bell);
            let thread = std::thread::Builder::new().name(format!("cache-{number}"));
            server.workers.push(thread.spawn(move || worker.run())?);
        }
        Ok(server)
    }

    /// Where it serves TCP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves UDP.
    #[must_use]
    pub fn udp(&self) -> Option<SocketAddr> {
        self.udp
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// What it stores.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Ends it: connections are closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Ordering: release, partner of the workers' acquire after the bell.
        self.shared.stop.store(true, Ordering::Release);
        for bell in &self.bells {
            let _ = eventfd::signal(bell);
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
