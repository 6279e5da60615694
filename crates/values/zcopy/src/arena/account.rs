//! Places of an arena's window, taken and given back, and the account that pays for their memory: that of its domain,
//! if it has one.
//!
//! Charged is all that may have memory: pageblocks and large values in use, those that wait for children, and empty
//! ones that are kept with their pages. Not charged are pages that a program got of its own, by writing to protected
//! memory, or after a fork.

use super::inner::{Inner, Room, lock, pages};
use super::options::Options;
use crate::error::Error;
use std::io;
use tranship_core::Account;
use tranship_core::heap::Heap;

impl Options {
    pub(super) fn open_account(&self) -> Result<Option<Account>, Error> {
        let Some(domain) = &self.domain else {
            return Ok(None);
        };
        let heap = Heap::create(domain, self.heap())?;
        Ok(Some(Account::new(heap)))
    }
}

impl Inner {
    pub(super) fn charge(&self, bytes: u64) -> bool {
        let account = self.account.as_ref();
        account.is_none_or(|account| account.charge(bytes))
    }

    pub(super) fn discharge(&self, bytes: u64) {
        if let Some(account) = &self.account {
            account.discharge(bytes);
        }
    }

    /// Asks the manager to admit memory for a value that finds no room. Not under a lock of the arena's.
    pub(super) fn ask_for_room(&self, len: usize) -> bool {
        let bytes = pages(len).max(self.block_bytes as u64);
        let account = self.account.as_ref();
        account.is_some_and(|account| account.ensure(bytes))
    }

    /// Returns [`crate::Arena::heap`].
    pub(crate) fn heap(&self) -> Option<&Heap> {
        self.account.as_ref().map(Account::heap)
    }

    /// Returns whether the manager wants memory back.
    pub(super) fn is_pressed(&self) -> bool {
        let account = self.account.as_ref();
        account.is_some_and(|account| account.excess() > 0)
    }

    /// Makes a run of places accessible that was just taken.
    pub(super) fn open(&self, _room: &mut Room, first: u32, blocks: u32) -> io::Result<()> {
        let turned = self.opened.count(first, blocks, true);
        if turned.is_empty() {
            return Ok(());
        }
        let (offset, len) = self.span(turned.start, turned.end - turned.start);
        self.view.open(offset, len).inspect_err(|_| {
            self.opened.count(first, blocks, false);
        })
    }

    /// Gives a run of places back, in which nothing is.
    pub(super) fn vacate(&self, room: &mut Room, first: u32, blocks: u32) {
        let turned = self.opened.count(first, blocks, false);
        if !turned.is_empty() {
            let (offset, len) = self.span(turned.start, turned.end - turned.start);
            // SAFETY: all of it is free.
            unsafe { self.view.close(offset, len) };
        }
        room.runs.give(first, blocks);
    }

    /// Frees a place, and gives its memory to the kernel.
    pub(super) fn give(&self, room: &mut Room, first: u32, blocks: u32, bytes: u64) {
        self.vacate(room, first, blocks);
        room.used -= bytes;
        self.discharge(bytes);
    }

    /// Charges all of it to this process from here on, or nothing.
    pub(super) fn charge_whole(&self, charged: bool) {
        let Some(account) = &self.account else {
            return;
        };
        let held = lock(&self.room).held();
        if !charged {
            return account.discharge(held);
        }
        // Memory that is not admitted now is asked for again with the next value, and in excess until then.
        account.ensure_some(held);
        account.charge_anyway(held);
    }

    /// Returns [`crate::Arena::excess`].
    pub(crate) fn excess(&self) -> u64 {
        let Some(account) = self.account.as_ref().filter(|_| !self.is_closed()) else {
            return 0;
        };
        // Memory from before may have been refused, and be admitted now.
        account.ensure(0);
        account.settle();
        while account.excess() > 0 && self.cool() {}
        account.excess()
    }

    /// Does the work of [`crate::Arena::trim`].
    pub(crate) fn trim(&self) -> bool {
        let mut any = false;
        while !self.is_closed() && self.cool() {
            any = true;
        }
        any
    }

    /// Gives an empty run of blocks that is kept with its pages back; false if there is none.
    fn cool(&self) -> bool {
        let Some(warm) = lock(&self.room).warm.pop() else {
            return false;
        };
        // If the kernel refuses, the place stays as it is until it is taken again. SAFETY: it was empty when it was put
        // aside, and nobody has it.
        let _ = unsafe { self.renew(warm.first, warm.blocks) };
        self.vacate(&mut lock(&self.room), warm.first, warm.blocks);
        self.discharge(warm.bytes);
        true
    }
}
