//! What a domain still has when it ends: buffers of others that were not dropped, and own ones that were not freed.

use super::notes::{HeldBuffer, LeakReport, OwnBuffer};
use super::state::DomainCore;
use crate::base::lock;
use std::sync::atomic::Ordering;
use tranship_proto::CbufId;

impl DomainCore {
    /// What it still has.
    pub(crate) fn leak_report(&self) -> LeakReport {
        if self.fork.is_child() {
            return LeakReport::default();
        }
        let foreign: Vec<_> = lock(&self.foreign).values().cloned().collect();
        let own: Vec<_> = lock(&self.pools).values().cloned().collect();
        let notes = self.leaks.as_ref().map(|notes| notes.all());
        let got = |pool, slot| {
            let note = notes.as_ref()?.get(&(pool, slot))?;
            Some(note.got())
        };
        let held = foreign.iter().flat_map(|pool| {
            let shape = pool.shape;
            let buffer = move |(slot, handles, generation, bytes)| HeldBuffer {
                pool: shape.pool,
                writer: shape.writer,
                id: CbufId::new(shape.pool, slot, generation),
                bytes,
                handles,
                got: got(shape.pool, slot),
            };
            pool.held().map(buffer).collect::<Vec<_>>()
        });
        let held = held.collect();
        let mut left = Vec::new();
        for ((pool, slot), note) in notes.as_deref().into_iter().flatten() {
            let Some(of) = own.iter().find(|own| own.id() == *pool) else {
                continue;
            };
            if note.frozen && of.handles(*slot).count() == 0 {
                continue;
            }
            left.push(OwnBuffer {
                pool: *pool,
                pool_name: of.name().to_owned(),
                id: of.id_of(*slot),
                bytes: of.capacity_of(*slot),
                got: note.got(),
            });
        }
        left.sort_by_key(|o| std::cmp::Reverse(o.got.age));
        LeakReport {
            domain: self.name.clone(),
            held,
            own: left,
        }
    }

    /// Somebody has asked for the report: nothing is printed.
    pub(crate) fn hush_leaks(&self) {
        if let Some(notes) = &self.leaks {
            notes.said.store(true, Ordering::Relaxed);
        }
    }

    /// The last public handle goes.
    pub(crate) fn say_leaks(&self) {
        let Some(notes) = &self.leaks else { return };
        if notes.said.swap(true, Ordering::Relaxed) {
            return;
        }
        let report = self.leak_report();
        if !report.is_empty() {
            #[allow(clippy::print_stderr)] // it was asked for
            {
                eprintln!("{report}");
            }
        }
    }
}
