//! Invariants that hold after every step.

use crate::types::{Access, BufferId, Domain, EndState, Hold, Message, Piece};
use crate::{Model, Way};

impl Model {
    /// Checks all invariants; returns the first that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        for id in self.buffers.keys() {
            self.one_owner(*id)?;
            self.exclusive_writer(*id)?;
            self.has_its_pool(*id)?;
        }
        for (id, pool) in &self.pools {
            let used = self.in_use(*id);
            if used > usize::from(pool.slots) {
                return Err(format!("{used} buffers of pool {id}, of {}", pool.slots));
            }
        }
        self.ends()
    }

    fn domains(&self) -> impl Iterator<Item = Domain> {
        (0..)
            .zip(&self.alive)
            .filter(|(_, alive)| **alive)
            .map(|(domain, _)| domain)
    }

    /// Returns how many messages bring the buffer, of the given kind.
    fn messages(&self, which: impl Fn(&Message) -> bool) -> usize {
        let all = self
            .channels
            .values()
            .flat_map(|c| c.queue.iter().chain(&c.back));
        all.filter(|message| which(message)).count()
    }

    /// An exclusive owner is the only one. A moved buffer is nobody's until it is taken, and is on its way once.
    fn one_owner(&self, id: BufferId) -> Result<(), String> {
        let holds = &self.buffers[&id].holds;
        let owners = holds
            .values()
            .filter(|hold| matches!(hold, Hold::Sole))
            .count();
        let names = |m: &Message| m.pieces.contains(&Piece::Buffer(id));
        let moved = self.messages(|m| m.carries.moves() && names(m));
        let all = self.messages(names);
        if owners + moved > 1 || (owners + moved == 1 && holds.len() + all > 1) {
            return Err(format!(
                "{id:?}: {owners} owners, {moved} times moved, {all} messages, {} holders",
                holds.len()
            ));
        }
        if holds.is_empty() && all == 0 {
            return Err(format!("{id:?} is nobody's and counts as used"));
        }
        Ok(())
    }

    /// Checks that no other domain may read where one domain may write.
    fn exclusive_writer(&self, id: BufferId) -> Result<(), String> {
        let all: Vec<Access> = self.domains().map(|d| self.access(id, d)).collect();
        let writers = all.iter().filter(|a| **a == Access::ReadWrite).count();
        let users = all.iter().filter(|a| **a != Access::None).count();
        match writers > 1 || (writers == 1 && users > 1) {
            true => Err(format!("{id:?}: {writers} writers, {users} users")),
            false => Ok(()),
        }
    }

    /// Checks that each holder of a buffer can touch it as the rules say, and is alive.
    fn has_its_pool(&self, id: BufferId) -> Result<(), String> {
        for domain in self.buffers[&id].holds.keys() {
            let can = self.permitted(id, *domain);
            if !self.is_alive(*domain) || can.is_none_or(|can| can < self.access(id, *domain)) {
                return Err(format!("{domain} has {id:?}, and can do {can:?} with it"));
            }
        }
        Ok(())
    }

    /// Checks that no message is on its way to an end that is gone, and no more than there is room for.
    fn ends(&self) -> Result<(), String> {
        for (id, c) in &self.channels {
            let lost = (c.ends[0] != EndState::Open && !c.back.is_empty())
                || (c.ends[1] != EndState::Open && !c.queue.is_empty());
            if lost {
                return Err(format!(
                    "channel {id}: something goes to an end that is gone"
                ));
            }
            let most = usize::from(c.lines);
            let long = c.back.len() > most || c.queue.len() > most;
            if self.way != Way::Carried && long {
                return Err(format!("channel {id}: more than {most} messages"));
            }
        }
        Ok(())
    }
}
