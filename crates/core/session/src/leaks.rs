//! Buffers that a domain still has when it ends: other domains' buffers that were not dropped, and its own that were
//! not freed.

use super::notes::{HeldBuffer, LeakReport, OwnBuffer};
use super::state::DomainCore;
use std::sync::atomic::Ordering;

impl DomainCore {
    /// Returns the report of the domain's remaining buffers.
    pub fn leak_report(&self) -> LeakReport {
        if self.fork.is_child() {
            return LeakReport::default();
        }
        let notes = self.leaks.as_ref().map(|notes| notes.all());
        let got = |pool, slot| {
            let note = notes.as_ref()?.get(&(pool, slot))?;
            Some(note.got())
        };
        let mut held = Vec::new();
        for pool in self.register.all_foreign() {
            let shape = pool.shape();
            held.extend(pool.held().into_iter().map(|slot| HeldBuffer {
                pool: shape.pool,
                writer: shape.writer,
                id: slot.id,
                bytes: slot.bytes,
                handles: slot.handles,
                got: got(shape.pool, slot.id.slot()),
            }));
        }
        let own = self.register.all_own();
        let mut left = Vec::new();
        for ((pool, slot), note) in notes.as_deref().into_iter().flatten() {
            let Some(of) = own.iter().find(|own| own.id() == *pool) else {
                continue;
            };
            let slot = of.had(*slot);
            if note.frozen && slot.handles == 0 {
                continue;
            }
            left.push(OwnBuffer {
                pool: *pool,
                pool_name: of.name().to_owned(),
                id: slot.id,
                bytes: slot.bytes,
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

    /// Suppresses the printed report, because the program has asked for it.
    pub fn hush_leaks(&self) {
        if let Some(notes) = &self.leaks {
            notes.said.store(true, Ordering::Relaxed);
        }
    }

    /// Reports leaks when the last public handle goes.
    pub fn say_leaks(&self) {
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
