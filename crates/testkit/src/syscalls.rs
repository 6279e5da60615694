//! Counts the system calls of a running process from outside, with ptrace alone.
//!
//! Every stop costs microseconds: count in a run apart from the timing. Attaching interrupts a blocked
//! system call once, so let the process pass one event before taking the first mark.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// System calls by number.
pub type Counts = BTreeMap<u64, u64>;

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Counts>,
    stop: AtomicBool,
}

/// Attached to all threads of a process, those that start later included; detaches when dropped.
#[derive(Debug)]
pub struct SyscallCounter {
    shared: Arc<Shared>,
    tracer: Option<JoinHandle<()>>,
}

impl SyscallCounter {
    /// Attaches; returns when all threads that were there run under it.
    ///
    /// # Errors
    /// When the kernel refuses to trace it.
    pub fn attach(pid: u32) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let (ready, is_ready) = channel();
        let tracer = std::thread::Builder::new().name("syscall-counter".into()).spawn({
            let shared = Arc::clone(&shared);
            move || Tracer { pid, shared, threads: BTreeSet::new() }.run(&ready)
        })?;
        let counter = Self { shared, tracer: Some(tracer) };
        is_ready.recv().unwrap_or_else(|_| Err(Error::other("the tracer ended")))?;
        Ok(counter)
    }

    /// All system calls entered so far, by number.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All system calls entered so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts().values().sum()
    }

    /// What was entered since an earlier [`SyscallCounter::counts`].
    #[must_use]
    pub fn since(&self, mark: &Counts) -> Counts {
        let now = self.counts().into_iter();
        now.map(|(nr, n)| (nr, n - mark.get(&nr).unwrap_or(&0))).filter(|(_, n)| *n > 0).collect()
    }
}

impl Drop for SyscallCounter {
    fn drop(&mut self) {
        // Ordering: the tracer looks after each stop and each pause; nothing else is published by it.
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const EVENT_STOP: i32 = 128;
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;

struct Tracer {
    pid: u32,
    shared: Arc<Shared>,
    threads: BTreeSet<i32>,
}

fn ptrace(request: libc::c_uint, tid: i32, data: usize) -> Result<(), Error> {
    // SAFETY: requests of this module take no pointer but in `entered`.
    let r = unsafe { libc::ptrace(request, tid, 0usize, data) };
    if r < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

impl Tracer {
    fn run(mut self, ready: &Sender<Result<(), Error>>) {
        if let Err(e) = self.seize() {
            let _ = ready.send(Err(e));
            return;
        }
        let mut settled = BTreeSet::new();
        let mut told = false;
        while !self.threads.is_empty() {
            let stopping = self.shared.stop.load(Ordering::Relaxed);
            let mut status = 0;
            // Only this thread's tracees, so that nobody else's children are reaped.
            let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
            // SAFETY: `status` is a local.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
            if tid < 0 {
                break;
            }
            if tid == 0 {
                if stopping {
                    self.interrupt_all();
                }
                std::thread::yield_now();
                continue;
            }
            if !libc::WIFSTOPPED(status) {
                self.threads.remove(&tid);
                continue;
            }
            self.threads.insert(tid);
            self.stopped(tid, status, stopping);
            settled.insert(tid);
            if !told && self.threads.is_subset(&settled) {
                told = true;
                let _ = ready.send(Ok(()));
            }
        }
        let _ = ready.send(Ok(()));
    }

    /// Seizes all threads; new ones may start meanwhile, so until no unknown one is found.
    fn seize(&mut self) -> Result<(), Error> {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;
        loop {
            let before = self.threads.len();
            for tid in std::fs::read_dir(format!("/proc/{}/task", self.pid))?.flatten() {
                let Ok(tid) = tid.file_name().to_string_lossy().parse::<i32>() else { continue };
                if self.threads.contains(&tid) {
                    continue;
                }
                match ptrace(libc::PTRACE_SEIZE, tid, options.cast_unsigned() as usize) {
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    // A new thread of one that is traced already is so too.
                    Err(_) if before > 0 => {}
                    other => other?,
                }
                self.threads.insert(tid);
                let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0);
            }
            if self.threads.len() == before {
                return Ok(());
            }
        }
    }

    fn interrupt_all(&self) {
        for tid in &self.threads {
            let _ = ptrace(libc::PTRACE_INTERRUPT, *tid, 0);
        }
    }

    fn stopped(&mut self, tid: i32, status: i32, stopping: bool) {
        let signal = libc::WSTOPSIG(status);
        let event = status >> 16;
        if signal == SYSCALL_STOP
            && let Some(number) = entered(tid)
        {
            *self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default() += 1;
        }
        let group_stop = event == EVENT_STOP && signal != libc::SIGTRAP;
        let deliver = if signal == SYSCALL_STOP || event != 0 { 0 } else { signal.cast_unsigned() as usize };
        if stopping {
            let _ = ptrace(libc::PTRACE_DETACH, tid, deliver);
            self.threads.remove(&tid);
        } else if group_stop {
            let _ = ptrace(libc::PTRACE_LISTEN, tid, 0);
        } else {
            let _ = ptrace(libc::PTRACE_SYSCALL, tid, deliver);
        }
    }
}

/// The number, if the thread stands at the entry of a system call.
fn entered(tid: i32) -> Option<u64> {
    // op (u8), padding, arch (u32), instruction pointer, stack pointer, then for an entry the number.
    let mut info = [0u64; 16];
    // SAFETY: the kernel writes at most the given number of bytes into the local.
    let r = unsafe { libc::ptrace(GET_SYSCALL_INFO, tid, size_of_val(&info), info.as_mut_ptr()) };
    let entry = 1;
    (r > 0 && info[0] & 0xff == entry).then_some(info[3])
}
