//! Waiting: without the GIL, and in turns, between which signals are looked at, so that Ctrl-C ends every wait.
//!
//! Only the interpreter's main thread runs signal handlers. There a wait on descriptors also waits on a pipe, into
//! which the interpreter writes when a signal comes (`signal.set_wakeup_fd`): the wait ends at once. Turns are short in
//! two cases: something else has that hook (an event loop), which is asked once a wait; or the wait has no descriptor.

use crate::driven::Doorbell;
use crate::errors::OrRaise as _;
use crate::fork::ForkEpoch;
use pyo3::prelude::*;
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::Cell;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tranship::error::{Awaited, NotTaken, PoolPending, RingFull, Shortage, TimedOut};
use tranship::{Error, ErrorKind, PollItem, error, poll};

/// The first turn, and all where signals have no descriptor.
const BRIEF: Duration = Duration::from_millis(20);
/// A turn that a signal cannot end, or ends at once: between two looks whether the object was closed.
const LONG: Duration = Duration::from_millis(250);

/// One turn of a wait.
pub(crate) struct Turn<'a> {
    /// Longest duration.
    pub(crate) slice: Duration,
    /// Readable when a signal has come. For waits that can wait on it.
    pub(crate) signals: Option<&'a OwnedFd>,
}

/// Whether a wait can be one on descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Descriptor,
    Time,
}

/// Way in which an object waits, and whether the waits are to end.
pub(crate) struct Waits {
    pub(crate) by: By,
    closing: AtomicBool,
}

impl Waits {
    pub(crate) fn new(by: By) -> Waits {
        Waits {
            by,
            closing: AtomicBool::new(false),
        }
    }

    /// Tells waiting threads that the end closes, before they take its lock again.
    pub(crate) fn end(&self) {
        self.closing.store(true, Ordering::Relaxed); // only hurries them: the lock decides
    }

    pub(crate) fn are_over(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

/// Returns the way for a channel with that wait. On descriptors no thread polls.
pub(crate) fn by(wait: tranship::Wait) -> By {
    match wait {
        tranship::Wait::Spin => By::Time,
        _ => By::Descriptor,
    }
}

/// Parses a time limit, as Python gives it: seconds, or none.
pub(crate) fn limit(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    if seconds.is_nan() || seconds < 0.0 {
        let text = format!("a timeout of {seconds} s: it is None, or from 0 on");
        return Err(pyo3::exceptions::PyValueError::new_err(text));
    }
    // Longer than the largest duration: for ever.
    Ok(Duration::try_from_secs_f64(seconds).ok())
}

/// Takes turns until one has a result, an error other than that its time is over, or a signal's handler raises.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    by: By,
    mut turn: impl FnMut(Turn<'_>) -> Result<Option<T>, Error> + Send,
) -> PyResult<T> {
    let started = Instant::now();
    let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
    let main = is_main();
    let mut hooked = main && by == By::Descriptor;
    let mut first = true;
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let pipe = match hooked && !first {
            true => Signals::open(py),
            false => None,
        };
        hooked = first && hooked || pipe.is_some();
        let longest = match (main, &pipe) {
            (true, None) => BRIEF,
            _ => LONG,
        };
        let slice = left.map_or(longest, |left| longest.min(left));
        let signals = pipe.as_ref().map(|pipe| &pipe.read);
        let done = py.detach(|| turn(Turn { slice, signals }));
        if let Some(pipe) = pipe {
            pipe.close(py);
        }
        let late = match done {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => None,
            Err(error) if is_late(error.kind()) => Some(error),
            Err(error) => return Err(error).or_raise(py),
        };
        py.check_signals()?;
        if deadline.is_some_and(|d| Instant::now() >= d)
            && let Some(error) = late
        {
            return Err(waited(error, started.elapsed())).or_raise(py);
        }
        first = false;
    }
}

/// Waits for a future. Turns are looks at it. A future that is given up is dropped, and takes back what it had asked
/// for.
pub(crate) fn awaited<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    what: &Awaited,
    mut future: impl Future<Output = Result<T, Error>> + Send + Unpin,
) -> PyResult<T> {
    let doorbell = Doorbell::new()
        .map_err(error::system("eventfd"))
        .or_raise(py)?;
    let waker = Waker::from(Arc::clone(&doorbell));
    let mut look = || {
        doorbell.hush();
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    };
    let done = wait(py, timeout, By::Descriptor, |turn| {
        if let Some(done) = look() {
            return Ok(Some(done));
        }
        let mut items = vec![PollItem::readable(&*doorbell)];
        items.extend(turn.signals.map(PollItem::readable));
        poll(&mut items, Some(turn.slice))?;
        let late = TimedOut {
            awaited: what.clone(),
            waited_ms: 0,
        };
        look().map_or_else(|| Err(late.into()), |done| Ok(Some(done)))
    });
    done?.or_raise(py)
}

