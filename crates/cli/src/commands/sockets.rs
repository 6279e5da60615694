//! Where managers listen: the socket named in the environment, the system's, the user's.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tranship_manager::paths::{SOCKET_ENV, SYSTEM_SOCKET};

/// A place to look at, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub why: &'static str,
    pub path: PathBuf,
}

/// What was found at a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Listening {
    Yes,
    /// No such file.
    Absent,
    /// A file left by a manager that is gone.
    Dead,
    /// Something else is wrong.
    Refused(String),
}

/// The places in the order in which `connect` tries them. A given one is the only one.
pub(crate) fn candidates(given: Option<&Path>) -> Vec<Place> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(path) = given {
        return vec![Place {
            why: "--socket",
            path: path.to_path_buf(),
        }];
    }
    if let Some(path) = variable(SOCKET_ENV) {
        return vec![Place {
            why: "$TRANSHIP_SOCKET",
            path,
        }];
    }
    let user = tranship_manager::paths::find_user_dir();
    vec![
        Place {
            why: "the system's socket",
            path: SYSTEM_SOCKET.into(),
        },
        Place {
            why: "the user's socket",
            path: user.join("manager.sock"),
        },
    ]
}

/// Connects and hangs up at once.
pub(crate) fn probe(path: &Path) -> Listening {
    let attempt = || {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &address)
    };
    match attempt() {
        // A full backlog: somebody has it open, and is busy.
        Ok(()) | Err(Errno::AGAIN) => Listening::Yes,
        Err(Errno::NOENT | Errno::NOTDIR) => Listening::Absent,
        Err(Errno::CONNREFUSED) if is_other_file(path) => Listening::Refused("no socket".into()),
        Err(Errno::CONNREFUSED) => Listening::Dead,
        Err(error) => Listening::Refused(error.to_string()),
    }
}

/// What is gone by now was a socket: a manager that begins removes that of a dead one.
fn is_other_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};

    #[test]
    fn absent_listening_and_dead_are_told_apart() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("m.sock");
        assert_eq!(probe(&path), Listening::Absent);
        let server = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let server = server.expect("a socket");
        bind(&server, &SocketAddrUnix::new(&path).expect("an address")).expect("bind");
        listen(&server, 1).expect("listen");
        assert_eq!(probe(&path), Listening::Yes);
        drop(server);
        assert_eq!(probe(&path), Listening::Dead);
        assert!(!is_other_file(&path));
        std::fs::remove_file(&path).expect("remove");
        assert!(!is_other_file(&path), "it was one");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("a file");
        assert_eq!(probe(&file), Listening::Refused("no socket".into()));
    }

    #[test]
    fn a_given_socket_is_the_only_place() {
        let places = candidates(Some(Path::new("/x")));
        assert_eq!(places.len(), 1);
    }
}
