//! Steps through io_uring: many at a time, and one system call for all that were submitted together.

#![allow(
    unsafe_code,
    reason = "the ring takes addresses; see `Step::memory_to_fill` for why they stay valid"
)]

use super::step::{Action, Step};
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const ENTRIES: u32 = 256;
/// The number of no step: the ring's end.
const END: u64 = u64::MAX;

/// The steps that the kernel has, by number, and the next number.
#[derive(Default)]
struct Steps {
    running: HashMap<u64, Step>,
    next: u64,
}

struct SharedRing {
    ring: IoUring,
    /// The thread that holds this lock may write to the submission queue.
    steps: Mutex<Steps>,
    /// A step was put into the queue and not shown to the kernel.
    unseen: AtomicBool,
    /// The file stays open, because the kernel keeps its number and no reference to it.
    file: Arc<File>,
}

/// A ring with a thread that takes completed steps.
pub(super) struct Ring {
    shared: Arc<SharedRing>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

impl Ring {
    /// Creates the ring; fails where the kernel, or the sandbox of this process, does not allow it.
    pub(super) fn new(file: Arc<File>) -> io::Result<Ring> {
        let ring = IoUring::new(ENTRIES)?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needs = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
        ];
        if !needs.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let shared = Arc::new(SharedRing {
            ring,
            steps: Mutex::default(),
            unseen: AtomicBool::new(false),
            file,
        });
        let thread = std::thread::Builder::new().name("block-disk".into());
        let thread = thread.spawn({
            let shared = Arc::clone(&shared);
            move || shared.take_what_is_done()
        })?;
        Ok(Ring {
            shared,
            thread: Some(thread),
        })
    }

    pub(super) fn submit(&self, step: Step) {
        self.shared.submit(step);
    }

    pub(super) fn kick(&self) {
        self.shared.kick();
    }
}

impl Drop for Ring {
    /// Waits for the kernel's running steps: it writes into memory that is released afterwards.
    fn drop(&mut self) {
        let end = opcode::Nop::new().build().user_data(END);
        let end = end.flags(squeue::Flags::IO_DRAIN);
        let steps = self.shared.lock();
        self.shared.push(&end);
        drop(steps);
        // Ordering: release, as in `submit`.
        self.shared.unseen.store(true, Ordering::Release);
        self.shared.kick();
        // The last handle may go on the ring's own thread, in the continuation of a step.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl SharedRing {
    fn lock(&self) -> std::sync::MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, mut step: Step) {
        let entry = match self.entry(&mut step) {
            Ok(entry) => entry,
            Err(error) => return (step.then)(step.data, Err(error)),
        };
        let mut steps = self.lock();
        let number = steps.next;
        steps.next += 1;
        steps.running.insert(number, step);
        self.push(&entry.user_data(number));
        drop(steps);
        // Ordering: release, partner: the acquire in `kick`.
        self.unseen.store(true, Ordering::Release);
    }

    fn entry(&self, step: &mut Step) -> io::Result<squeue::Entry> {
        let fd = types::Fd(self.file.as_raw_fd());
        let len = u32::try_from(step.len)
            .map_err(|_: std::num::TryFromIntError| io::ErrorKind::InvalidInput);
        Ok(match step.action {
            Action::Read => {
                let read = opcode::Read::new(fd, step.memory_to_fill()?, len?);
                read.offset(step.offset).build()
            }
            Action::Write { durable } => {
                let write = opcode::Write::new(fd, step.memory_to_read()?, len?);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                write.offset(step.offset).rw_flags(flags).build()
            }
            Action::Sync => {
                let sync = opcode::Fsync::new(fd);
                sync.flags(types::FsyncFlags::DATASYNC).build()
            }
            Action::Punch | Action::Zero => {
                let fallocate = opcode::Fallocate::new(fd, step.len as u64);
                let mode = step.action.fallocate();
                fallocate.offset(step.offset).mode(mode).build()
            }
        })
    }

    /// Puts an entry into the queue; the lock is held.
    fn push(&self, entry: &squeue::Entry) {
        loop {
            // SAFETY: no other thread has the submission queue: the lock is held. The objects that the entry names stay
            // valid until it is done: its step is in `running`, which owns the memory, or it names nothing (the end).
            let pushed = unsafe { self.ring.submission_shared().push(entry) };
            if pushed.is_ok() {
                return;
            }
            // Full: the kernel takes the entries that are there.
            if self.ring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn kick(&self) {
        // Without the lock: data in the page cache is copied in this call, while others submit and take completed
        // steps. Ordering: acquire, partner: the release in `submit`, whose entry this call then counts.
        while self.unseen.swap(false, Ordering::Acquire) {
            if self.ring.submit().is_err() {
                // Interrupted, or too many steps are done and not taken: try again.
                self.unseen.store(true, Ordering::Release);
                std::thread::yield_now();
            }
        }
    }

    fn take_what_is_done(&self) {
        loop {
            // SAFETY: no argument is passed.
            let waited = unsafe {
                let wait = io_uring::EnterFlags::GETEVENTS.bits();
                self.ring
                    .submitter()
                    .enter::<libc::sigset_t>(0, 1, wait, None)
            };
            if waited.is_err() {
                std::thread::yield_now();
            }
            loop {
                // SAFETY: only this thread takes from the completion queue.
                let Some(done) = (unsafe { self.ring.completion_shared().next() }) else {
                    break;
                };
                if done.user_data() == END {
                    return;
                }
                let Some(step) = self.lock().running.remove(&done.user_data()) else {
                    continue;
                };
                let result = match usize::try_from(done.result()) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => Err(io::Error::from_raw_os_error(-done.result())),
                };
                (step.then)(step.data, result);
            }
            // The continuation of a step may be another one.
            self.kick();
        }
    }
}
