//! Finding a manager: at the named socket, otherwise the system's, otherwise the user's; or starting one.
//!
//! A socket that exists is never passed over. It may belong to a manager that this user may not use, or that is just
//! being restarted. A second manager beside it would meet no other domain.

use super::places::Places;
use crate::error::{self, Awaited, Error, ErrorKind, SocketProblem, TimedOut};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tranship_sys::own_dir::own_dir;
use tranship_sys::{errno, pidfd, socket};

/// How long a program may take to start a manager. It is longer than the wait of `tranship manager --daemonize` itself,
/// whose error says more.
const START: Duration = Duration::from_secs(15);

/// A manager that answers.
#[derive(Debug)]
pub struct Found {
    pub fd: OwnedFd,
    pub path: PathBuf,
    /// Set if this process started it.
    pub started: bool,
}

/// Starts a manager at a socket.
pub type Begin<'a> = &'a dyn Fn(&Path) -> Result<(), String>;

/// How to start a manager; or why none may be started, and the user's remedy.
pub type Start<'a> = Result<Begin<'a>, &'static str>;

/// The state of a socket's place.
enum At {
    Manager(OwnedFd),
    /// No process listens, or there is no file.
    Nobody {
        why: io::Error,
        is_there: bool,
    },
}

/// Joins the manager at that socket and no other. If many clients wait to be accepted, it waits at most `limit`.
pub fn named(path: &Path, limit: Duration) -> Result<Found, Error> {
    match look(path, limit)? {
        At::Manager(fd) => Ok(found(fd, path)),
        At::Nobody { why, .. } => {
            let reason = format!(
                "none is started where a socket is named; `tranship manager --socket {}` runs one there",
                path.display()
            );
            Err(no_manager(&tried(path, &why), &reason))
        }
    }
}

/// Looks at one place after another, and waits at each as [`named`] does. If there is no manager at any of them, one is
/// started.
pub fn find(places: &Places, start: Start<'_>, limit: Duration) -> Result<Found, Error> {
    if let Some(path) = &places.named {
        return named(path, limit);
    }
    let mut all = Vec::new();
    for path in places.candidates() {
        match look(path, limit)? {
            At::Manager(fd) => return Ok(found(fd, path)),
            At::Nobody { why, is_there } => {
                all.push(tried(path, &why));
                // The user's own manager is replaced by the next one.
                if is_there && path == places.system {
                    let reason = format!(
                        "the system's manager is not running, and none is started beside it; start it, or remove {}",
                        path.display()
                    );
                    return Err(no_manager(&all.join(", "), &reason));
                }
            }
        }
    }
    let reason = match start {
        Ok(start) => match start_one(places.user.as_deref(), start, limit) {
            Ok(started) => return Ok(started),
            Err(why) => format!("none could be started: {why}"),
        },
        Err(advice) => advice.into(),
    };
    Err(no_manager(&all.join(", "), &reason))
}

/// Makes the error that names the tried sockets, and why no manager was started, or the remedy.
fn no_manager(tried: &str, reason: &str) -> Error {
    let text = format!("no manager answers at {tried}: {reason}");
    Error::new(ErrorKind::NoManager, text)
}

fn found(fd: OwnedFd, path: &Path) -> Found {
    Found {
        fd,
        path: path.to_owned(),
        started: false,
    }
}

fn tried(path: &Path, why: &io::Error) -> String {
    format!("{} ({why})", path.display())
}

fn look(path: &Path, limit: Duration) -> Result<At, Error> {
    let why = match socket::connect_within(path, limit) {
        Ok(fd) => return Ok(At::Manager(fd)),
        // The socket's queue was full all the time.
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
            return Err(TimedOut {
                awaited: Awaited::Manager("the request to join"),
                waited_ms: crate::base::millis(limit),
            }
            .into());
        }
        Err(why) => why,
    };
    let problem = |problem: SocketProblem| {
        let text = format!("the manager's socket {} cannot be used", path.display());
        Err(Error::because(ErrorKind::Unreachable, text, problem))
    };
    match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(At::Nobody {
            why,
            is_there: false,
        }),
        // The kernel returns this error for other files too.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied
            if is_other_file(path) =>
        {
            problem(SocketProblem::NotASocket)
        }
        io::ErrorKind::ConnectionRefused => Ok(At::Nobody {
            why,
            is_there: true,
        }),
        io::ErrorKind::PermissionDenied => problem(SocketProblem::Access),
        _ if why.raw_os_error() == Some(errno::WRONG_SOCKET_TYPE) => {
            problem(SocketProblem::OtherKind)
        }
        _ if why.raw_os_error() == Some(errno::NAME_TOO_LONG) => {
            problem(SocketProblem::PathLength {
                bytes: path.as_os_str().len(),
                max: socket::MAX_PATH_BYTES,
            })
        }
        _ => Err(error::system("connect to the manager's socket")(why)),
    }
}

