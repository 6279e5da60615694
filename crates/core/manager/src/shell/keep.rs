//! Descriptors that the shell keeps for the state. Closing them is at the expense of the user for whom they were kept.

use crate::state::{FdToken, Input};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// Descriptors without a holder, by user.
#[derive(Debug, Default)]
pub(super) struct CloseQueue(RefCell<Vec<(u32, Discarded)>>);

impl CloseQueue {
    pub fn throw(&self, uid: u32, discarded: Discarded) {
        self.0.borrow_mut().push((uid, discarded));
    }

    /// Takes all of the queue.
    pub fn take(&self) -> Vec<(u32, Discarded)> {
        self.0.take()
    }
}

#[derive(Debug)]
pub(super) struct Discarded {
    pub fd: OwnedFd,
    /// The state's input after the descriptor is closed.
    pub what: Option<Input>,
    /// Set if the manager's process closes it: the descriptor is its own, the kernel's, or a little memory. A worker
    /// closes all others.
    pub small: bool,
}

impl AsFd for Discarded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An open file; queued messages hold it too.
#[derive(Debug)]
pub(super) struct Kept {
    file: Option<File>,
    token: FdToken,
    pub uid: u32,
    small: Cell<bool>,
    /// Whether the object is one of two sockets that clients will share.
    shared: bool,
    close_queue: Rc<CloseQueue>,
}

impl Kept {
    pub fn new(
        file: OwnedFd,
        token: FdToken,
        uid: u32,
        small: bool,
        shared: bool,
        close_queue: &Rc<CloseQueue>,
    ) -> Kept {
        Kept {
            file: Some(file.into()),
            token,
            uid,
            small: Cell::new(small),
            shared,
            close_queue: Rc::clone(close_queue),
        }
    }

    /// Marks a shared descriptor that is being sent: its holders can put things into it that take long to close.
    pub(super) fn goes_out(&self) {
        if self.shared {
            self.small.set(false);
        }
    }
}

impl Deref for Kept {
    type Target = File;
    fn deref(&self) -> &File {
        self.file.as_ref().expect("open until it is dropped")
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let discarded = Discarded {
                fd: file.into(),
                what: Some(Input::Closed { token: self.token }),
                small: self.small.get(),
            };
            self.close_queue.0.borrow_mut().push((self.uid, discarded));
        }
    }
}
