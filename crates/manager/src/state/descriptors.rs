//! Descriptors that are held for users, and how many of them there may be.

use super::State;
use super::accounts::Of;
use super::extent::Held;
use super::refuse::refusal;
use super::types::{Action, FdToken};
use tranship_proto::{Refusal, RefusalCode};

impl State {
    /// Whether so many more descriptors may be held for a user.
    pub(super) fn check_descriptors(&self, uid: u32, n: u64) -> Result<(), Refusal> {
        let (sum, all) = (
            self.accounts.sum(Of::Descriptors),
            self.accounts.all(Of::Descriptors),
        );
        if n > 0 && sum + n > all {
            return Err(self.no_descriptors());
        }
        self.accounts.check(uid, Of::Descriptors, n)
    }

    pub(super) fn no_descriptors(&self) -> Refusal {
        let (held, most) = (
            self.accounts.sum(Of::Descriptors),
            self.accounts.all(Of::Descriptors),
        );
        refusal(RefusalCode::NoDescriptors, held, most)
    }

    /// Becomes the owner of a descriptor on behalf of a user.
    pub(super) fn hold(&mut self, token: FdToken, uid: u32) -> FdToken {
        let memory = None;
        let twice = self.held.insert(token, Held { uid, memory });
        debug_assert!(twice.is_none(), "token {token:?} is held twice");
        self.accounts.add(uid, Of::Descriptors, 1);
        token
    }

    /// Closes a descriptor that was held. It counts until it is closed: messages on their way may bring it.
    pub(super) fn release(&mut self, token: FdToken) {
        let Some(held) = self.held.remove(&token) else {
            debug_assert!(false, "token {token:?} is not held");
            return;
        };
        if let Some(piece) = held.memory {
            self.extent.sub(piece);
        }
        self.closing.insert(token, held.uid);
        self.out.push(Action::Close(token));
    }
}
