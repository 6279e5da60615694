//! The worker's side: a service takes requests of all its clients.

use crate::hall::Hall;
use crate::lock;
use crate::peer::{Ahead, Peer};
use crate::request::Request;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tranship_core::{Error, ErrorKind};

/// A service: a name at which many clients call. Clones are workers of the same service: each request goes to one that is idle.
///
/// Dropping the last clone ends the service. A request that was taken can still be answered. The other calls fail with
/// `PeerGone` when their client's last taken request is gone.
///
/// Crash: a client that dies ends its own calls alone ([`Request::is_cancelled`]).
#[derive(Clone, Debug)]
pub struct Service {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    kept: Mutex<Kept>,
    free: Condvar,
}

#[derive(Debug)]
struct Kept {
    /// `None`: a worker waits in it.
    hall: Option<Box<Hall>>,
    tasks: Vec<Waker>,
    sleepers: usize,
}

/// A worker's turn in the hall. It ends with this, also when a future is dropped.
struct Turn<'a> {
    shared: &'a Shared,
    hall: Option<Box<Hall>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut kept = lock(&self.shared.kept);
        kept.hall = self.hall.take();
        let (tasks, sleepers) = (std::mem::take(&mut kept.tasks), kept.sleepers);
        drop(kept);
        if sleepers > 0 {
            // Each can only take its turn: one is enough.
            self.shared.free.notify_one();
        }
        tasks.into_iter().for_each(Waker::wake);
    }
}

impl Shared {
    fn turn(&self, deadline: Option<Instant>) -> Option<Turn<'_>> {
        let mut kept = lock(&self.kept);
        loop {
            if let Some(hall) = kept.hall.take() {
                let (shared, hall) = (self, Some(hall));
                return Some(Turn { shared, hall });
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            kept.sleepers += 1;
            kept = match left {
                Some(left) => {
                    let woken = self.free.wait_timeout(kept, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = self.free.wait(kept);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
            kept.sleepers -= 1;
        }
    }

    async fn turn_async(&self) -> Turn<'_> {
        poll_fn(|context| {
            let mut kept = lock(&self.kept);
            if let Some(hall) = kept.hall.take() {
                let (shared, hall) = (self, Some(hall));
                return Poll::Ready(Turn { shared, hall });
            }
            if !kept.tasks.iter().any(|t| t.will_wake(context.waker())) {
                kept.tasks.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl Ahead for Shared {
    /// Does nothing while another worker waits in the hall: that one reads what comes.
    fn look_ahead(&self, peer: &Peer) {
        if let Some(mut turn) = self.turn(Some(Instant::now()))
            && let Some(hall) = &mut turn.hall
        {
            hall.look_ahead(peer);
        }
    }
}

impl Service {
    /// `hall` is given what its clients' requests look ahead by.
    pub(crate) fn new(hall: impl FnOnce(Weak<dyn Ahead>) -> Hall) -> Service {
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            kept: Mutex::new(Kept {
                hall: Some(Box::new(hall(shared.clone()))),
                tasks: Vec::new(),
                sleepers: 0,
            }),
            free: Condvar::new(),
        });
        Service { shared }
    }

    /// Takes the next request. It waits for ever.
    ///
    /// # Errors
    /// `CutOff` when no manager can be reached any more; `Forked`; `System`. A client that dies or lies is no error here.
    pub fn recv(&self) -> Result<Request, Error> {
        loop {
            if let Some(request) = self.next_by(None)? {
                return Ok(request);
            }
        }
    }

    /// Takes a request if one is there.
    ///
    /// # Errors
    /// As [`recv`](Service::recv).
    pub fn try_recv(&self) -> Result<Option<Request>, Error> {
        self.next_by(Some(Instant::now()))
    }

    /// Takes the next request, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Service::recv), and `TimedOut`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Request, Error> {
        let deadline = Instant::now().checked_add(timeout);
        self.next_by(deadline)?.ok_or_else(|| {
            let text = format!("no client has called in {} ms", timeout.as_millis());
            Error::new(ErrorKind::TimedOut, text)
        })
    }

    fn next_by(&self, deadline: Option<Instant>) -> Result<Option<Request>, Error> {
        let Some(mut turn) = self.shared.turn(deadline) else {
            return Ok(None);
        };
        let Some(hall) = &mut turn.hall else {
            return Ok(None);
        };
        loop {
            if let Some(request) = hall.try_next()? {
                return Ok(Some(request));
            }
            let is_over = || deadline.is_some_and(|at| Instant::now() >= at);
            if !is_over() && hall.spin() {
                continue;
            }
            hall.admit()?;
            if let Some(request) = hall.try_next()? {
                return Ok(Some(request));
            }
            if is_over() {
                return Ok(None);
            }
            hall.sleep(deadline)?;
        }
    }

    /// Takes the next request, for awaiting in any runtime. A future that is dropped has taken none.
    ///
    /// # Errors
    /// As [`recv`](Service::recv).
    pub async fn recv_async(&self) -> Result<Request, Error> {
        let mut turn = self.shared.turn_async().await;
        let Some(hall) = &mut turn.hall else {
            return Err(ErrorKind::Internal.into());
        };
        loop {
            hall.admit()?;
            if let Some(request) = hall.try_next()? {
                return Ok(request);
            }
            hall.wait_async().await?;
        }
    }

    /// Returns how many clients are connected, as far as workers have taken notice. `None` while a worker waits for requests.
    pub fn clients(&self) -> Option<usize> {
        lock(&self.shared.kept)
            .hall
            .as_ref()
            .map(|hall| hall.clients())
    }
}
