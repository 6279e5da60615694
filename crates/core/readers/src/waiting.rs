//! Waiting for memory and for room: in the calling thread, and in tasks. The work that the domain's helper thread does
//! for a writer.

use crate::payload::{Payload, Room, To, Waits, Writes};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tranship_core::topics::{self, AwaitedReaders, Sleep, Tended};
use tranship_core::{BufferMut, Domain, Error, ErrorKind, SendError};
use tranship_sync::{Owned, Visitor};
use tranship_sys::membarrier;

/// The most pieces whose list a send waits for.
const MOST_PIECES: usize = crate::pieces::MOST as usize;
/// A writer that waits for readers which do not tell looks again after this time.
const PAUSE: Duration = Duration::from_micros(200);
/// A writer that waits for readers which tell looks again after this time, at the latest: buffers may be dropped by this
/// process, or by a reader's other threads while the reader sleeps.
const LONG_PAUSE: Duration = Duration::from_millis(5);

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
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(writer.no_memory(error));
        }
        // Readers that sleep give back what was dropped meanwhile.
        writer.ring();
        let (readers, most) = (writer.awaited(), left.unwrap_or(LONG_PAUSE));
        let look = || found(look_for_memory(writer, len, &mut shortage));
        if let Some(found) = sleep(&readers, most, look) {
            return found;
        }
    }
}

/// Returns what a look for memory has found: a buffer, or an error.
fn found(looked: Result<Result<BufferMut, Error>, Error>) -> Option<Result<BufferMut, Error>> {
    match looked {
        Ok(Ok(buffer)) => Some(Ok(buffer)),
        Ok(Err(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Sleeps in the calling thread until a reader tells, at most `most`. Looks before and after, if a reader would tell.
pub fn sleep<T>(
    readers: &AwaitedReaders,
    most: Duration,
    look: impl FnMut() -> Option<T>,
) -> Option<T> {
    if readers.is_empty() {
        std::thread::sleep(most.min(PAUSE));
        return None;
    }
    readers.sleep(most.min(LONG_PAUSE), look)
}

/// Begins a task's sleep until a reader tells, or for the time after which to look again.
fn begin(task: &mut Sleep, readers: &AwaitedReaders, context: &Context<'_>) -> Result<(), Error> {
    let most = if readers.is_empty() {
        PAUSE
    } else {
        LONG_PAUSE
    };
    task.begin_for(readers, context, most)
}

/// Looks for memory once. The inner error: there is none before readers let go of some.
fn look_for_memory<W: Writes>(
    writer: &mut W,
    len: usize,
    shortage: &mut W::Shortage,
) -> Result<Result<BufferMut, Error>, Error> {
    if let Some(buffer) = writer.reuse(len) {
        return Ok(Ok(buffer));
    }
    match writer.pool().try_alloc(len) {
        Err(error) if error == ErrorKind::OutOfMemory => writer.make_memory(len, shortage),
        allocated => allocated.map(Ok),
    }
}

/// Allocates as [`alloc`] does, for awaiting in any runtime.
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
        let mut look = |writer: &mut W| found(look_for_memory(writer, len, &mut shortage));
        if let Some(done) = look(&mut writer) {
            return Poll::Ready(done);
        }
        writer.ring();
        begin(&mut sleep, &writer.awaited(), context)?;
        // A reader that told before the sleep began has told nobody.
        match look(&mut writer) {
            Some(done) => {
                sleep.end();
                Poll::Ready(done)
            }
            None => Poll::Pending,
        }
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
        list: None,
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
    let (mut kept, mut list) = (Some(payload), None);
    let mut shortage = W::Shortage::default();
    poll_fn(move |context| {
        let Some(payload) = kept.take() else {
            return Poll::Pending; // it was ready before
        };
        if let Err(error) = topics::check_fork(domain) {
            return Poll::Ready(Err(SendError::new(error, payload.give_back())));
        }
        let mut writer = owned.enter();
        let mut look = |writer: &mut W| match payload.pieces() {
            // Of too many pieces the send says that they are.
            pieces @ 1..=MOST_PIECES if list.is_none() => {
                let len = topics::list_len(pieces);
                list = look_for_memory(writer, len, &mut shortage)?.ok();
                match list.is_some() {
                    true => writer.look_for_room(),
                    false => Ok(Room::Later),
                }
            }
            _ => writer.look_for_room(),
        };
        let room = look(&mut writer).and_then(|room| match room {
            Room::Later => {
                writer.ring();
                begin(&mut sleep, &writer.awaited(), context)?;
                // A reader that told before the sleep began has told nobody.
                look(&mut writer)
            }
            found => Ok(found),
        });
        match room {
            Ok(Room::There) => {
                sleep.end();
                Poll::Ready(payload.go(To {
                    writer: &mut *writer,
                    word: 0,
                    waits: Waits::Not,
                    list: list.take(),
                }))
            }
            Ok(Room::Never(answer)) => Poll::Ready(Ok(answer)),
            Ok(Room::Later) => {
                kept = Some(payload);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(SendError::new(error, payload.give_back()))),
        }
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
