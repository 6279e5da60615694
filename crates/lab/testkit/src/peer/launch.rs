//! Launch of a child.

use std::ffi::{CString, OsStr, OsString};
use std::io::{Error, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::entry::{ENTRY, SOCKET, UNDUMPABLE};
use super::setup::{STEPS, Setup};
use super::{Control, Peer, PeerError, Privilege};
use crate::container::{Cgroup, Container};

/// Children may skip too.
const SKIPS: [&str; 2] = [crate::skip::FILE, crate::skip::FORBIDDEN];

/// Launch of a child: its program, its user, its place.
#[derive(Debug, Clone)]
#[must_use]
pub struct Launch {
    program: PathBuf,
    entry: Option<&'static str>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    privilege: Privilege,
    container: Option<Container>,
    cgroup: Option<PathBuf>,
    session: bool,
    undumpable: bool,
    capture: bool,
    quiet: bool,
    outlives_thread: bool,
}

impl Launch {
    /// Launches this same binary, from an entry defined with [`child!`](crate::child).
    pub fn entry(name: &'static str) -> Self {
        Self {
            entry: Some(name),
            ..Self::program("/proc/self/exe")
        }
    }

    /// Launches another program. It gets no control socket that it knows of; its end closes with it.
    pub fn program(path: impl Into<PathBuf>) -> Self {
        Self {
            program: path.into(),
            entry: None,
            args: Vec::new(),
            env: std::env::vars_os()
                .filter(|(k, _)| {
                    SKIPS.iter().any(|s| k == s) || !k.as_bytes().starts_with(b"TRANSHIP_")
                })
                .collect(),
            privilege: Privilege::Inherit,
            container: None,
            cgroup: None,
            session: false,
            undumpable: false,
            capture: false,
            quiet: false,
            outlives_thread: false,
        }
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn args<'a>(mut self, args: impl IntoIterator<Item = &'a OsStr>) -> Self {
        self.args.extend(args.into_iter().map(OsStr::to_owned));
        self
    }

    /// Sets a variable. Variables of the test's own environment that begin with `TRANSHIP_` are not inherited (except
    /// those that concern skips).
    pub fn env(mut self, key: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let key = key.into();
        self.env.retain(|(k, _)| *k != key);
        self.env.push((key, value.into()));
        self
    }

    /// Dies with SIGKILL at this named crash point.
    pub fn crash_at(self, point: impl Into<OsString>) -> Self {
        self.env("TRANSHIP_CRASH_AT", point)
    }

    pub fn privilege(mut self, privilege: Privilege) -> Self {
        self.privilege = privilege;
        self
    }

    /// Sets `PR_SET_DUMPABLE` to 0 before the body runs: others of its uid cannot look into it.
    pub fn undumpable(mut self) -> Self {
        self.undumpable = true;
        self
    }

    /// Puts it into namespaces and a file tree of its own.
    pub fn container(mut self, container: Container) -> Self {
        self.container = Some(container);
        self
    }

    /// Puts it into this memory cgroup from its first instruction on.
    pub fn cgroup(mut self, cgroup: &Cgroup) -> Self {
        self.cgroup = Some(cgroup.path().join("cgroup.procs"));
        self
    }

    /// Puts it into a session of its own, which has a share of the processors where the kernel groups by sessions
    /// (autogroup).
    pub fn own_session(mut self) -> Self {
        self.session = true;
        self
    }

    /// Keeps its stderr for [`Peer::stderr`].
    pub fn capture_stderr(mut self) -> Self {
        self.capture = true;
        self
    }

    /// Discards its standard output.
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Lets it live on when the thread that started it ends. By default that kills it.
    pub fn outlives_thread(mut self) -> Self {
        self.outlives_thread = true;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// The step of the setup that failed, and why.
    pub fn start(&self) -> Result<Peer, PeerError> {
        let fail = |step| move |source| PeerError::Setup { step, source };
        let exe = std::fs::File::open(&self.program).map_err(fail("open program"))?;
        let (ours, theirs) = Control::pair()?;
        let (go_read, go_write) = pipe().map_err(fail("pipe"))?;
        let (failed_read, failed_write) = pipe().map_err(fail("pipe"))?;
        let stderr = self
            .capture
            .then(|| rustix::fs::memfd_create("stderr", rustix::fs::MemfdFlags::CLOEXEC));
        let stderr = stderr
            .transpose()
            .map_err(Error::from)
            .map_err(fail("stderr"))?;
        let stdout = self.quiet.then(|| std::fs::File::create("/dev/null"));
        let stdout = stdout.transpose().map_err(fail("stdout"))?;
        let socket = std::os::fd::AsFd::as_fd(&theirs).as_raw_fd();
        let root = self
            .container
            .as_ref()
            .map(Container::root)
            .transpose()
            .map_err(fail("container"))?;
        let users = self.container.as_ref().is_some_and(|c| c.has_users());
        let setup = Setup {
            exe: exe.as_raw_fd(),
            argv: self.argv(),
            envp: self.envp(socket),
            control: socket,
            go: go_read.as_raw_fd(),
            failed: failed_write.as_raw_fd(),
            stdout: stdout.as_ref().map(AsRawFd::as_raw_fd),
            stderr: stderr.as_ref().map(AsRawFd::as_raw_fd),
            privilege: self.privilege.clone(),
            root,
            own_users: users,
            own_session: self.session,
            dies_with_parent: !self.outlives_thread,
            parent: i32::try_from(std::process::id()).unwrap_or(0),
        };
        let vectors = setup.vectors();
        let namespaces = self.container.as_ref().map_or(0, |c| c.namespaces());
        let Some((pid, pidfd)) = clone(namespaces).map_err(fail("clone"))? else {
            setup.run(&vectors)
        };
        let peer = Peer::new(pid, pidfd, ours, stderr);
        drop((theirs, go_read, failed_write));
        if users {
            for map in ["uid_map", "gid_map"] {
                std::fs::write(format!("/proc/{pid}/{map}"), Container::ID_MAP)
                    .map_err(fail("user namespace"))?;
            }
        }
        if let Some(procs) = &self.cgroup {
            std::fs::write(procs, pid.to_string()).map_err(fail("cgroup"))?;
        }
        std::fs::File::from(go_write)
            .write_all(b"g")
            .map_err(fail("go"))?;
        let mut report = [0; 8];
        if std::fs::File::from(failed_read)
            .read_exact(&mut report)
            .is_ok()
        {
            let at = |i: usize| {
                i32::from_ne_bytes([report[i], report[i + 1], report[i + 2], report[i + 3]])
            };
            let step = usize::try_from(at(0))
                .ok()
                .and_then(|s| STEPS.get(s))
                .unwrap_or(&"?");
            return Err(PeerError::Setup {
                step,
                source: Error::from_raw_os_error(at(4)),
            });
        }
        Ok(peer)
    }

    fn argv(&self) -> Vec<CString> {
        let name = self.entry.map_or(self.program.as_os_str(), OsStr::new);
        std::iter::once(name)
            .chain(self.args.iter().map(OsString::as_os_str))
            .map(c_string)
            .collect()
    }

    fn envp(&self, socket: i32) -> Vec<CString> {
        let mut all = self.env.clone();
        if let Some(entry) = self.entry {
            all.push((ENTRY.into(), entry.into()));
            all.push((SOCKET.into(), socket.to_string().into()));
        }
        if self.undumpable {
            all.push((UNDUMPABLE.into(), "1".into()));
        }
        let join = |(k, v): (OsString, OsString)| c_string([k, v].join(OsStr::new("=")));
        all.into_iter().map(join).collect()
    }
}

/// Makes a C string; one with a zero inside ends there, as it would in C.
fn c_string(s: impl AsRef<OsStr>) -> CString {
    let bytes = s.as_ref().as_bytes();
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    CString::new(&bytes[..end]).unwrap_or_default()
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(Error::from)
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Forks into new namespaces; `None` in the child.
fn clone(namespaces: i32) -> Result<Option<(u32, OwnedFd)>, Error> {
    let mut pidfd = -1i32;
    let args = CloneArgs {
        flags: u64::from((namespaces | libc::CLONE_PIDFD).cast_unsigned()),
        pidfd: (&raw mut pidfd).expose_provenance() as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArgs::default()
    };
    // SAFETY: a fork without shared memory; the child does only the steps of `setup` (see there).
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match u32::try_from(pid) {
        Err(_) => Err(Error::last_os_error()),
        Ok(0) => Ok(None),
        // SAFETY: the kernel stored a fresh descriptor of ours.
        Ok(pid) => Ok(Some((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))),
    }
}

/// Defines a child: `child!(fn name(ctl: Control) { ... })`. Calling `name()` gives the
/// [`Launch`](crate::Launch) that starts it. The body may return `()` or a `Result<(), impl Debug>`.
#[macro_export]
macro_rules! child {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($ctl:ident : $ty:ty) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name() -> $crate::Launch {
            extern "C" fn start() {
                fn run($ctl: $ty) $(-> $ret)? $body
                $crate::peer::enter(concat!(module_path!(), "::", stringify!($name)), run);
            }
            #[used]
            #[unsafe(link_section = ".init_array")]
            static START: extern "C" fn() = start;
            $crate::Launch::entry(concat!(module_path!(), "::", stringify!($name)))
        }
    };
}
