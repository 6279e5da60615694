//! Attempts to break the isolation of a memfd, a mapping or a process, each in a forked child where a signal
//! counts as a refusal.
//!
//! An attack knows its effect on something that is *not* protected ([`Bite`]). The tests of this crate first run every
//! attack against an unsealed memfd or a dumpable process, so that the checks have been seen failing. The result is the
//! view of the victim afterwards, taken by the `check` given to [`run`].

mod found;
mod handles;
mod kernel_writes;
mod mappings;
mod processes;
mod run;
mod uring;
mod writes;

use std::os::fd::RawFd;

pub use found::{mappings, memfds};
pub use run::{Attempt, run, run_all, table};

/// Objects that an attacker was given. All are optional: an attack that needs a missing one is unavailable.
#[derive(Debug, Clone, Copy, Default)]
pub struct Target {
    /// A descriptor of the shared object.
    pub fd: Option<RawFd>,
    /// A shared mapping of it, as address and length (a multiple of the page size).
    pub map: Option<(usize, usize)>,
    /// The victim, and where in its memory it maps the object writable.
    pub pid: Option<u32>,
    pub victim_map: Option<usize>,
    /// The number of the victim's own descriptor of it.
    pub victim_fd: Option<RawFd>,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    /// The kernel said no.
    Errno(i32),
    /// The attacker was struck by a signal.
    Signal(i32),
    /// The call reported success. Whether it did harm, the victim says.
    Succeeded,
    /// This kernel, these privileges or this target do not have the feature; the errno.
    Unavailable(i32),
    /// The attacker did not come back within 20 s and was killed.
    Stuck,
    /// The attack is broken (a panic): a bug of the test.
    Broken,
}

impl Outcome {
    /// Returns whether the kernel stopped it.
    #[must_use]
    pub fn refused(self) -> bool {
        matches!(
            self,
            Self::Errno(_) | Self::Signal(_) | Self::Unavailable(_)
        )
    }
}

/// Effect of an attack on something that is not protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bite {
    /// Changes bytes, size or seals of an unsealed memfd, given a descriptor or a read-only mapping.
    Unsealed,
    /// Changes bytes when the mapping it is given is writable.
    Writable,
    /// Gets at a dumpable process of the same user.
    Dumpable,
    /// Takes away the sleepers on a word of it, for which read access is enough. They wake at their bound, or never if
    /// they have none. Changes nothing else.
    Sleepers,
    /// Never changes the bytes that others see; it must not crash or block them either.
    Harmless,
}

/// One attempt.
#[derive(Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    pub bite: Bite,
    attempt: fn(&Target) -> Outcome,
}

impl std::fmt::Debug for Attack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({:?})", self.name, self.bite)
    }
}

/// Returns all attacks.
#[must_use]
pub fn all() -> Vec<Attack> {
    [
        writes::ATTACKS,
        mappings::ATTACKS,
        kernel_writes::ATTACKS,
        uring::ATTACKS,
        handles::ATTACKS,
        processes::ATTACKS,
    ]
    .concat()
}

/// Names attacks in a table: `attacks![Bite: name, ...]`.
macro_rules! attacks {
    ($($bite:ident { $($name:ident),* $(,)? })*) => {
        pub(super) const ATTACKS: &[crate::attack::Attack] = &[
            $($(crate::attack::Attack {
                name: stringify!($name),
                bite: crate::attack::Bite::$bite,
                attempt: $name,
            }),*),*
        ];
    };
}
use attacks;

/// A byte that is written by every attack that can choose.
const EVIL: u8 = 0xEE;
const PAGE: usize = 4096;

/// Makes a raw system call. Deliberately callable with anything: it is used in forked children that are thrown away,
/// whose crash is one of the expected outcomes.
fn sc(number: libc::c_long, args: &[usize]) -> Result<usize, i32> {
    let mut a = [0; 6];
    a[..args.len()].copy_from_slice(args);
    // SAFETY: runs only in a forked child that ends after one attack. It may destroy only its own copy of memory, or
    // the target, which is under test.
    let r = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
    usize::try_from(r).map_err(|_| crate::errno::errno())
}

