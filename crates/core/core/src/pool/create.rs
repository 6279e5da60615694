//! Making a pool: its table, its place with the manager, its window and zones.

use super::chunks::Chunks;
use super::class::Class;
use super::gc::Collector;
use super::guard;
use super::memory::{Memory, Returned};
use super::own::OwnPool;
use super::registration::Registration;
use super::resizing::Resizing;
use super::sizes::Sizes;
use super::slot_table::SlotTable;
use super::store::Store;
use super::tag::Tag;
use super::waiters::Waiters;
use crate::domain::DomainCore;
use crate::error::{self, Error, ErrorKind};
use crate::options::PoolOptions;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use tranship_proto::{Event, PoolShape, Request, Trust, check_range};
use tranship_region::layout::TableRw;
use tranship_zone::{Classes, PAGE, Zone, ZoneConfig};

/// Checks that such a pool is possible.
pub(crate) fn check(options: &PoolOptions) -> Result<(), Error> {
    checked(options).map(drop)
}

/// Returns the shape of such a pool, if it is possible.
fn checked(options: &PoolOptions) -> Result<PoolShape, Error> {
    let shape = options.shape();
    shape.check()?;
    let align = options.align_bytes;
    let what = "the alignment of buffers in bytes (a power of two)";
    check_range(what, align, align.is_power_of_two(), 1..=shape.chunk_bytes)?;
    let what = "what the pool is to begin with, in bytes";
    check_range(what, options.preallocated_bytes, true, 0..=shape.max_bytes)?;
    crate::base::checked_name(&options.name)?;
    Ok(shape)
}

impl OwnPool {
    pub(crate) fn create(domain: &DomainCore, options: PoolOptions) -> Result<Arc<OwnPool>, Error> {
        let shape = checked(&options)?;
        let (chunk, chunks, slots) = (shape.chunk_bytes, shape.windows(), shape.slots);
        let max_bytes = shape.max_bytes;
        let half = options.trust == Trust::Half;
        // Before anything is made.
        let mappings = half.then(|| guard::mappings(slots, chunks.into()));
        let mappings = mappings.transpose()?;
        let window = crate::pool::reserve_own(max_bytes, chunk, &options)?;
        let (table_fd, table) = TableRw::create(slots, max_bytes, chunk)?;
        let shown = table_fd.try_clone().map_err(error::system("fcntl"))?;
        let ((event, _), era) = domain.call_in_era(
            |req| Request::CreatePool {
                req,
                name: options.name.clone(),
                shape,
            },
            &[shown.as_fd()],
        )?;
        let Event::PoolCreated {
            pool: id, entry, ..
        } = event
        else {
            return Err(error::protocol("an answer to CreatePool that is none"));
        };
        let seals_from = options.seals_from();
        let classes = Classes::up_to(chunk, seals_from - 1);
        let least_bytes = options.align_bytes.max(if half { PAGE } else { 1 });
        let flags = {
            let slices = !options.trust.all_write();
            let flag = |yes, flag| if yes { flag } else { 0 };
            let long = half || domain.leaks.is_some();
            flag(slices, Tag::TRUSTED | Tag::SLICE_MUT) | flag(long, Tag::LONG)
        };
        let pool = Arc::new_cyclic(|me: &Weak<OwnPool>| {
            let zones: Box<[_]> = (0..classes.count())
                .map(|class| {
                    let bytes = classes.bytes_of(class);
                    let config = ZoneConfig::for_item(bytes)
                        .capped((max_bytes / bytes).min(slots.into()))
                        .with_barrier(tranship_sys::membarrier::private_expedited)
                        .shut_in_child();
                    let pool = me.clone();
                    Zone::new(config, Class { pool, class })
                })
                .collect();
            let store = Store::new(&classes, slots, chunks, chunk);
            let collector = Collector::new(slots, classes.count());
            let place = |class: usize| zones[class].place();
            OwnPool {
                memory: Memory {
                    registration: Registration::new(domain, id, entry, options, max_bytes),
                    flags: AtomicU32::new(flags),
                    sizes: Sizes::new(classes, least_bytes, seals_from, place),
                    zones,
                    slots: SlotTable::new(table, table_fd),
                    chunks: Chunks::new(window),
                    store: Mutex::new(store),
                    resizing: Mutex::new(Resizing::new()),
                    sealing: Mutex::default(),
                    returned: Returned::default(),
                    _mappings: mappings,
                },
                collector,
                waiters: Waiters::default(),
                shrink_target: AtomicU64::new(u64::MAX),
                offered: Mutex::default(),
                handles: AtomicU32::new(1), // the caller's: another thread's turn takes down what has none
                me: me.clone(),
            }
        });
        domain.register.add_own(id, pool.clone());
        if domain.era() != era {
            // The manager that made it is gone, and the next one was perhaps not told of it.
            drop(domain.register.remove_own(id));
            let _ = domain.tell(&Request::DestroyPool { pool: id }, &[]);
            return Err(ErrorKind::ManagerAway.into());
        }
        Ok(pool)
    }
}
