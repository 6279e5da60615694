//! Source of the figures: the page of the manager that `stat` would ask.

use crate::args::ConnectArgs;
use crate::commands::sockets;
use anyhow::Result;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranship::{Error, ErrorKind};
use tranship_manager::page::{Reader, Snapshot, path_of};

/// Time after which a silent manager's last figures are shown: twice the time in which it answers.
const PATIENCE: Duration = Duration::from_millis(600);
/// Time that a manager that has just been started has for its first answer.
const FIRST: Duration = Duration::from_secs(2);

/// A page.
#[derive(Debug)]
pub(super) struct Source {
    reader: Reader,
    socket: PathBuf,
    any: bool,
}

impl Source {
    /// Returns the first page whose manager lives, else the first page.
    pub fn find(args: &ConnectArgs) -> Result<Source> {
        let places = sockets::candidates(args.socket.as_deref());
        let mut left = None;
        let mut why = Vec::new();
        let mut forbidden = false;
        for socket in places.into_iter().map(|place| place.path) {
            match Reader::open(&socket) {
                Ok(mut reader) => {
                    let said = reader.look(FIRST);
                    let lives = said.as_ref().is_some_and(|s| state(s.pid) != State::Ended);
                    let any = said.is_some();
                    let found = Source {
                        reader,
                        socket,
                        any,
                    };
                    if lives {
                        return Ok(found);
                    }
                    left = left.or(Some(found));
                }
                Err(error) => {
                    forbidden |= error.kind() == io::ErrorKind::PermissionDenied;
                    why.push(format!("{}: {error}", path_of(&socket).display()));
                }
            }
        }
        left.ok_or_else(|| {
            let why = why.join("; ");
            let error = match forbidden {
                true => Error::new(
                    ErrorKind::Access,
                    format!("a manager shows its page to root and its own user only ({why}): use `tranship stat`"),
                ),
                false => Error::new(
                    ErrorKind::NoManager,
                    format!("no manager has a statistics page here ({why}); `tranship manager` starts one"),
                ),
            };
            error.into()
        })
    }

    /// Returns the present figures, or the last ones.
    pub fn look(&mut self) -> Result<Snapshot> {
        let patience = if self.any { PATIENCE } else { FIRST };
        match self.reader.look(patience) {
            Some(said) => {
                self.any = true;
                Ok(said)
            }
            None => {
                let path = path_of(&self.socket);
                let text = format!("nothing was published at {} in {FIRST:?}", path.display());
                Err(Error::new(ErrorKind::ManagerAway, text).into())
            }
        }
    }
}

/// State of a process, as far as the kernel tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Runs,
    Stopped,
    Ended,
}

/// Returns the state of a process; one that cannot be seen from here runs.
pub(super) fn state(pid: u32) -> State {
    let said = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(said) => said,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Without /proc the state is not known.
            let proc = Path::new("/proc/self/stat").exists();
            return if proc { State::Ended } else { State::Runs };
        }
        Err(_) => return State::Runs,
    };
    let letter = said
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim().chars().next());
    match letter {
        Some('T' | 't') => State::Stopped,
        Some('Z' | 'X') => State::Ended,
        _ => State::Runs,
    }
}
