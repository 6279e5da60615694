//! Counts the system calls of a running process, or of one of its threads, from outside, with ptrace alone.
//!
//! Every stop costs microseconds: count in a run apart from the timing. Attaching interrupts a blocked
//! system call once, so let the process pass one event before taking the first mark.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Error;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// System calls by number.
pub type Counts = BTreeMap<u64, u64>;

/// The highest number that is counted separately; higher ones are counted together as this one.
const NUMBERS: usize = 512;

/// Memory shared with the tracing process, which writes it.
#[derive(Debug)]
struct Shared {
    counts: [AtomicU64; NUMBERS],
    stop: AtomicBool,
}

/// Counts the system calls of all threads of a process, later ones included, or of one thread. It detaches when
/// dropped.
///
/// The tracer is a process of its own. If it were a thread of the child's parent, it would take the child's stops and
/// exits away from the parent's own wait calls.
#[derive(Debug)]
pub struct SyscallCounter {
    shared: &'static Shared,
    tracer: libc::pid_t,
}

impl SyscallCounter {
    /// Attaches; returns when all existing threads run under the tracer.
    ///
    /// # Errors
    /// When the kernel refuses to trace it.
    pub fn attach(pid: u32) -> Result<Self, Error> {
        Self::attach_to(Whom::Process(pid))
    }

    /// Attaches to one thread. Calls that other threads of its process make periodically are not counted.
    ///
    /// # Errors
    /// When the kernel refuses to trace it.
    pub fn attach_thread(tid: u32) -> Result<Self, Error> {
        Self::attach_to(Whom::Thread(tid))
    }