/// Returns whether a turn that ended so may be taken again.
fn is_late(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TimedOut | ErrorKind::Full | ErrorKind::PoolPending | ErrorKind::OutOfMemory
    )
}

/// Returns the error of the last turn, with how long all of them took.
fn waited(error: Error, time: Duration) -> Error {
    let waited_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    if let Some(cause) = error.find::<TimedOut>() {
        let awaited = cause.awaited.clone();
        return TimedOut { awaited, waited_ms }.into();
    }
    if let Some(cause) = error.find::<RingFull>() {
        let lines = cause.lines;
        return RingFull { lines, waited_ms }.into();
    }
    if let Some(cause) = error.find::<PoolPending>() {
        let pool = cause.pool;
        return PoolPending { pool, waited_ms }.into();
    }
    if let Some(&NotTaken { messages, gone, .. }) = error.find::<NotTaken>() {
        let cause = NotTaken {
            messages,
            gone,
            waited_ms,
        };
        return cause.into();
    }
    // Only where the error says nothing more: a topic's names the holders.
    let outermost = std::error::Error::source(&error);
    if let Some(&(mut cause)) = outermost.and_then(|cause| cause.downcast_ref::<Shortage>()) {
        cause.waited_ms = waited_ms;
        return cause.into();
    }
    error
}

/// Returns whether this is the thread that runs signal handlers: that in which the process began. Kept, because the two
/// system calls take a tenth of a message's time; in a forked child it may be another thread.
fn is_main() -> bool {
    thread_local! {
        static KNOWN: Cell<Option<(ForkEpoch, bool)>> = const { Cell::new(None) };
    }
    if let Some((fork_epoch, main)) = KNOWN.get()
        && !fork_epoch.is_inherited()
    {
        return main;
    }
    // SAFETY: reads an id.
    let thread = unsafe { libc::gettid() };
    let main = i64::from(thread) == i64::from(std::process::id());
    KNOWN.set(Some((ForkEpoch::now(), main)));
    main
}

/// A pipe that the interpreter writes to when a signal comes. Made for one turn: a forked child must not share it.
struct Signals {
    read: OwnedFd,
    _write: OwnedFd,
}

impl Signals {
    /// Opens the pipe. None if something else is told of signals already, or there is no descriptor left, or the
    /// interpreter does not want to: short turns do as well.
    fn open(py: Python<'_>) -> Option<Signals> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        let before = set_wakeup_fd(py, write.as_raw_fd()).ok()?;
        if before != -1 {
            let _ = set_wakeup_fd(py, before);
            pass_on(&read, before);
            return None;
        }
        let _write = write;
        Some(Signals { read, _write })
    }

    fn close(self, py: Python<'_>) {
        let _ = set_wakeup_fd(py, -1); // the result of the wait matters more
    }
}

/// Signals that came while we had another's hook are still for it.
fn pass_on(read: &OwnedFd, hook: i32) {
    let mut numbers = [0; 64];
    // SAFETY: the code that set the hook keeps its descriptor open as long as it is set.
    let hook = unsafe { BorrowedFd::borrow_raw(hook) };
    while let Ok(count @ 1..) = rustix::io::read(read, &mut numbers) {
        let _ = rustix::io::write(hook, numbers.get(..count).unwrap_or_default()); // full: it is awake
    }
}

/// Sets the descriptor; returns the one before.
fn set_wakeup_fd(py: Python<'_>, fd: i32) -> PyResult<i32> {
    let options = pyo3::types::PyDict::new(py);
    options.set_item("warn_on_full_buffer", false)?;
    let signal = py.import("signal")?;
    let before = signal.call_method("set_wakeup_fd", (fd,), Some(&options))?;
    before.extract()
}
