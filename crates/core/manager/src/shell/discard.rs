//! Keeping descriptors for the state, and sorting those that are to be closed by the parties that pay for it.

use super::keep::{Discarded, Kept};
use super::parts::Shell;
use super::party::Task;
use super::worker::SMALL_BYTES;
use crate::state::{Facts, FdToken};
use std::os::fd::OwnedFd;
use std::rc::Rc;

impl Shell {
    /// Keeps a descriptor that the manager or the kernel made.
    pub(super) fn keep_own(&mut self, uid: u32, fd: OwnedFd) -> FdToken {
        self.keep(uid, Some(fd), true, false)
    }

    /// Keeps a descriptor that a client sent. If it was not worth handing on, the token stands for nothing.
    pub(super) fn keep_sent(&mut self, uid: u32, facts: &Facts, fd: Option<OwnedFd>) -> FdToken {
        let small = facts.sealed.is_memory() && facts.size <= SMALL_BYTES;
        self.keep(uid, fd, small, false)
    }

    /// Keeps one of two sockets that clients are going to share: its contents are as untrusted as clients' messages.
    /// Until it is sent, it is empty.
    pub(super) fn keep_shared(&mut self, uid: u32, fd: OwnedFd) -> FdToken {
        self.keep(uid, Some(fd), true, true)
    }

    fn keep(&mut self, uid: u32, fd: Option<OwnedFd>, small: bool, shared: bool) -> FdToken {
        let token = FdToken(self.next_token);
        self.next_token += 1;
        if let Some(fd) = fd {
            let kept = Kept::new(fd, token, uid, small, shared, &self.close_queue);
            self.fds.insert(token, Rc::new(kept));
        }
        token
    }

    pub(super) fn throw(&mut self, uid: u32, discarded: Discarded) {
        self.close_queue.throw(uid, discarded);
    }

    /// Sorts discarded descriptors by the parties that pay for closing them.
    pub(super) fn sort_trash(&mut self) {
        let all = self.close_queue.take();
        for (uid, discarded) in all {
            match self.party(uid) {
                Ok(party) => {
                    match discarded.small {
                        true => party.small.push_back(discarded),
                        false => party.foreign.push_back(discarded),
                    }
                    if !std::mem::replace(&mut party.sweeping, true) {
                        self.enqueue(uid, Task::Sweep);
                    }
                }
                // There is no descriptor for a party: the next try may find one.
                Err(_) => self.throw(uid, discarded),
            }
        }
    }
}
