//! A process that steps through parts of the one that made it, instruction by instruction, by ptrace(2).
//!
//! It is a fork of what it traces, so it reads the instructions in its own memory.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};

use super::opcode;

/// Operations that can be told apart, counted from 1.
pub const OPS: usize = 6;

/// Instructions and system calls of one operation.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Tally {
    pub instructions: u64,
    pub locked: u64,
    pub calls: u64,
}

/// Marks the begin of an operation, or, with 0, its end. Only for the traced process: in any other it is a crash.
#[inline(always)]
pub fn mark(op: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a trap, which the tracer waits for; it changes nothing.
    unsafe {
        std::arch::asm!("int3", in("rdi") op, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = op;
}

/// Why nothing can be counted here, if so.
pub fn is_possible() -> Result<()> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "instructions are counted on x86-64 alone"
    );
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) if scope.trim() == "3" => {
            bail!("kernel.yama.ptrace_scope is 3: no process may trace")
        }
        _ => Ok(()),
    }
}

/// The tracer, as the traced process sees it.
pub struct Tracer {
    process: Pid,
    /// Says at the end what was counted.
    tally: std::io::PipeReader,
}

impl Tracer {
    /// From here on this thread is traced: it may [`mark`].
    pub fn start() -> Result<Tracer> {
        let thread = rustix::thread::gettid();
        let (mut allowed, mut allow) = std::io::pipe()?;
        let (mut tally, mut tell) = std::io::pipe()?;
        // SAFETY: the child does nothing that a thread which is not there could have locked but allocating, which glibc allows.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                drop((allow, tally));
                let traced = allowed
                    .read_exact(&mut [0])
                    .context("the traced")
                    .and_then(|()| trace(thread, &mut tell));
                if let Err(error) = &traced {
                    eprintln!("tracer: {error:#}");
                }
                // SAFETY: no precondition; what the parent registered at exit is not ours to run.
                unsafe { libc::_exit(i32::from(traced.is_err())) }
            }
            pid => {
                drop((allowed, tell));
                let process = Pid::from_raw(pid).context("fork gave no process")?;
                // SAFETY: plain words. Where there is no Yama it fails, and is not needed.
                unsafe { libc::prctl(libc::PR_SET_PTRACER, pid) };
                allow.write_all(&[1])?;
                tally
                    .read_exact(&mut [0])
                    .context("ptrace is not allowed here (as in a container without SYS_PTRACE)")?;
                Ok(Tracer { process, tally })
            }
        }
    }

    /// Nothing more is marked. Returns what was counted.
    pub fn end(mut self) -> Result<[Tally; OPS]> {
        mark(END);
        let mut said = Vec::new();
        self.tally.read_to_end(&mut said)?;
        serde_json::from_slice(&said).context("the tracer failed")
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // The tracer has said all, unless something failed. Then the process that it traces would stay stopped.
        let _ = kill_process(self.process, Signal::KILL);
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}

/// Said at the end of all.
const END: u64 = u64::MAX;

fn trace(thread: Pid, tell: &mut std::io::PipeWriter) -> Result<()> {
    let tracee = Tracee(thread.as_raw_nonzero().get());
    tracee.request(libc::PTRACE_ATTACH, 0)?;
    tracee.wait()?;
    tracee.request(libc::PTRACE_CONT, 0)?;
    tell.write_all(&[1])?;
    let mut counts = [Tally::default(); OPS + 1];
    loop {
        let signal = tracee.wait()?;
        if signal != libc::SIGTRAP {
            tracee.request(libc::PTRACE_CONT, signal)?;
            continue;
        }
        match tracee.place()?.1 {
            0 => {}
            END => break,
            op => {
                let op = usize::try_from(op)?;
                step_through(&tracee, counts.get_mut(op).context("no such operation")?)?;
            }
        }
        tracee.request(libc::PTRACE_CONT, 0)?;
    }
    tracee.request(libc::PTRACE_DETACH, 0)?;
    Ok(serde_json::to_writer(tell, &counts[1..])?)
}

/// Counts up to the next trap, which is not executed yet then.
fn step_through(tracee: &Tracee, tally: &mut Tally) -> Result<()> {
    let mut before = 0;
    let mut signal = 0;
    loop {
        let (at, _) = tracee.place()?;
        // SAFETY: the traced process is at this address, and this one is a copy of it.
        let bytes = unsafe { instruction(at) };
        if bytes[0] == opcode::INT3 {
            return Ok(());
        }
        // A string instruction stops at each of its rounds.
        if at != before {
            tally.instructions += 1;
            tally.locked += u64::from(opcode::is_locked(&bytes));
            tally.calls += u64::from(opcode::is_call(&bytes));
        }
        before = at;
        tracee.request(libc::PTRACE_SINGLESTEP, signal)?;
        signal = match tracee.wait()? {
            libc::SIGTRAP => 0,
            other => other,
        };
    }
}

/// # Safety
/// Code is mapped there; the last of it is not within the last bytes of its mapping.
unsafe fn instruction(at: u64) -> [u8; opcode::LONGEST] {
    let mut bytes = [0; opcode::LONGEST];
    let from = std::ptr::with_exposed_provenance::<u8>(usize::try_from(at).unwrap_or(0));
    // SAFETY: the caller's promise.
    unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

struct Tracee(libc::pid_t);

impl Tracee {
    fn request(&self, what: libc::c_uint, signal: libc::c_int) -> Result<()> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: these requests take no memory; the signal is a number in the place of a pointer.
        let done = unsafe { libc::ptrace(what, self.0, none, libc::c_long::from(signal)) };
        ensure!(done == 0, "ptrace: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// The next instruction's address, and what the last mark said.
    #[cfg(target_arch = "x86_64")]
    fn place(&self) -> Result<(u64, u64)> {
        // SAFETY: plain words, for which zero is a value.
        let mut all: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the kernel writes one such structure.
        let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.0, none, &raw mut all) };
        ensure!(done == 0, "ptrace: {}", std::io::Error::last_os_error());
        Ok((all.rip, all.rdi))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn place(&self) -> Result<(u64, u64)> {
        is_possible().map(|()| (0, END))
    }

    /// Waits until the process has stopped. Returns the signal that stopped it.
    fn wait(&self) -> Result<libc::c_int> {
        let mut status = 0;
        // SAFETY: the kernel writes one word.
        let got = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        ensure!(
            got == self.0,
            "waitpid: {}",
            std::io::Error::last_os_error()
        );
        ensure!(libc::WIFSTOPPED(status), "the traced process has ended");
        Ok(libc::WSTOPSIG(status))
    }
}
