//! Connections by their slots. A slot has a new generation for each connection, so that a late reply finds nothing. The
//! first generations and numbers are drawn at random: replies to a front that has died find nothing in the next one.

use super::client::Client;
use super::conn::Conn;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Table {
    conns: Vec<Option<Conn>>,
    generations: Vec<u16>,
    /// The slot that was free for the longest comes next: its late replies have come by then.
    free: VecDeque<u16>,
    random: RandomState,
    len: usize,
}

impl Table {
    /// Makes a table for so many connections and some more, which are told that there are too many.
    pub(super) fn new(most: usize) -> Table {
        let slots = u16::try_from(most + most / 4 + 16).unwrap_or(u16::MAX);
        let random = RandomState::new();
        Table {
            conns: (0..slots).map(|_| None).collect(),
            generations: (0..slots).map(|slot| low(random.hash_one(slot))).collect(),
            free: (0..slots).collect(),
            random,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a connection; `None`: there is no slot, and the client is let go.
    pub(super) fn put(&mut self, client: Client, now: Instant) -> Option<(u16, &mut Conn)> {
        let slot = self.free.pop_front()?;
        let generation = self.next_generation(slot);
        let next = low(self.random.hash_one((slot, generation)));
        self.len += 1;
        let conn = self.conns[usize::from(slot)].insert(Conn::new(client, generation, next, now));
        Some((slot, conn))
    }

    pub(super) fn get(&mut self, slot: u16) -> Option<&mut Conn> {
        self.conns.get_mut(usize::from(slot))?.as_mut()
    }

    pub(super) fn remove(&mut self, slot: u16) -> Option<Conn> {
        let gone = self.conns.get_mut(usize::from(slot))?.take()?;
        self.free.push_back(slot);
        self.len -= 1;
        Some(gone)
    }

    /// Gives the connection of a slot another generation for its messages.
    pub(super) fn renew(&mut self, slot: u16) {
        let generation = self.next_generation(slot);
        if let Some(conn) = self.get(slot) {
            conn.generation = generation;
        }
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.conns.iter_mut().flatten()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (u16, &Conn)> {
        let all = (0..u16::MAX).zip(&self.conns);
        all.filter_map(|(slot, conn)| Some((slot, conn.as_ref()?)))
    }

    fn next_generation(&mut self, slot: u16) -> u16 {
        let generation = &mut self.generations[usize::from(slot)];
        // Never 0: that is what a component that knows nothing has.
        *generation = generation.wrapping_add(1).max(1);
        *generation
    }
}

#[allow(clippy::cast_possible_truncation)] // the low half is meant
fn low(random: u64) -> u16 {
    random as u16
}
