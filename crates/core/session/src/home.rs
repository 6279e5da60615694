//! The place of a domain's manager, and how it is reached again.

use super::cut_off::Root;
use super::starter::Starter;
use crate::error::Barrier;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use tranship_sys::{process, socket};

/// The library's descriptors are above this number, because programs that use select() cannot bear higher ones of their
/// own.
pub(super) const FD_FLOOR: i32 = 1024;

pub struct Home {
    /// The socket that was named.
    pub socket: Option<PathBuf>,
    /// The place at which the manager was found, and is searched for when it is gone. Another manager elsewhere would
    /// know none of this domain's peers.
    pub(super) place: PathBuf,
    /// The root directory under which the manager was found there.
    pub(super) root: Option<Root>,
    /// The key to show to the manager.
    pub(super) key: Option<String>,
    /// Set if this process started the manager.
    pub(super) starter: Option<Arc<Starter>>,
}

impl Home {
    /// Connects to the manager that listens there now. The error is the obstacle, unless it is only that no process
    /// listens. In that case a manager is started, if this process had started the last one.
    pub(super) fn dial(&self) -> Result<OwnedFd, Option<Barrier>> {
        match socket::connect_now(&self.place) {
            Ok(fd) => Ok(process::dup_above(fd, FD_FLOOR)),
            Err(error) => {
                let barrier = Barrier::to_connect(&error, self.root);
                if let Some(starter) = self.starter.as_ref().filter(|_| barrier.is_none()) {
                    starter.start();
                }
                Err(barrier)
            }
        }
    }
}
