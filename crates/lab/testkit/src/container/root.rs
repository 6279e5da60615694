//! The file tree of a container, built in its own mount namespace by the forked child (system calls only,
//! see `peer::setup`).

use std::ffi::CString;
use std::io::Error;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::errno::errno;

/// Directories of the host that programs need to run; read-only inside.
const HOST: [&str; 6] = [
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/etc/alternatives",
];

enum Step {
    Dir(CString),
    Link {
        to: CString,
        at: CString,
    },
    Bind {
        from: CString,
        to: CString,
        writable: bool,
    },
    Proc(CString),
}

/// Directory where the tree is mounted (any that every user can reach), and the steps that build it.
pub(crate) struct Root {
    at: CString,
    old: CString,
    steps: Vec<Step>,
}

fn c(path: impl AsRef<Path>) -> Result<CString, Error> {
    Ok(CString::new(path.as_ref().as_os_str().as_bytes())?)
}

impl Root {
    pub(crate) fn new(shared: &[(PathBuf, PathBuf)]) -> Result<Self, Error> {
        let base = Path::new("/mnt");
        let base = if base.is_dir() {
            base
        } else {
            Path::new("/tmp")
        };
        let inside = |p: &Path| base.join(p.strip_prefix("/").unwrap_or(p));
        let mut steps = Vec::new();
        let dirs = |p: &Path, steps: &mut Vec<Step>| -> Result<(), Error> {
            let mut all: Vec<_> = p.ancestors().filter(|a| a.parent().is_some()).collect();
            all.reverse();
            for a in all {
                steps.push(Step::Dir(c(inside(a))?));
            }
            Ok(())
        };
        for host in HOST.map(Path::new) {
            let Ok(word) = host.symlink_metadata() else {
                continue;
            };
            if word.is_symlink() {
                steps.push(Step::Link {
                    to: c(host.read_link()?)?,
                    at: c(inside(host))?,
                });
            } else {
                dirs(host, &mut steps)?;
                steps.push(Step::Bind {
                    from: c(host)?,
                    to: c(inside(host))?,
                    writable: false,
                });
            }
        }
        for dir in ["/tmp", "/run", "/proc", "/old"] {
            dirs(Path::new(dir), &mut steps)?;
        }
        for (from, to) in shared {
            dirs(to, &mut steps)?;
            steps.push(Step::Bind {
                from: c(from)?,
                to: c(inside(to))?,
                writable: true,
            });
        }
        steps.push(Step::Proc(c(inside(Path::new("/proc")))?));
        Ok(Self {
            at: c(base)?,
            old: c(inside(Path::new("/old")))?,
            steps,
        })
    }

    /// Runs in the forked child.
    pub(crate) fn enter(&self) -> Result<(), i32> {
        let none = std::ptr::null::<libc::c_char>();
        let nothing = std::ptr::null::<libc::c_void>();
        let quiet = libc::MS_NOSUID | libc::MS_NODEV;
        let ok = |r: i32| if r == 0 { Ok(()) } else { Err(errno()) };
        // SAFETY: system calls over strings that the parent prepared.
        unsafe {
            ok(libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                nothing,
            ))?;
            ok(libc::mount(
                c"tmpfs".as_ptr(),
                self.at.as_ptr(),
                c"tmpfs".as_ptr(),
                quiet,
                c"mode=755".as_ptr().cast(),
            ))?;
            for step in &self.steps {
                match step {
                    Step::Dir(dir) => match ok(libc::mkdir(dir.as_ptr(), 0o755)) {
                        Err(libc::EEXIST) => {}
                        other => other?,
                    },
                    Step::Link { to, at } => ok(libc::symlink(to.as_ptr(), at.as_ptr()))?,
                    Step::Bind { from, to, writable } => {
                        let bind = libc::MS_BIND | libc::MS_REC;
                        ok(libc::mount(from.as_ptr(), to.as_ptr(), none, bind, nothing))?;
                        if !writable {
                            let again = libc::MS_BIND
                                | libc::MS_REMOUNT
                                | libc::MS_RDONLY
                                | libc::MS_NOSUID;
                            // A locked flag of the host's mount may forbid this in a user namespace; files there
                            // belong to users that the container does not have, so nothing is lost.
                            let _ = libc::mount(none, to.as_ptr(), none, again, nothing);
                        }
                    }
                    Step::Proc(at) => {
                        ok(libc::mount(
                            c"proc".as_ptr(),
                            at.as_ptr(),
                            c"proc".as_ptr(),
                            quiet,
                            nothing,
                        ))?;
                    }
                }
            }
            ok(i32::from(
                libc::syscall(libc::SYS_pivot_root, self.at.as_ptr(), self.old.as_ptr()) < 0,
            ))?;
            ok(libc::chdir(c"/".as_ptr()))?;
            ok(libc::umount2(c"/old".as_ptr(), libc::MNT_DETACH))?;
            ok(libc::rmdir(c"/old".as_ptr()))
        }
    }
}
