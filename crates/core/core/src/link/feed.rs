//! Ends that are made for a listener elsewhere than at the manager, and wait there to be accepted.

use super::open::End;
use crate::base::lock;
use crate::error::{self, Error};
use std::any::Any;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use tranship_sys::eventfd;

/// The most ends that may wait.
const MOST: usize = 128;

/// Ends that wait to be accepted.
pub(crate) struct Feed {
    waiting: Mutex<VecDeque<End>>,
    /// Readable while an end waits.
    doorbell: OwnedFd,
}

/// The listener's part of the feed.
pub(crate) struct Fed {
    pub(super) feed: Arc<Feed>,
    /// The carrier's listening end, which makes the ends and keeps the domain. It is dropped with the listener.
    pub(super) _maker: Box<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Fed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fed")
    }
}

impl Feed {
    pub(crate) fn new() -> Result<Arc<Feed>, Error> {
        Ok(Arc::new(Feed {
            waiting: Mutex::default(),
            doorbell: eventfd::create().map_err(error::system("eventfd"))?,
        }))
    }

    /// Adds an end. False: there is no room, and the end is dropped.
    pub(super) fn put(&self, end: End) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= MOST {
            drop(waiting);
            return false;
        }
        waiting.push_back(end);
        // Under the lock, as it is drained. It fails only if it is rung already.
        let _ = eventfd::signal(&self.doorbell);
        true
    }

    pub(crate) fn pop(&self) -> Option<End> {
        let mut waiting = lock(&self.waiting);
        let end = waiting.pop_front();
        if waiting.is_empty() {
            // It fails only if it was not rung.
            let _ = eventfd::drain(&self.doorbell);
        }
        end
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.waiting).is_empty()
    }

    pub(super) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
