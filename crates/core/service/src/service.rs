//! The worker's side: a service takes requests of all its clients.

use crate::hall::Hall;
use crate::lock;
use crate::pause::Pause;
use crate::peer::{Ahead, Done, Peer, Waiting};
use crate::request::Request;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tranship_core::error::system;
use tranship_core::topics::Sleep;
use tranship_core::{Domain, Error, ErrorKind};
use tranship_sys::eventfd;

/// Time after which a thread that waits for items gives way. A worker whose own time is over waits for that.
const GIVES_WAY: Duration = Duration::from_millis(1);

/// A service: a name at which many clients call. Clones are workers of the same service. Each request goes to an idle
/// worker.
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
    /// Wakes tasks at their deadlines.
    domain: Domain,
    kept: Mutex<Kept>,
    /// For workers that wait for a request.
    free: Condvar,
    /// For workers that wait for items of a call.
    items: Condvar,
    /// Wakes a worker that waits in the hall for items.
    nudge: OwnedFd,
}

/// The right to enter the hall. A worker that waits for requests goes before a worker that waits for items: it can use
/// more of the messages that it reads.
#[derive(Debug)]
struct Kept {
    /// `None`: a worker waits in the hall.
    hall: Option<Box<Hall>>,
    /// The worker in the hall waits for items, and gives way.
    for_items: bool,
    /// The task in the hall that waits for items.
    leader: Option<Waker>,
    tasks: Vec<Waker>,
    /// Workers that wait for the hall, to wait for requests.
    idle: usize,
    /// Threads that wait for items.
    waiting: usize,
}

/// A worker's turn in the hall. It ends with this, also when a future is dropped.
struct Turn<'a> {
    shared: &'a Shared,
    hall: Option<Box<Hall>>,
}

impl Turn<'_> {
    fn hall(&mut self) -> Result<&mut Hall, Error> {
        let hall = self.hall.as_deref_mut();
        hall.ok_or_else(|| ErrorKind::Internal.into())
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut kept = lock(&self.shared.kept);
        kept.hall = self.hall.take();
        kept.for_items = false;
        kept.leader = None;
        if kept.idle > 0 || kept.waiting > 0 || !kept.tasks.is_empty() {
            self.shared.hall_is_free(kept);
        }
    }
}

/// A task that waits for the hall, to wait for requests. It is counted until it has its turn or is dropped.
struct Idle<'a> {
    shared: &'a Shared,
    counted: bool,
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if self.counted {
            lock(&self.shared.kept).idle -= 1;
            self.shared.tell();
        }
    }
}

/// Wakes a task at its deadline.
struct Alarm {
    sleep: Sleep,
    deadline: Option<Instant>,
}

impl Alarm {
    fn set(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let Some(at) = self.deadline else {
            return Ok(());
        };
        let left = at.saturating_duration_since(Instant::now());
        self.sleep.begin(std::iter::empty(), context, left)
    }

    fn is_over(&self) -> bool {
        is_over(self.deadline)
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| Instant::now() >= at)
}

