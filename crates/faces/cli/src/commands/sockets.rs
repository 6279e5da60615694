//! Sockets where managers listen: the one named in the environment, the system's, the user's.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tranship::error::SocketProblem;
use tranship_session::places::Places;
use tranship_sys::socket::MAX_PATH_BYTES;

/// A place to look at, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub why: &'static str,
    pub path: PathBuf,
}

/// Result of the look at a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Listening {
    Yes,
    /// There is no such file.
    Absent,
    /// A file left by a manager that is gone.
    Dead,
    /// The socket cannot be used, and no manager is looked for or started past it.
    Unusable(SocketProblem),
    /// Another error.
    Refused(String),
}

/// Returns the places in the order in which `connect` tries them. A given one is the only one.
pub(crate) fn candidates(given: Option<&Path>) -> Vec<Candidate> {
    let place = |why, path| Candidate { why, path };
    if let Some(path) = given {
        return vec![place("--socket", path.to_path_buf())];
    }
    let places = Places::find();
    if let Some(path) = places.named {
        return vec![place("$TRANSHIP_SOCKET", path)];
    }
    let user = places.user.map(|path| place("the user's socket", path));
    let system = place("the system's socket", places.system);
    std::iter::once(system).chain(user).collect()
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
        // A full backlog: a process has it open, and is busy.
        Ok(()) | Err(Errno::AGAIN) => Listening::Yes,
        Err(Errno::NOENT | Errno::NOTDIR) => Listening::Absent,
        Err(Errno::CONNREFUSED | Errno::ACCESS | Errno::PERM) if is_other_file(path) => {
            Listening::Unusable(SocketProblem::NotASocket)
        }
        Err(Errno::CONNREFUSED) => Listening::Dead,
        Err(Errno::ACCESS | Errno::PERM) => Listening::Unusable(SocketProblem::Access),
        Err(Errno::PROTOTYPE) => Listening::Unusable(SocketProblem::OtherKind),
        Err(Errno::NAMETOOLONG) => Listening::Unusable(SocketProblem::PathLength {
            bytes: path.as_os_str().len(),
            max: MAX_PATH_BYTES,
        }),
        Err(error) => Listening::Refused(error.to_string()),
    }
}

/// Returns whether the path is another kind of file. A path that is gone was a socket: a manager that begins removes
/// that of a dead one.
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
        let unusable = Listening::Unusable;
        assert_eq!(probe(&file), unusable(SocketProblem::NotASocket));
        let stream = dir.path().join("stream");
        let _stream = std::os::unix::net::UnixListener::bind(&stream).expect("bind");
        assert_eq!(probe(&stream), unusable(SocketProblem::OtherKind));
        let (bytes, max) = (109, 107);
        let long = Path::new("/").join("x".repeat(108));
        let too_long = SocketProblem::PathLength { bytes, max };
        assert_eq!(probe(&long), unusable(too_long));
    }

    #[test]
    fn a_given_socket_is_the_only_place() {
        let places = candidates(Some(Path::new("/x")));
        assert_eq!(places.len(), 1);
    }
}
