//! Where a domain's manager is, and how it is reached again.

use super::cut_off::Root;
use super::starter::Starter;
use crate::error::Barrier;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use tranship_sys::{process, socket};

/// Library descriptors live above what programs that use select() can bear.
const FD_FLOOR: i32 = 1024;

pub struct Home {
    /// The socket that was named.
    pub socket: Option<PathBuf>,
    /// Where its manager was found, and is looked for when it is gone: another one elsewhere would know nobody of those we know.
    pub(super) place: PathBuf,
    /// The root directory under which it was found there.
    pub(super) root: Option<Root>,
    /// Of a manager that we started.
    pub(super) starter: Option<Arc<Starter>>,
    pub(super) high_descriptors: bool,
}

impl Home {
    /// A connection to who listens there now; or what stands in the way, if that is not that nobody does. Then one is started, if we had
    /// started the last one.
    pub(super) fn dial(&self) -> Result<OwnedFd, Option<Barrier>> {
        match socket::connect_now(&self.place) {
            Ok(fd) => Ok(lifted(fd, self.high_descriptors)),
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

pub(super) fn lifted(fd: OwnedFd, high: bool) -> OwnedFd {
    match high {
        true => process::dup_above(fd, FD_FLOOR),
        false => fd,
    }
}