    fn attach_to(whom: Whom) -> Result<Self, Error> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: fresh zeroed memory, which is a valid `Shared`; unmapped when the counter is dropped.
        let shared =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<Shared>(), prot, flags) }?;
        // SAFETY: as above; all fields are atomics, so both processes may write.
        let shared = unsafe { &*shared.cast::<Shared>() };
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (parent, to) = (std::process::id(), write.as_raw_fd());
        // SAFETY: glibc keeps malloc usable in the child, which touches no other lock and never returns.
        let tracer = unsafe { libc::fork() };
        if tracer < 0 {
            return Err(Error::last_os_error());
        }
        if tracer == 0 {
            // SAFETY: plain system calls; the descriptors of the test are closed in this copy only.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::dup2(to, 3);
                libc::syscall(libc::SYS_close_range, 4, u32::MAX, 0);
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = wake as *const () as usize;
                libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
                if libc::getppid().cast_unsigned() == parent {
                    Tracer {
                        whom,
                        shared,
                        threads: BTreeSet::new(),
                    }
                    .run();
                }
                libc::_exit(0)
            }
        }
        let counter = Self { shared, tracer };
        drop(write);
        let mut answer = [0; 4];
        match rustix::io::retry_on_intr(|| rustix::io::read(&read, &mut answer)) {
            Ok(4) if answer == [0; 4] => Ok(counter),
            Ok(4) => Err(Error::from_raw_os_error(i32::from_ne_bytes(answer))),
            _ => Err(Error::other("the tracer ended")),
        }
    }

    /// Returns the system calls entered so far, by number.
    #[must_use]
    pub fn counts(&self) -> Counts {
        // Relaxed: a caller that takes a mark has already heard from the traced process by other means.
        let now = self.shared.counts.iter().map(|n| n.load(Ordering::Relaxed));
        (0..).zip(now).filter(|(_, n)| *n > 0).collect()
    }

    /// Returns the number of system calls entered so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts().values().sum()
    }

    /// Returns the system calls entered since an earlier [`SyscallCounter::counts`].
    #[must_use]
    pub fn since(&self, mark: &Counts) -> Counts {
        let now = self.counts().into_iter();
        now.map(|(nr, n)| (nr, n - mark.get(&nr).unwrap_or(&0)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

impl Drop for SyscallCounter {
    fn drop(&mut self) {
        // Ordering: the tracer reads it after each wait; it publishes nothing else.
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut status = 0;
        loop {
            // SAFETY: our child, not yet reaped; `status` is a local. The signal may come just before the
            // tracer waits again, so it is repeated.
            let ended = unsafe {
                libc::kill(self.tracer, libc::SIGUSR1);
                libc::waitpid(self.tracer, &raw mut status, libc::WNOHANG)
            };
            if ended != 0 {
                break;
            }
            std::thread::yield_now();
        }
        let at = std::ptr::from_ref(self.shared).cast_mut().cast();
        // SAFETY: mapped by `attach`; the reference ends with this value.
        let _ = unsafe { munmap(at, size_of::<Shared>()) };
    }
}

extern "C" fn wake(_: i32) {}

fn tell(errno: i32) {
    let bytes = errno.to_ne_bytes();
    // SAFETY: writes a local to the pipe that `attach` put there.
    unsafe { libc::write(3, bytes.as_ptr().cast(), 4) };
}

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const EVENT_STOP: i32 = 128;
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;

#[derive(Clone, Copy)]
enum Whom {
    Process(u32),
    Thread(u32),
}

struct Tracer {
    whom: Whom,
    shared: &'static Shared,
    threads: BTreeSet<i32>,
}

fn ptrace(request: libc::c_uint, tid: i32, data: usize) -> Result<(), Error> {
    // SAFETY: requests of this module take no pointer but in `entered`.
    let r = unsafe { libc::ptrace(request, tid, 0usize, data) };
    if r < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(())
    }
}

impl Tracer {
    fn run(mut self) {
        if let Err(e) = self.seize() {
            return tell(e.raw_os_error().unwrap_or(libc::EIO));
        }
        let mut settled = BTreeSet::new();
        let mut told = false;
        while !self.threads.is_empty() {
            let stopping = self.shared.stop.load(Ordering::Relaxed);
            let mut status = 0;
            // SAFETY: `status` is a local.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if tid < 0 {
                if Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    break;
                }
                if self.shared.stop.load(Ordering::Relaxed) {
                    self.interrupt_all();
                }
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
                tell(0);
            }
        }
        if !told {
            tell(0);
        }
    }

    fn seize(&mut self) -> Result<(), Error> {
        match self.whom {
            Whom::Process(pid) => self.seize_all(pid),
            Whom::Thread(tid) => {
                let tid = i32::try_from(tid).map_err(Error::other)?;
                let options = libc::PTRACE_O_TRACESYSGOOD.cast_unsigned() as usize;
                ptrace(libc::PTRACE_SEIZE, tid, options)?;
                self.threads.insert(tid);
                let _ = ptrace(libc::PTRACE_INTERRUPT, tid, 0);
                Ok(())
            }
        }
    }

    /// Seizes all threads. New ones may start meanwhile, so it repeats until it finds no unknown thread.
    fn seize_all(&mut self, pid: u32) -> Result<(), Error> {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;
        loop {
            let before = self.threads.len();
            for tid in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let Ok(tid) = tid.file_name().to_string_lossy().parse::<i32>() else {
                    continue;
                };
                if self.threads.contains(&tid) {
                    continue;
                }
                match ptrace(libc::PTRACE_SEIZE, tid, options.cast_unsigned() as usize) {
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    // A new thread of a traced one is traced too.
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
            let number = usize::try_from(number).unwrap_or(NUMBERS).min(NUMBERS - 1);
            self.shared.counts[number].fetch_add(1, Ordering::Relaxed);
        }
        let group_stop = event == EVENT_STOP && signal != libc::SIGTRAP;
        let deliver = if signal == SYSCALL_STOP || event != 0 {
            0
        } else {
            signal.cast_unsigned() as usize
        };
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

/// Returns the number, if the thread stands at the entry of a system call.
fn entered(tid: i32) -> Option<u64> {
    // op (u8), padding, arch (u32), instruction pointer, stack pointer, then for an entry the number.
    let mut info = [0u64; 16];
    // SAFETY: the kernel writes at most the given number of bytes into the local.
    let r = unsafe { libc::ptrace(GET_SYSCALL_INFO, tid, size_of_val(&info), info.as_mut_ptr()) };
    let entry = 1;
    (r > 0 && info[0] & 0xff == entry).then_some(info[3])
}
