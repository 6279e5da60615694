//! The contents of the statistics page: item after item, and where the shell finds facts that only owners know. Nothing
//! changes by it.

use crate::state::State;
use crate::state::model::Item;
use crate::state::types::FdToken;
use tranship_proto::StatRecord;

/// An item, as far as the state knows it.
#[derive(Debug)]
pub(crate) struct Surveyed {
    pub record: StatRecord,
    pub look: Look,
}

/// The place of the item's other facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// There is nothing to read.
    Nowhere,
    /// A writer's figures about its pool.
    Figures { table: FdToken },
    /// A channel's cursors.
    Rings {
        source: Option<FdToken>,
        sink: Option<FdToken>,
    },
    /// A reader's counters.
    Held {
        table: FdToken,
        refs: FdToken,
        slots: u32,
    },
}

impl State {
    /// Returns the item after one, and its record if it still exists.
    pub(crate) fn survey(&self, last: Option<Item>) -> Option<(Item, Option<Surveyed>)> {
        let item = match last {
            None => Item::Manager,
            Some(last) => self.next_item(last)?,
        };
        Some((item, self.surveyed(item)))
    }

    fn surveyed(&self, item: Item) -> Option<Surveyed> {
        let (record, look) = match item {
            Item::Manager => (StatRecord::Manager(self.manager_stat()), Look::Nowhere),
            Item::Domain(id) => (self.domain_record(id)?, Look::Nowhere),
            Item::Heap(id) => (self.heap_record(id)?, Look::Nowhere),
            Item::Pool(id) => {
                let table = self.pools.get(&id)?.table;
                (self.pool_record(id)?, Look::Figures { table })
            }
            Item::Channel(id) => {
                let c = self.channels.get(&id)?;
                let (source, sink) = (c.source_half, c.sink_half);
                (self.channel_record(id)?, Look::Rings { source, sink })
            }
            Item::Registered(key) => {
                let (record, sink) = self.registered.record(key, &self.cx.descriptors)?;
                let source = Some(self.registered.get(key)?.source_half);
                let sink = Some(sink);
                (StatRecord::Channel(record), Look::Rings { source, sink })
            }
            Item::Export(id) => (self.export_record(id)?, Look::Nowhere),
            Item::Waiting(domain, req) => (self.waiting_record(domain, req)?, Look::Nowhere),
            Item::Hold(pool, domain) => {
                let p = self.pools.get(&pool)?;
                let refs = p.readers.get(&domain)?.refs?;
                let (table, slots) = (p.table, p.shape.slots);
                let record = StatRecord::Hold(self.hold_stat(pool, domain)?);
                (record, Look::Held { table, refs, slots })
            }
        };
        Some(Surveyed { record, look })
    }
}
