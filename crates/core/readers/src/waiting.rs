//! Waiting for memory and for room: in the calling thread, and in tasks. The work that the domain's helper thread does
//! for a writer.

use crate::payload::{Payload, Room, To, Waits, Writes};
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Sleep, Tended};
use tranship_core::{BufferMut, Domain, Error, ErrorKind, SendError};
use tranship_sync::{Owned, Visitor};
use tranship_sys::membarrier;

/// A writer that waits looks again after this time.
pub const PAUSE: Duration = Duration::from_micros(200);

/// Allocates out of the writer's pool, or waits for memory.
///
/// # Errors
/// The errors of the pool. After the deadline, the error of [`Writes::no_memory`].
#[cold]
pub fn alloc<W: Writes>(
    writer: &mut W,
    len: usize,
    deadline: Option<Instant>,
) -> Result<BufferMut, Error> {
    let mut shortage = W::Shortage::default();
    loop {
        let error = match look_for_memory(writer, len, &mut shortage)? {
            Ok(buffer) => return Ok(buffer),
            Err(error) => error,
        };
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(writer.no_memory(error));
        }
        // Readers that sleep give back what was dropped meanwhile.
        writer.ring();
        std::thread::sleep(PAUSE);
    }
}

/// Looks for memory once. The inner error: there is none before readers let go of some.
fn look_for_memory<W: Writes>(
    writer: &mut W,
    len: usize,
    shortage: &mut W::Shortage,
) -> Result<Result<BufferMut, Error>, Error> {
    match writer.pool().try_alloc(len) {
        Err(error) if error == ErrorKind::OutOfMemory => writer.make_memory(len, shortage),
        allocated => allocated.map(Ok),
    }
}

/// Allocates as [`alloc`] does, for awaiting in any runtime. A task that waits looks again about once a millisecond.
pub fn alloc_async<W: Writes + Send>(
    owned: &mut Owned<W>,
    domain: &Domain,
    len: usize,
) -> impl Future<Output = Result<BufferMut, Error>> + Send + Unpin {
    let mut sleep = Sleep::new(domain);
    let mut shortage = W::Shortage::default();
    poll_fn(move |context| {
        topics::check_fork(domain)?;
        let mut writer = owned.enter();
        if let Ok(buffer) = look_for_memory(&mut *writer, len, &mut shortage)? {
            return Poll::Ready(Ok(buffer));
        }
        writer.ring();
        drop(writer);
        sleep.begin(std::iter::empty(), context, PAUSE)?;
        Poll::Pending
    })
}

/// Sends a payload.
///
/// # Errors
/// Those of the writer; `Forked`.
#[inline(always)]
pub fn send<W: Writes, P: Payload>(
    owned: &mut Owned<W>,
    domain: &Domain,
    payload: P,
    waits: Waits,
) -> Result<W::Sent, SendError<P::Unsent>> {
    if let Err(error) = topics::check_fork(domain) {
        return Err(SendError::new(error, payload.give_back()));
    }
    let mut writer = owned.enter();
    payload.go(To {
        writer: &mut *writer,
        word: 0,
        waits,
    })
}

/// Sends as [`send`] does, without blocking the thread, in any runtime. A future that is dropped before it is ready has
/// sent nothing.
pub fn send_async<W: Writes, P: Payload + Unpin>(
    owned: &mut Owned<W>,
    domain: &Domain,
    payload: P,
) -> impl Future<Output = Result<W::Sent, SendError<P::Unsent>>> + Unpin {
    let mut sleep = Sleep::new(domain);
    let (mut kept, mut since) = (Some(payload), None);
    poll_fn(move |context| {
        let Some(payload) = kept.take() else {
            return Poll::Pending; // it was ready before
        };
        if let Err(error) = topics::check_fork(domain) {
            return Poll::Ready(Err(SendError::new(error, payload.give_back())));
        }
        let mut writer = owned.enter();
        let waits = match writer.look_for_room(&mut since) {
            Ok(Room::There) => {
                return Poll::Ready(payload.go(To {
                    writer: &mut *writer,
                    word: 0,
                    waits: Waits::Not,
                }));
            }
            Ok(Room::Never(answer)) => return Poll::Ready(Ok(answer)),
            Ok(Room::Later) => sleep.begin(std::iter::empty(), context, PAUSE),
            Err(error) => Err(error),
        };
        if let Err(error) = waits {
            return Poll::Ready(Err(SendError::new(error, payload.give_back())));
        }
        kept = Some(payload);
        Poll::Pending
    })
}

/// A writer as the domain's helper thread tends it, while the program does nothing with it.
pub struct Idle<W>(Visitor<W>);

impl<W: Writes + Send + 'static> Idle<W> {
    /// Makes the domain's helper thread tend a writer. Without the thread the writer's own calls tend it.
    pub fn tend(owned: &Owned<W>, domain: &Domain) {
        let idle = std::sync::Arc::new(Idle(owned.visitor()));
        if let Err(error) = topics::tend(domain, idle) {
            tracing::debug!(%error, "a writer's helper thread");
        }
    }
}

impl<W: Writes + Send> Tended for Idle<W> {
    fn tend(&self) -> bool {
        let visit = |writer: &mut W| writer.tend_idle(Instant::now());
        let visited = self.0.visit(membarrier::private_expedited, visit);
        visited.unwrap_or(false)
    }
    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}
