//! Steps of a child between fork and exec. The parent may have other threads. So there are no allocations and no locks,
//! only system calls over data that the parent prepared.

use std::ffi::CString;
use std::os::fd::RawFd;

use super::Privilege;
use crate::container::Root;
use crate::errno::errno;

/// Names of the steps, sent back by number when one fails.
pub(super) const STEPS: [&str; 9] = [
    "wait",
    "ids",
    "container",
    "descriptors",
    "output",
    "capabilities",
    "user",
    "session and parent",
    "exec",
];

pub(super) struct Setup {
    pub exe: RawFd,
    pub argv: Vec<CString>,
    pub envp: Vec<CString>,
    pub control: RawFd,
    pub go: RawFd,
    pub failed: RawFd,
    pub stdout: Option<RawFd>,
    pub stderr: Option<RawFd>,
    pub privilege: Privilege,
    pub root: Option<Root>,
    pub own_users: bool,
    pub own_session: bool,
    pub dies_with_parent: bool,
    pub parent: i32,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn check(r: libc::c_long) -> Result<(), i32> {
    if r >= 0 { Ok(()) } else { Err(errno()) }
}

/// Pointers for exec, made by the parent.
pub(super) struct Vectors {
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

impl Setup {
    pub(super) fn vectors(&self) -> Vectors {
        let list = |v: &[CString]| {
            v.iter()
                .map(|s| s.as_ptr())
                .chain([std::ptr::null()])
                .collect()
        };
        Vectors {
            argv: list(&self.argv),
            envp: list(&self.envp),
        }
    }

    /// Runs the steps; never returns: the process becomes the program, or reports the step and the error and ends.
    pub(super) fn run(&self, vectors: &Vectors) -> ! {
        let mut step = 0;
        let error = self.steps(vectors, &mut step).err().unwrap_or(libc::EINVAL);
        let report = [step, error];
        // SAFETY: writes 8 bytes of a local, then ends the forked process without running destructors.
        unsafe {
            libc::write(self.failed, report.as_ptr().cast(), 8);
            libc::_exit(127)
        }
    }

    fn steps(&self, vectors: &Vectors, step: &mut i32) -> Result<(), i32> {
        let mut byte = 0u8;
        // SAFETY: (whole function) system calls over memory that the parent prepared and this copy owns.
        unsafe {
            check(libc::read(self.go, (&raw mut byte).cast(), 1) as libc::c_long)?;
            *step = 1;
            if self.own_users {
                check(libc::syscall(libc::SYS_setresgid, 0, 0, 0))?;
                check(libc::syscall(libc::SYS_setresuid, 0, 0, 0))?;
            }
            *step = 2;
            if let Some(root) = &self.root {
                root.enter()?;
            }
            *step = 3;
            let cloexec = 4;
            check(libc::syscall(libc::SYS_close_range, 3, u32::MAX, cloexec))?;
            check(libc::fcntl(self.control, libc::F_SETFD, 0).into())?;
            *step = 4;
            for (fd, number) in [(self.stdout, 1), (self.stderr, 2)] {
                if let Some(fd) = fd {
                    check(libc::dup2(fd, number).into())?;
                }
            }
            *step = 5;
            match &self.privilege {
                Privilege::Inherit => {}
                Privilege::User { uid, gid } => {
                    *step = 6;
                    if libc::geteuid() == 0 {
                        check(libc::syscall(libc::SYS_setgroups, 0, 0))?;
                    }
                    check(libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid))?;
                    check(libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid))?;
                }
                Privilege::Root { capabilities } => keep_only(capabilities)?,
            }
            *step = 7;
            if self.own_session {
                check(libc::setsid().into())?;
            }
            if self.dies_with_parent {
                check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into())?;
                let parent = libc::getppid();
                if parent != self.parent && parent != 0 {
                    return Err(libc::ESRCH);
                }
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            *step = 8;
            let (argv, envp) = (vectors.argv.as_ptr(), vectors.envp.as_ptr());
            check(libc::syscall(
                libc::SYS_execveat,
                self.exe,
                c"".as_ptr(),
                argv,
                envp,
                libc::AT_EMPTY_PATH,
            ))
        }
    }
}

fn keep_only(capabilities: &[u32]) -> Result<(), i32> {
    let mut set = [CapData {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    for &c in capabilities {
        let (word, bit) = (usize::from(c >= 32), 1 << (c % 32));
        set[word] = CapData {
            effective: set[word].effective | bit,
            permitted: set[word].permitted | bit,
            inheritable: set[word].inheritable | bit,
        };
    }
    let header = CapHeader {
        version: 0x2008_0522,
        pid: 0,
    };
    // SAFETY: system calls over locals.
    unsafe {
        for c in 0..64u32 {
            if !capabilities.contains(&c)
                && libc::prctl(libc::PR_CAPBSET_DROP, c) < 0
                && errno() != libc::EINVAL
            {
                return Err(errno());
            }
        }
        check(
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_CLEAR_ALL,
                0,
                0,
                0,
            )
            .into(),
        )?;
        check(libc::syscall(libc::SYS_setgroups, 0, 0))?;
        check(libc::syscall(
            libc::SYS_capset,
            &raw const header,
            set.as_ptr(),
        ))?;
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())
    }
}
