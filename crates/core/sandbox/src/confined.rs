//! The rights of a program of any language, which knows of no sandbox.

use crate::{Landlock, landlock, namespace, seccomp};
use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use std::path::PathBuf;
use tranship_error::{Error, system};

/// Paths that nearly every program reads: programs, libraries, and devices without contents.
const USUAL: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];
/// Devices that nearly every program writes.
const USUAL_WRITTEN: &[&str] = &["/dev/null", "/dev/zero", "/dev/full"];

/// The rights of a program that is started afterwards, in this process's place ([`confine`](Confined::confine)).
///
/// [`Sandbox`](crate::Sandbox) suits a program that opens what it needs and then locks itself down. This suits any other
/// program: the listed paths stay open to it, and the system calls that reach other processes or the kernel's settings
/// are refused.
///
/// ```no_run
/// # mod tranship { pub mod sandbox { pub use tranship_sandbox::*; } }
/// use std::os::unix::process::CommandExt;
/// use tranship::sandbox::Confined;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// Confined { read: vec!["/srv/images".into()], ..Confined::default() }.confine()?;
/// let error = std::process::Command::new("/usr/bin/gzip").exec();
/// # Err(error.into())
/// # }
/// ```
///
/// Sources: landlock(7), seccomp(2), capabilities(7), namespaces(7), pid_namespaces(7) of Linux.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Confined {
    /// Files and folders that may be read and run, besides the system's programs and libraries.
    pub read: Vec<PathBuf>,
    /// Files and folders that may be written, too.
    pub write: Vec<PathBuf>,
    /// Every file that the user may open stays open: no Landlock.
    pub any_file: bool,
    /// The machine's network stays. Otherwise the program has a network namespace of its own, without an address.
    pub network: bool,
    /// The machine's processes and mounts stay. Otherwise the program has a process namespace and a mount namespace of its
    /// own: it sees, and can name, its own processes only.
    pub any_process: bool,
    /// No system call is refused.
    pub any_call: bool,
    /// User that the program becomes; only root may change it.
    pub uid: Option<u32>,
    /// Group that the program becomes; the default is the number of the user.
    pub gid: Option<u32>,
    /// Most bytes of memory that it does not share (`RLIMIT_DATA`).
    pub memory: Option<u64>,
    /// Most open descriptors (`RLIMIT_NOFILE`).
    pub descriptors: Option<u64>,
    /// Most processes and threads of its user (`RLIMIT_NPROC`).
    pub processes: Option<u64>,
    /// Most bytes of a file that it writes (`RLIMIT_FSIZE`).
    pub file_bytes: Option<u64>,
    /// Most seconds of processor time (`RLIMIT_CPU`).
    pub cpu_seconds: Option<u64>,
}

impl Confined {
    /// Confines the program, for good: [`separate`](Confined::separate), then [`restrict`](Confined::restrict). The process
    /// must have one thread.
    ///
    /// # Errors
    /// Those of the two.
    pub fn confine(&self) -> Result<(), Error> {
        self.separate()?;
        self.restrict()
    }

    /// Enters namespaces: network, processes and mounts. The process must have one thread.
    ///
    /// With a process namespace the call returns in a new process, the leader of a group of its own. The calling process
    /// closes all its descriptors, waits for it, passes signals on, and ends with its exit code: 128 and the number for a
    /// signal. When the calling process dies, so does the new one. All processes of the namespace end with the new one.
    ///
    /// # Errors
    /// `System` with the step that the kernel refuses: a user without root where user namespaces are switched off, a `/proc`
    /// that is masked.
    pub fn separate(&self) -> Result<(), Error> {
        namespace::leave(!self.network, !self.any_process)
    }

    /// Takes this process's rights away, for good. The process must have one thread.
    ///
    /// Steps in this order: user, capabilities (all go, root's too), limits, files, system calls. It does not block.
    ///
    /// # Errors
    /// `System` with the step that the kernel refuses: a user without root, files without Landlock. The process may be
    /// confined in part then, and should end.
    pub fn restrict(&self) -> Result<(), Error> {
        self.become_user()?;
        tranship_sys::confine::drop_capabilities(false).map_err(system("dropping capabilities"))?;
        self.limit()?;
        if !self.any_file {
            let read = USUAL.iter().map(PathBuf::from);
            let read: Vec<_> = read.chain(self.read.iter().cloned()).collect();
            let write = USUAL_WRITTEN.iter().map(PathBuf::from);
            let write: Vec<_> = write.chain(self.write.iter().cloned()).collect();
            if landlock::restrict_to(&read, &write, self.network)? == Landlock::Missing {
                let why = std::io::Error::from(std::io::ErrorKind::Unsupported);
                let what = "the kernel has no Landlock, or it is switched off (`files = \"any\"` does without)";
                return Err(system(what)(why));
            }
        }
        if !self.any_call {
            for filter in &seccomp::refusing(self.network)? {
                seccomp::install(filter)?;
            }
        }
        Ok(())
    }

    fn become_user(&self) -> Result<(), Error> {
        let Some(uid) = self
            .uid
            .or(self.gid.map(|_| tranship_sys::process::geteuid()))
        else {
            return Ok(());
        };
        let gid = Gid::from_raw(self.gid.unwrap_or(uid));
        let uid = Uid::from_raw(uid);
        let done = rustix::thread::set_thread_groups(&[])
            .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
            .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid));
        done.map_err(|error| system("becoming another user, which only root may")(error.into()))
    }

    fn limit(&self) -> Result<(), Error> {
        let all = [
            (Resource::Core, Some(0)),
            (Resource::Data, self.memory),
            (Resource::Nofile, self.descriptors),
            (Resource::Nproc, self.processes),
            (Resource::Fsize, self.file_bytes),
            (Resource::Cpu, self.cpu_seconds),
        ];
        for (resource, most) in all {
            let Some(most) = most else { continue };
            let hard = getrlimit(resource).maximum;
            let most = Some(hard.map_or(most, |hard| hard.min(most)));
            let limit = Rlimit {
                current: most,
                maximum: most,
            };
            setrlimit(resource, limit).map_err(|error| system("setting a limit")(error.into()))?;
        }
        Ok(())
    }
}
