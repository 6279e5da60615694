//! Copies of values in the pool that readers map: one of each value that was asked for, made once, for all readers.

use super::counts::Counts;
use super::wire::{Refused, TAIL, tail};
use crate::store::Item;
use std::collections::{HashMap, VecDeque};
use tranship_core::error::{Limit, Shortage};
use tranship_core::{Buffer, Error, Pool};
use tranship_zcopy::Mark;

fn is_late(error: &Error) -> bool {
    let shortage = error.find::<Shortage>();
    shortage.is_some_and(|short| matches!(short.limit, Limit::Late))
}

#[derive(Debug)]
pub(super) struct Copies {
    pool: Pool,
    by_key: HashMap<Box<[u8]>, Copy>,
    /// Keys in the order in which their copies go when there is no room; with second chances.
    order: VecDeque<Box<[u8]>>,
}

#[derive(Debug)]
struct Copy {
    of: Mark,
    cas: u64,
    buf: Buffer,
    /// The copy was asked for since the last check.
    used: bool,
}

impl Copies {
    pub(super) fn new(pool: Pool) -> Copies {
        Copies {
            pool,
            by_key: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the copy of the value that is stored under a key. `make_room` is called before other copies go.
    /// [`Refused::Late`]: the call may be repeated.
    pub(super) fn show(
        &mut self,
        key: &[u8],
        item: &Item,
        counts: &Counts,
        make_room: impl FnOnce(),
    ) -> Result<Buffer, Refused> {
        if let Some(copy) = self.by_key.get_mut(key)
            && copy.of.is_of(&item.value)
            && copy.cas == item.cas
        {
            copy.used = true;
            return Ok(copy.buf.clone());
        }
        let value = &item.value[..];
        let mut make_room = Some(make_room);
        let mut buf = loop {
            match self.pool.try_alloc(value.len() + TAIL) {
                Ok(buf) => break buf,
                // The manager has not answered yet: that is no reason to let copies go.
                Err(error) if is_late(&error) => {
                    let bytes = value.len() as u64;
                    return Err(Refused::Late { bytes });
                }
                Err(error) => {
                    let first = make_room.take().map(|make_room| make_room());
                    if first.is_none() && !self.drop_some(value.len() + TAIL) {
                        tracing::debug!(%error, "no room to show a value");
                        let (bytes, most) = (value.len() as u64, self.pool.max_bytes());
                        return Err(Refused::NoRoom { bytes, most });
                    }
                }
            }
        };
        buf[..value.len()].copy_from_slice(value);
        buf[value.len()..].copy_from_slice(&tail(item.flags, item.cas));
        Counts::bump(&counts.copied_bytes, value.len() as u64);
        let copy = Copy {
            of: item.value.mark(),
            cas: item.cas,
            buf: buf.freeze(),
            used: false,
        };
        let buf = copy.buf.clone();
        // A copy that is over still has its place in the order.
        if self.by_key.insert(key.into(), copy).is_none() {
            self.order.push_back(key.into());
        }
        Ok(buf)
    }

    /// Drops copies of at least `bytes` bytes, as far as there are any. It drops more than one at a time, because
    /// another look for room costs more than a copy.
    fn drop_some(&mut self, bytes: usize) -> bool {
        let mut dropped = None;
        while dropped.is_none_or(|sum| sum < bytes)
            && let Some(more) = self.drop_one()
        {
            dropped = Some(dropped.unwrap_or(0) + more);
        }
        dropped.is_some()
    }

    /// Releases a copy, about the one that was asked for longest ago. Returns its bytes.
    fn drop_one(&mut self) -> Option<usize> {
        while let Some(key) = self.order.pop_front() {
            match self.by_key.get_mut(&key) {
                Some(copy) if copy.used => {
                    copy.used = false;
                    self.order.push_back(key);
                }
                Some(_) => return self.by_key.remove(&key).map(|copy| copy.buf.len()),
                None => {}
            }
        }
        None
    }

    /// Releases copies of values that are stored no more.
    pub(super) fn tidy(&mut self, counts: &Counts) {
        self.by_key.retain(|_, copy| !copy.of.is_over());
        self.order.retain(|key| self.by_key.contains_key(key));
        Counts::set(&counts.copies, self.by_key.len() as u64);
    }
}