/// Sleeps until it is told, at most `left`. It may come back for no reason.
fn wait<'a>(
    kept: MutexGuard<'a, Kept>,
    told: &Condvar,
    left: Option<Duration>,
) -> MutexGuard<'a, Kept> {
    match left {
        Some(left) => {
            let woken = told.wait_timeout(kept, left);
            woken.unwrap_or_else(PoisonError::into_inner).0
        }
        None => told.wait(kept).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Next step of a worker that waits for items.
enum Next<'a> {
    Done,
    Read(Turn<'a>),
}

impl Shared {
    #[cold]
    fn hall_is_free(&self, mut kept: MutexGuard<'_, Kept>) {
        let tasks = std::mem::take(&mut kept.tasks);
        let (idle, waiting) = (kept.idle, kept.waiting);
        drop(kept);
        if idle > 0 {
            // Each can only take its turn: one is enough.
            self.free.notify_one();
        } else if waiting > 0 {
            self.items.notify_all();
        }
        tasks.into_iter().for_each(Waker::wake);
    }

    fn enter(&self, kept: &mut Kept) -> Option<Turn<'_>> {
        let hall = Some(kept.hall.take()?);
        Some(Turn { shared: self, hall })
    }

    /// Asks a worker that waits in the hall for items to give way.
    fn nudge(&self, kept: &mut Kept) {
        if kept.for_items {
            // It fails only if it is readable, or without memory; then the worker looks after `hall::SLEEP`.
            let _ = eventfd::signal(&self.nudge);
            kept.leader.take().into_iter().for_each(Waker::wake);
        }
    }

    /// A turn in the hall for a worker that waits for requests.
    fn turn(&self, deadline: Option<Instant>) -> Option<Turn<'_>> {
        let mut kept = lock(&self.kept);
        let mut deadline = deadline;
        let mut waits_on = true;
        loop {
            if let Some(turn) = self.enter(&mut kept) {
                return Some(turn);
            }
            let mut left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                // A task gives way when it is polled, perhaps by this very thread.
                if !waits_on || !kept.for_items || kept.leader.is_some() {
                    return None;
                }
                waits_on = false;
                deadline = Instant::now().checked_add(GIVES_WAY);
                left = Some(GIVES_WAY);
            }
            self.nudge(&mut kept);
            kept.idle += 1;
            kept = wait(kept, &self.free, left);
            kept.idle -= 1;
        }
    }

    async fn turn_async(&self) -> Turn<'_> {
        let mut idle = Idle {
            shared: self,
            counted: false,
        };
        poll_fn(|context| {
            let mut kept = lock(&self.kept);
            if let Some(turn) = self.enter(&mut kept) {
                return Poll::Ready(turn);
            }
            kept.idle += usize::from(!idle.counted);
            idle.counted = true;
            self.nudge(&mut kept);
            kept.await_by(context);
            Poll::Pending
        })
        .await
    }

    /// Returns the next step of a worker that waits for items; `None`: it waits.
    fn next(&self, kept: &mut Kept, done: &mut Done<'_>) -> Option<Next<'_>> {
        if done() {
            return Some(Next::Done);
        }
        if kept.idle > 0 {
            return None;
        }
        let turn = self.enter(kept)?;
        kept.for_items = true;
        Some(Next::Read(turn))
    }

    fn next_by(&self, deadline: Option<Instant>, mut done: Done<'_>) -> Next<'_> {
        let mut kept = lock(&self.kept);
        loop {
            if let Some(next) = self.next(&mut kept, &mut done) {
                return next;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Next::Done;
            }
            kept.waiting += 1;
            kept = wait(kept, &self.items, left);
            kept.waiting -= 1;
        }
    }

    /// Reads what is there, then waits for more, or for a worker that waits for requests.
    async fn read_async(
        &self,
        turn: &mut Turn<'_>,
        alarm: &mut Alarm,
        done: &mut Done<'_>,
    ) -> Result<(), Error> {
        let hall = turn.hall()?;
        hall.read();
        if done() {
            return Ok(());
        }
        let mut reading = pin!(hall.wait_async());
        poll_fn(|context| {
            if let Poll::Ready(read) = reading.as_mut().poll(context) {
                return Poll::Ready(read);
            }
            let mut kept = lock(&self.kept);
            if kept.idle > 0 || done() || alarm.is_over() {
                return Poll::Ready(Ok(()));
            }
            kept.leader = Some(context.waker().clone());
            alarm.set(context)?;
            Poll::Pending
        })
        .await
    }
}

impl Kept {
    fn await_by(&mut self, context: &Context<'_>) {
        if !self.tasks.iter().any(|t| t.will_wake(context.waker())) {
            self.tasks.push(context.waker().clone());
        }
    }
}

impl Ahead for Shared {
    /// Does nothing while another worker waits in the hall: that one reads what comes.
    fn look_ahead(&self, peer: &Peer) {
        let turn = self.enter(&mut lock(&self.kept));
        if let Some(mut turn) = turn
            && let Ok(hall) = turn.hall()
        {
            hall.look_ahead(peer);
        }
    }

    fn tell(&self) {
        let mut kept = lock(&self.kept);
        let tasks = std::mem::take(&mut kept.tasks);
        let waiting = kept.waiting;
        drop(kept);
        if waiting > 0 {
            self.items.notify_all();
        }
        tasks.into_iter().for_each(Waker::wake);
    }

    fn rouse(&self) {
        self.nudge(&mut lock(&self.kept));
        self.tell();
    }

    fn wait(&self, deadline: Option<Instant>, done: Done<'_>) -> Result<(), Error> {
        loop {
            let mut turn = match self.next_by(deadline, &mut *done) {
                Next::Done => return Ok(()),
                Next::Read(turn) => turn,
            };
            let hall = turn.hall()?;
            hall.read();
            if done() {
                return Ok(());
            }
            hall.sleep_for_items(&self.nudge, deadline)?;
            eventfd::drain(&self.nudge).map_err(system("eventfd"))?;
            hall.read();
            if done() || is_over(deadline) {
                return Ok(());
            }
        }
    }

    fn wait_async<'a>(&'a self, deadline: Option<Instant>, mut done: Done<'a>) -> Waiting<'a> {
        let mut alarm = Alarm {
            sleep: Sleep::new(&self.domain),
            deadline,
        };
        Box::pin(async move {
            let mut pause = Pause::each(1);
            loop {
                let next = poll_fn(|context| {
                    let mut kept = lock(&self.kept);
                    if let Some(next) = self.next(&mut kept, &mut done) {
                        return Poll::Ready(Ok::<_, Error>(next));
                    }
                    if alarm.is_over() {
                        return Poll::Ready(Ok(Next::Done));
                    }
                    kept.await_by(context);
                    alarm.set(context)?;
                    Poll::Pending
                });
                match next.await? {
                    Next::Done => return Ok(()),
                    Next::Read(mut turn) => {
                        self.read_async(&mut turn, &mut alarm, &mut done).await?;
                    }
                }
                if done() || alarm.is_over() {
                    return Ok(());
                }
                pause.now_and_then().await;
            }
        })
    }
}

impl Service {
    /// `hall` is given what its clients' requests look ahead by.
    pub(crate) fn new(
        domain: &Domain,
        hall: impl FnOnce(Weak<dyn Ahead>) -> Hall,
    ) -> Result<Service, Error> {
        let nudge = eventfd::create().map_err(system("eventfd"))?;
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| Shared {
            domain: domain.clone(),
            kept: Mutex::new(Kept {
                hall: Some(Box::new(hall(shared.clone()))),
                for_items: false,
                leader: None,
                tasks: Vec::new(),
                idle: 0,
                waiting: 0,
            }),
            free: Condvar::new(),
            items: Condvar::new(),
            nudge,
        });
        Ok(Service { shared })
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

    /// Takes a request if one is there. It waits at most 1 ms for a thread that waits for items of a call, and not for a task: that one keeps
    /// requests until it is polled. Beside tasks, a worker uses [`recv_async`](Service::recv_async).
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

    #[inline(always)]
    fn next_by(&self, deadline: Option<Instant>) -> Result<Option<Request>, Error> {
        let Some(mut turn) = self.shared.turn(deadline) else {
            return Ok(None);
        };
        let hall = turn.hall()?;
        // A worker that does not wait looks for clients, too. Another one is told of them as it sleeps.
        let (mut fresh, mut looks) = (false, deadline.is_some());
        loop {
            if let Some(request) = hall.try_next(fresh)? {
                return Ok(Some(request));
            }
            if looks {
                hall.admit()?;
                if let Some(request) = hall.try_next(false)? {
                    return Ok(Some(request));
                }
            }
            if is_over(deadline) {
                return Ok(None);
            }
            fresh = hall.spin();
            looks = !fresh;
            if looks {
                hall.sleep(deadline)?;
            }
        }
    }

    /// Takes the next request, for awaiting in any runtime. A future that is dropped has taken none.
    ///
    /// # Errors
    /// As [`recv`](Service::recv).
    pub async fn recv_async(&self) -> Result<Request, Error> {
        let mut turn = self.shared.turn_async().await;
        let hall = turn.hall()?;
        let mut pause = Pause::each(2);
        loop {
            hall.admit()?;
            if let Some(request) = hall.try_next(false)? {
                return Ok(request);
            }
            pause.now_and_then().await;
            hall.wait_async().await?;
        }
    }

    /// Returns how many clients are connected, as far as workers have taken notice. `None` while a worker waits for requests.
    pub fn clients(&self) -> Option<usize> {
        let kept = lock(&self.shared.kept);
        kept.hall.as_ref().map(|hall| hall.clients())
    }
}
