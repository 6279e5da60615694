//! Runs attacks and judges them by the victim's view.

use std::fmt::Write as _;
use std::os::fd::AsRawFd as _;

use super::{Attack, Outcome, Target};

/// An attack that was tried.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub attack: Attack,
    pub outcome: Outcome,
    /// Harm that the victim found afterwards.
    pub harm: Option<String>,
}

impl Attempt {
    /// Returns whether isolation held: the victim is whole, and each attack that would bite something unprotected was
    /// refused.
    #[must_use]
    pub fn held(&self) -> bool {
        let seen = !matches!(
            self.attack.bite,
            super::Bite::Harmless | super::Bite::Sleepers
        );
        let quiet = !seen || self.outcome.refused();
        self.harm.is_none() && quiet && !matches!(self.outcome, Outcome::Stuck | Outcome::Broken)
    }
}

/// Tries one attack, then asks the victim.
pub fn run(
    attack: &Attack,
    target: &Target,
    check: &mut dyn FnMut() -> Result<(), String>,
) -> Attempt {
    let outcome = in_child(|| (attack.attempt)(target), target);
    Attempt {
        attack: *attack,
        outcome,
        harm: check().err(),
    }
}

/// Tries these attacks one after the other.
pub fn run_all(
    attacks: &[Attack],
    target: &Target,
    check: &mut dyn FnMut() -> Result<(), String>,
) -> Vec<Attempt> {
    attacks.iter().map(|a| run(a, target, check)).collect()
}

/// Returns a table for people: the attempts, and their ends.
#[must_use]
pub fn table(attempts: &[Attempt]) -> String {
    let mut out = String::new();
    for a in attempts {
        let verdict = if a.held() { "held " } else { "BROKE" };
        let outcome = match a.outcome {
            Outcome::Errno(e) => format!("errno {}", std::io::Error::from_raw_os_error(e)),
            Outcome::Unavailable(e) if e != 0 => {
                format!("unavailable: {}", std::io::Error::from_raw_os_error(e))
            }
            other => format!("{other:?}"),
        };
        let harm = a
            .harm
            .as_ref()
            .map(|h| format!(" HARM: {h}"))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "{verdict} {:32} {:9} {outcome}{harm}",
            a.attack.name,
            format!("{:?}", a.attack.bite)
        );
    }
    out
}

const WORDS: usize = 12;

fn encode(outcome: Outcome) -> [u8; WORDS] {
    let (kind, value) = match outcome {
        Outcome::Errno(e) => (1u32, e),
        Outcome::Signal(s) => (2, s),
        Outcome::Succeeded => (3, 0),
        Outcome::Unavailable(e) => (4, e),
        Outcome::Stuck => (5, 0),
        Outcome::Broken => (6, 0),
    };
    let mut bytes = [0; WORDS];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..8].copy_from_slice(&value.to_ne_bytes());
    bytes
}

fn decode(bytes: [u8; WORDS]) -> Outcome {
    let word = |i: usize| [bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]];
    let value = i32::from_ne_bytes(word(4));
    match u32::from_ne_bytes(word(0)) {
        1 => Outcome::Errno(value),
        2 => Outcome::Signal(value),
        3 => Outcome::Succeeded,
        4 => Outcome::Unavailable(value),
        5 => Outcome::Stuck,
        _ => Outcome::Broken,
    }
}

/// Runs `attempt` in a forked child.
pub(super) fn in_child(attempt: impl FnOnce() -> Outcome, target: &Target) -> Outcome {
    let Ok((read, write)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else {
        return Outcome::Broken;
    };
    if let Some((at, len)) = target.map {
        let at = std::ptr::with_exposed_provenance_mut(at);
        // SAFETY: lets the child have the attacker's own mapping too, as the attacker itself has it.
        unsafe { libc::madvise(at, len, libc::MADV_DOFORK) };
    }
    // SAFETY: the child runs the attack and ends without returning; glibc keeps malloc usable in it.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Outcome::Broken;
    }
    if pid == 0 {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: plain system calls about this child.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
            for signal in [
                libc::SIGSEGV,
                libc::SIGBUS,
                libc::SIGALRM,
                libc::SIGPIPE,
                libc::SIGURG,
            ] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::alarm(200); // a loaded machine moves pages slowly
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempt))
            .unwrap_or(Outcome::Broken);
        let bytes = encode(outcome);
        // SAFETY: writes a local; then ends the child without running anything of the parent.
        unsafe {
            libc::write(write.as_raw_fd(), bytes.as_ptr().cast(), WORDS);
            libc::_exit(0)
        }
    }
    drop(write);
    let mut status = 0;
    // SAFETY: our child; `status` is a local.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0
        && crate::errno::errno() == libc::EINTR
    {}
    let mut bytes = [0; WORDS];
    if libc::WIFSIGNALED(status) {
        return match libc::WTERMSIG(status) {
            libc::SIGALRM => Outcome::Stuck,
            signal => Outcome::Signal(signal),
        };
    }
    match rustix::io::read(&read, &mut bytes) {
        Ok(WORDS) => decode(bytes),
        _ => Outcome::Broken,
    }
}
