//! The end of a zone, and its report about items that never came back.

use super::object::Object;
use super::zone::ItemZone;
use std::fmt;

/// The report of a zone that was destroyed while items were in use. They stay in the keg, which keeps their memory as
/// long as it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemsOut {
    /// The zone's name.
    pub zone: String,
    /// Items that were out.
    pub items: u64,
    /// Bytes of one.
    pub item_bytes: u64,
    /// The place of each item and the code that allocated it, if the zone is debugged.
    pub holders: Vec<String>,
}

impl fmt::Display for ItemsOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            zone,
            items,
            item_bytes,
            ..
        } = self;
        write!(
            f,
            "zone {zone} was destroyed with items out: {items} of {item_bytes} bytes; free all of them first"
        )?;
        self.holders
            .iter()
            .try_for_each(|holder| write!(f, "\n{holder}"))
    }
}

impl std::error::Error for ItemsOut {}

impl<O: Object> ItemZone<O> {
    /// Drops the zone, and reports items that had not come back. Items that other threads free at the same time may
    /// still be counted.
    ///
    /// A zone that is dropped without this, while items are in use, reports them as a warning (of `tracing`).
    ///
    /// # Errors
    /// The items still in use.
    #[doc(alias = "uma_zdestroy")]
    pub fn destroy(mut self) -> Result<(), ItemsOut> {
        self.told = true;
        self.close();
        self.items_out().map_or(Ok(()), Err)
    }

    fn items_out(&self) -> Option<ItemsOut> {
        let items = self.stats().zone.outstanding();
        let holders = || {
            let holders = self.holders().into_iter();
            holders.map(|(item, who)| format!("{item:p}: {who}"))
        };
        (items > 0).then(|| ItemsOut {
            zone: self.name().to_owned(),
            items,
            item_bytes: self.keg().item_bytes(),
            holders: holders().collect(),
        })
    }
}

impl<O: Object> Drop for ItemZone<O> {
    fn drop(&mut self) {
        self.close();
        // A report of a heap's blocks would allocate from the heap.
        if !self.told
            && !self.is_allocator()
            && let Some(out) = self.items_out()
        {
            tracing::warn!("{out}");
        }
    }
}
