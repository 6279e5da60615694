//! The buffers that a reader holds, as its desk says it.

use super::Named;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::link::{Receiver, Taken};
use std::convert::Infallible;
use tranship_proto::PoolId;
use tranship_ring::broadcast::{Hold, KEPT, Reader, ReaderMemory};
use tranship_sys::crash;

/// The buffers of one pool that a reader holds. The table is this domain's references, in which handles count themselves.
#[derive(Debug)]
pub struct Holds {
    pool: PoolId,
    keep: u32,
    /// The slots in the entries of `kept`, and a bit for each entry that is in use.
    kept: [u32; KEPT as usize],
    used: u16,
    /// The slots that are held by the table.
    table: Vec<u32>,
}

impl Holds {
    /// Begins with no buffer. The reader may hold `keep` buffers beside those that its desk has entries for.
    pub fn new(pool: PoolId, keep: u32) -> Holds {
        Holds {
            pool,
            keep,
            kept: [0; KEPT as usize],
            used: 0,
            table: Vec::new(),
        }
    }

    /// Returns the pool.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// Returns how many buffers are held, as of the last [`tidy`](Holds::tidy).
    pub fn count(&self) -> usize {
        self.used.count_ones() as usize + self.table.len()
    }

    /// Returns how many buffers may be held.
    pub fn most(&self) -> usize {
        self.keep as usize + self.kept.len()
    }

    /// Gives back entries of the desk whose buffers were dropped, and says whether there were some. Only this reader
    /// raises their references from 0 by this desk, so an entry whose slot has none stays without.
    #[inline(always)]
    pub fn tidy(
        &mut self,
        receiver: &mut Receiver,
        reader: &mut Reader,
        memory: &impl ReaderMemory<Stop = Infallible>,
    ) -> bool {
        (self.used != 0 || !self.table.is_empty()) && self.tidy_all(receiver, reader, memory)
    }

    fn tidy_all(
        &mut self,
        receiver: &mut Receiver,
        reader: &mut Reader,
        memory: &impl ReaderMemory<Stop = Infallible>,
    ) -> bool {
        let mut any = false;
        for (entry, slot) in (0u8..).zip(self.kept) {
            if self.used & 1 << entry != 0 && !receiver.topic_holds(self.pool, slot) {
                let Ok(()) = memory.set_kept(entry, 0);
                self.used &= !(1 << entry);
                any = true;
            }
        }
        if !self.table.is_empty() {
            let (pool, before) = (self.pool, self.table.len());
            self.table.retain(|slot| receiver.topic_holds(pool, *slot));
            any |= self.table.len() < before;
            if self.table.is_empty() {
                let Ok(()) = reader.empty_table(memory, 0);
            }
        }
        any
    }

    /// Takes the buffer that a line names: counts its handle, then says in the desk that it is held. There is room for it.
    ///
    /// # Errors
    /// As [`Receiver::topic_take`].
    // Crash: the window covers the buffer until the message is finished; a death takes the desk and the references off.
    #[inline(always)]
    pub fn hold(
        &mut self,
        receiver: &mut Receiver,
        reader: &mut Reader,
        memory: &impl ReaderMemory<Stop = Infallible>,
        named: Named,
    ) -> Result<Taken<Buffer>, Error> {
        let buffer = match receiver.topic_take(named)? {
            Taken::Here(buffer) => buffer,
            missing => return Ok(missing),
        };
        crash::point("readers.held");
        let in_table = u32::try_from(self.table.len()).unwrap_or(u32::MAX);
        let Ok(held) = reader.hold(memory, named.id.slot(), in_table);
        match held {
            Ok(Hold::Entry(entry)) => {
                self.kept[usize::from(entry)] = named.id.slot();
                self.used |= 1 << entry;
            }
            Ok(Hold::Table(slot)) => self.table.push(slot),
            Err(_) => return Ok(Taken::Lost),
        }
        Ok(Taken::Here(buffer))
    }
}
