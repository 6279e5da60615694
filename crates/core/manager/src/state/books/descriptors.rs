//! Descriptors that are held for users, and the memory behind them. Each is counted to its user until it is closed:
//! queued messages may still bring it.

use super::accounts::{Accounts, Of};
use super::extent::{Extent, For, Maker, Piece};
use crate::state::types::{Action, ClientId, FdToken};
use std::collections::BTreeMap;

/// A descriptor.
#[derive(Debug)]
struct Held {
    /// The user to whom it is counted.
    uid: u32,
    /// `None` for a socket or a process.
    memory: Option<Piece>,
}

#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    /// Owners of descriptors, for the certainty that each is closed once.
    held: BTreeMap<FdToken, Held>,
    /// Released and not yet closed; connections, until they are closed.
    closing: BTreeMap<FdToken, u32>,
    wires: BTreeMap<ClientId, u32>,
    /// The shared memory in use.
    // Invariant: the memory that is `held`, and memory that was released but is still counted.
    extent: Extent,
}

impl Descriptors {
    /// Becomes the owner of a descriptor on behalf of a user.
    pub fn hold(&mut self, token: FdToken, uid: u32, accounts: &mut Accounts) -> FdToken {
        self.hold_piece(token, uid, None, accounts)
    }

    /// Holds a descriptor of memory.
    pub fn hold_piece(
        &mut self,
        token: FdToken,
        uid: u32,
        memory: Option<Piece>,
        accounts: &mut Accounts,
    ) -> FdToken {
        let twice = self.held.insert(token, Held { uid, memory });
        debug_assert!(twice.is_none(), "token {token:?} is held twice");
        memory.into_iter().for_each(|piece| self.extent.add(piece));
        accounts.add(uid, Of::Descriptors, 1);
        token
    }

    /// Closes a descriptor that was held.
    pub fn release(&mut self, token: FdToken, out: &mut Vec<Action>) {
        if let Some(piece) = self.release_but_count(token, out) {
            self.extent.sub(piece);
        }
    }

    /// Closes a descriptor of memory that is mapped at both ends, and still counts it. Pass the piece to `forget` in
    /// the end.
    pub fn release_but_count(&mut self, token: FdToken, out: &mut Vec<Action>) -> Option<Piece> {
        let Some(held) = self.held.remove(&token) else {
            debug_assert!(false, "token {token:?} is not held");
            return None;
        };
        self.closing.insert(token, held.uid);
        out.push(Action::Close(token));
        held.memory
    }

    /// Ends a count of memory without a descriptor.
    pub fn forget(&mut self, piece: Piece) {
        self.extent.sub(piece);
    }

    /// Records that a released descriptor is closed.
    pub fn closed(&mut self, token: FdToken, accounts: &mut Accounts) {
        if let Some(uid) = self.closing.remove(&token) {
            accounts.sub(uid, Of::Descriptors, 1);
        }
    }

    /// Counts a connection's own descriptor.
    pub fn connected(&mut self, client: ClientId, uid: u32, accounts: &mut Accounts) {
        self.wires.insert(client, uid);
        accounts.add(uid, Of::Descriptors, 1);
    }

    /// Records that a connection's descriptor is closed.
    pub fn parted(&mut self, client: ClientId, accounts: &mut Accounts) {
        if let Some(uid) = self.wires.remove(&client) {
            accounts.sub(uid, Of::Descriptors, 1);
        }
    }

    /// Says whether a descriptor is held, or released and not yet closed.
    pub fn knows(&self, token: FdToken) -> bool {
        self.held.contains_key(&token) || self.closing.contains_key(&token)
    }

    /// Returns the bytes of memory that is held.
    pub fn bytes_of(&self, token: FdToken) -> u64 {
        let memory = self.held.get(&token).and_then(|held| held.memory);
        memory.map_or(0, |piece| piece.bytes)
    }

    /// Returns a new number for a domain that makes memory.
    pub fn maker(&mut self) -> Maker {
        self.extent.maker()
    }

    pub fn sum(&self, of: For) -> u64 {
        self.extent.sum(of)
    }

    pub fn made_by(&self, maker: Maker, of: For) -> u64 {
        self.extent.made_by(maker, of)
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::super::extent::Sums;
    use super::*;
    use std::collections::BTreeSet;

    impl Descriptors {
        /// Returns all held descriptors.
        pub fn tokens(&self) -> BTreeSet<FdToken> {
            self.held.keys().copied().collect()
        }

        /// Returns the user to whom each descriptor is counted.
        pub fn payers(&self) -> impl Iterator<Item = u32> + '_ {
            let held = self.held.values().map(|held| held.uid);
            held.chain(self.closing.values().copied())
                .chain(self.wires.values().copied())
        }

        /// Counts memory anew: held memory, released memory that is still counted, and the sums by purpose.
        pub fn audit(&self, kept: impl Iterator<Item = Piece>, sums: Sums) -> Result<(), String> {
            let held = self.held.values().filter_map(|held| held.memory);
            self.extent.audit(held.chain(kept), sums)
        }
    }
}
