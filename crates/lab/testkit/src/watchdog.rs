//! Aborts a test that hangs, after saying where every thread stands.

use std::backtrace::Backtrace;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a test, or a [`step`](Watchdog::step) of it, may take before it counts as a hang. It is not a bound on
/// speed: on a slow machine beside much else a test of some seconds has taken three minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Twice the number of preparations, and one more while one is under way.
static PREPARED: AtomicU64 = AtomicU64::new(0);

/// Does work before a test, such as building a program, and takes as long as it takes: no watchdog of this process
/// counts it. One at a time.
pub fn prepare<T>(work: impl FnOnce() -> T) -> T {
    static ONE: Mutex<()> = Mutex::new(());
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            PREPARED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    PREPARED.fetch_add(1, Ordering::Relaxed);
    let _done = Done;
    work()
}

/// Lives as long as the test may block.
#[derive(Debug)]
pub struct Watchdog {
    steps: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Aborts the process when for ten minutes it is neither dropped nor told of a step. It says which test that was
    /// (by the thread it is made in), its last step, and where every thread stands.
    ///
    /// # Panics
    /// When no thread can be started.
    #[must_use]
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Self {
        Self::within(PATIENCE)
    }

    /// Creates a watchdog with another limit.
    ///
    /// # Panics
    /// As [`Watchdog::new`].
    #[must_use]
    #[track_caller]
    pub fn within(limit: Duration) -> Self {
        let (steps, told) = channel();
        let place = std::panic::Location::caller();
        let test = std::thread::current()
            .name()
            .unwrap_or("(no name)")
            .to_owned();
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                let (mut last, mut prepared) = ("the start".to_owned(), 0);
                loop {
                    match told.recv_timeout(limit) {
                        Ok(step) => last = step,
                        Err(RecvTimeoutError::Disconnected) => return,
                        Err(RecvTimeoutError::Timeout) if is_preparing(&mut prepared) => {}
                        Err(RecvTimeoutError::Timeout) => bark(&format!(
                            "watchdog of test {test} ({place}): nothing for {limit:?} after {last}"
                        )),
                    }
                }
            })
            .expect("a thread for the watchdog");
        Self {
            steps: Some(steps),
            thread: Some(thread),
        }
    }

    /// Notes that a step was done; the next one may take the whole time again.
    pub fn step(&self, what: impl std::fmt::Display) {
        if let Some(steps) = &self.steps {
            let _ = steps.send(what.to_string());
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns whether something is being prepared, or was since the last question.
fn is_preparing(before: &mut u64) -> bool {
    let now = PREPARED.load(Ordering::Relaxed);
    now % 2 == 1 || std::mem::replace(before, now) != now
}

fn bark(message: &str) -> ! {
    say(&format!("\n==== {message}\n"));
    let me = std::process::id();
    say(&kernel_view(me));
    for (pid, stderr) in crate::peer::living() {
        say(&kernel_view(pid));
        say(&stderr);
    }
    own_stacks();
    std::process::abort();
}

/// Prints straight to the descriptor: the test harness captures `eprintln!`, and its lock may be held.
fn say(text: &str) {
    // SAFETY: reads `text`.
    let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Returns the kernel's view of each thread: state, system call, place of sleep.
fn kernel_view(pid: u32) -> String {
    let mut out = String::new();
    let read = |p: String| std::fs::read_to_string(p).unwrap_or_else(|e| format!("({e})"));
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return format!("process {pid}: gone\n");
    };
    for task in tasks.flatten() {
        let dir = task.path().display().to_string();
        let stat = read(format!("{dir}/stat"));
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|s| s.split_whitespace().next())
            .unwrap_or("?");
        let _ = writeln!(
            out,
            "process {pid} thread {} ({}): state {state}, in {}, syscall {}",
            task.file_name().to_string_lossy(),
            read(format!("{dir}/comm")).trim(),
            read(format!("{dir}/wchan")).trim(),
            read(format!("{dir}/syscall")).trim(),
        );
    }
    out
}

static PRINTED: AtomicBool = AtomicBool::new(false);

/// Time for the stack of one thread: the first one reads the program's symbols, which takes seconds on a loaded machine.
const STACK: Duration = Duration::from_secs(60);

extern "C" fn print_stack(_: libc::c_int) {
    // Not async-signal-safe; the process is about to abort, and the thread that waits for us waits for [`STACK`].
    say(&format!("{}\n", Backtrace::force_capture()));
    PRINTED.store(true, Ordering::SeqCst);
}

fn own_stacks() {
    let signal = libc::SIGURG;
    let pid = std::process::id();
    // SAFETY: installs a handler for a signal that the process is not using for itself; it aborts next.
    unsafe { libc::signal(signal, print_stack as *const () as libc::sighandler_t) };
    // SAFETY: no arguments.
    let own = unsafe { libc::gettid() };
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    for tid in tasks
        .flatten()
        .filter_map(|t| t.file_name().to_string_lossy().parse::<i32>().ok())
    {
        if tid == own {
            continue;
        }
        say(&format!("---- stack of thread {tid}\n"));
        PRINTED.store(false, Ordering::SeqCst);
        // SAFETY: a signal to a thread of this process.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
        let since = Instant::now();
        while !PRINTED.load(Ordering::SeqCst) && since.elapsed() < STACK {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_does_not_count() {
        let mut seen = PREPARED.load(Ordering::Relaxed);
        prepare(|| assert!(is_preparing(&mut seen)));
        assert!(is_preparing(&mut seen), "it was, since the last question");
        assert!(!is_preparing(&mut seen));
    }
}