/// Says whether a file other than a socket is there. A file that is gone by now was a socket: a starting manager
/// removes that of a dead one.
fn is_other_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.file_type().is_socket())
}

/// Starts a manager for this user and connects to it.
fn start_one(socket: Option<&Path>, start: Begin<'_>, limit: Duration) -> Result<Found, String> {
    let path = socket.ok_or("no safe directory for its socket; set XDG_RUNTIME_DIR")?;
    let made = path.parent().map_or(Ok(()), own_dir);
    made.map_err(|why| format!("no directory for its socket: {why}"))?;
    start(path)?;
    let begun = Instant::now();
    loop {
        match socket::connect_within(path, limit) {
            Ok(fd) => {
                return Ok(Found {
                    started: true,
                    ..found(fd, path)
                });
            }
            Err(error) if begun.elapsed() >= limit => {
                return Err(format!("it was started, but {error}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Runs `tranship manager` as a daemon, and returns when a manager listens: this one, or another that was faster.
pub fn run_manager(program: Option<&Path>, path: &Path) -> Result<(), String> {
    let program = program
        .map(Path::to_owned)
        .or_else(|| std::env::var_os("TRANSHIP_BIN").map(PathBuf::from))
        .or_else(beside_us)
        .unwrap_or_else(|| "tranship".into());
    let cannot = |e| {
        format!(
            "cannot run {}: {e}; install `tranship`, or set TRANSHIP_BIN",
            program.display()
        )
    };
    // Two processes may do this at once: the manager's own lock lets one of the two daemons win.
    let mut child = Command::new(&program)
        .args(["manager", "--daemonize", "--idle-exit", "60s", "--socket"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(cannot)?;
    let over = pidfd::open(child.id()).and_then(|fd| pidfd::wait_dead(fd, Some(START)));
    // An error of the check counts as an error of the wait.
    if let Ok(false) = over {
        let _ = child.kill();
    }
    let status = child.wait().map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    let how = match over {
        Ok(false) => format!("had not started one after {START:?}, and was killed"),
        _ => format!("ended with {status}"),
    };
    Err(format!(
        "{program} {how}; `{program} manager --socket {socket}` says why",
        program = program.display(),
        socket = path.display()
    ))
}

fn beside_us() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name("tranship");
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Returns the error of a search that finds only this at the system's socket, and says whether a manager was
    /// started.
    fn with_system(make: impl FnOnce(&Path)) -> Error {
        let dir = tranship_testkit::folder().expect("a folder");
        let places = Places {
            named: None,
            system: dir.path().join("system.sock"),
            // Below a directory that is made for it, with mode 0700.
            user: Some(dir.path().join("own/user.sock")),
        };
        make(&places.system);
        let started = find(&places, Ok(&|_| Err("it began".into())), LIMIT);
        started.map(drop).expect_err("nobody is there")
    }

    fn problem(error: Error) -> SocketProblem {
        assert_eq!(error, ErrorKind::Unreachable);
        *error.find().expect("a problem")
    }

    #[test]
    fn one_is_started_where_nothing_is() {
        let error = with_system(|_| {});
        assert!(error.to_string().contains("it began"), "{error}");
    }

    #[test]
    fn none_is_started_past_a_socket_that_is_there() {
        let error = with_system(|path| drop(socket::listen(path, 0o600).expect("listen")));
        assert_eq!(error, ErrorKind::NoManager);
        assert!(
            error.to_string().contains("none is started beside"),
            "{error}"
        );
        let file = with_system(|path| std::fs::write(path, "").expect("a file"));
        assert_eq!(problem(file), SocketProblem::NotASocket);
        let stream = with_system(|path| std::mem::forget(UnixListener::bind(path)));
        assert_eq!(problem(stream), SocketProblem::OtherKind);
    }

    #[test]
    fn a_socket_that_is_gone_by_now_was_one() {
        let dir = tranship_testkit::folder().expect("a folder");
        let path = dir.path().join("m");
        assert!(!is_other_file(&path), "nothing");
        drop(socket::listen(&path, 0o600).expect("listen"));
        assert!(!is_other_file(&path), "a dead socket");
        std::fs::remove_file(&path).expect("remove");
        std::fs::write(&path, "").expect("a file");
        assert!(is_other_file(&path));
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_said_to_be_too_long() {
        let path = Path::new("/").join("x".repeat(108));
        let (bytes, max) = (109, 107);
        let error = named(&path, LIMIT).map(drop).expect_err("too long");
        assert_eq!(problem(error), SocketProblem::PathLength { bytes, max });
    }

    #[test]
    fn who_starts_none_says_why() {
        let dir = tranship_testkit::folder().expect("a folder");
        let places = Places {
            named: None,
            system: dir.path().join("system.sock"),
            user: None,
        };
        let error = find(&places, Err("because"), LIMIT)
            .map(drop)
            .expect_err("none");
        assert!(error.to_string().ends_with(": because"), "{error}");
    }
}