/// Minus one as an argument.
const NONE: usize = usize::MAX;

impl Target {
    fn fd(&self) -> Result<usize, Outcome> {
        self.fd
            .and_then(|fd| usize::try_from(fd).ok())
            .ok_or(Outcome::Unavailable(0))
    }

    /// Returns the given mapping, or a read-only one made from the descriptor.
    fn map(&self) -> Result<(usize, usize), Outcome> {
        if let Some(map) = self.map {
            return Ok(map);
        }
        let len = self.len()?;
        let at = sc(
            libc::SYS_mmap,
            &[0, len, PROT_READ, MAP_SHARED, self.fd()?, 0],
        );
        Ok((at.map_err(Outcome::Errno)?, len))
    }

    fn len(&self) -> Result<usize, Outcome> {
        if let Some((_, len)) = self.map {
            return Ok(len);
        }
        let end = sc(libc::SYS_lseek, &[self.fd()?, 0, 2]).map_err(Outcome::Errno)?;
        Ok(end)
    }

    fn pid(&self) -> Result<usize, Outcome> {
        self.pid.map(|p| p as usize).ok_or(Outcome::Unavailable(0))
    }

    fn victim_map(&self) -> Result<usize, Outcome> {
        self.victim_map.ok_or(Outcome::Unavailable(0))
    }
}

const PROT_READ: usize = 1;
const PROT_RW: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE: usize = 2;

/// Ends an attack early with its error.
macro_rules! ask {
    ($e:expr) => {
        match $e {
            Ok(v) => v,
            Err(o) => return crate::attack::Refusal::from(o).0,
        }
    };
}
use ask;

struct Refusal(Outcome);

impl From<i32> for Refusal {
    fn from(errno: i32) -> Self {
        Self(match errno {
            libc::ENOSYS => Outcome::Unavailable(errno),
            _ => Outcome::Errno(errno),
        })
    }
}

impl From<Outcome> for Refusal {
    fn from(outcome: Outcome) -> Self {
        Self(outcome)
    }
}

fn done(result: Result<usize, i32>) -> Outcome {
    result.map_or_else(|e| Refusal::from(e).0, |_| Outcome::Succeeded)
}

/// Returns a page of evil bytes.
fn evil() -> Vec<u8> {
    vec![EVIL; PAGE]
}

fn address<T>(slice: &[T]) -> usize {
    slice.as_ptr().expose_provenance()
}

fn address_mut<T>(slice: &mut [T]) -> usize {
    slice.as_mut_ptr().expose_provenance()
}

/// Stores evil bytes over a mapping.
fn scribble((at, len): (usize, usize)) -> Outcome {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
    for i in (0..len).step_by(64) {
        // SAFETY: none: in a child that is thrown away; a fault is an expected outcome.
        unsafe { at.add(i).write_volatile(EVIL) };
    }
    Outcome::Succeeded
}

fn open(path: &str, flags: i32) -> Result<usize, i32> {
    let path = std::ffi::CString::new(path).map_err(|_| libc::EINVAL)?;
    let at = path.as_ptr().expose_provenance();
    sc(
        libc::SYS_openat,
        &[
            libc::AT_FDCWD.cast_unsigned() as usize,
            at,
            flags.cast_unsigned() as usize,
            0,
        ],
    )
}

/// Tries every way to use a writable descriptor.
fn use_writable(fd: usize) -> Outcome {
    let mapped = sc(libc::SYS_mmap, &[0, PAGE, PROT_RW, MAP_SHARED, fd, 0]);
    if let Ok(at) = mapped {
        return scribble((at, PAGE));
    }
    let bytes = evil();
    done(sc(libc::SYS_pwrite64, &[fd, address(&bytes), PAGE, 0]))
}
