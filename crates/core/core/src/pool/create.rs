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
use crate::error::{self, Error, ErrorKind, OutOfRange};
use crate::options::PoolOptions;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use tranship_proto::{Event, Request, Trust};
use tranship_region::layout::TableRw;
use tranship_zone::{Classes, PAGE, Zone, ZoneConfig};

/// The largest pool: fewer than 2^32 pages, also when it is rounded up to whole chunks.
const MAX_BYTES: u64 = (1 << 44) - (64 << 20);

/// Whether such a pool can be.
pub(crate) fn check(options: &PoolOptions) -> Result<(), Error> {
    checked(options).map(drop)
}

/// How many chunks and slots it is, if it can be.
fn checked(options: &PoolOptions) -> Result<(u32, u32), Error> {
    let check = |what, value: u64, is_good: bool, range: RangeInclusive<u64>| {
        let (min, max) = (*range.start(), *range.end());
        let error = OutOfRange {
            what,
            value,
            min,
            max,
        };
        let is_good = is_good && range.contains(&value);
        is_good.then_some(value).ok_or(error)
    };
    let (chunk, align) = (options.chunk(), options.align_bytes);
    let (is_power, sizes) = (chunk.is_power_of_two(), (64 << 10)..=(64 << 20));
    check(
        "the chunk size in bytes (a power of two)",
        chunk,
        is_power,
        sizes,
    )?;
    let max_bytes = options.max_bytes;
    check(
        "the pool's maximum in bytes",
        max_bytes,
        true,
        1..=MAX_BYTES,
    )?;
    let what = "the alignment of buffers in bytes (a power of two)";
    check(what, align, align.is_power_of_two(), 1..=chunk)?;
    let max_bytes = max_bytes.next_multiple_of(chunk);
    let what = "what the pool is to begin with, in bytes";
    check(what, options.preallocated_bytes, true, 0..=max_bytes)?;
    let most = tranship_proto::SLOT_LIMIT.into();
    let slots = check("slots", options.slot_count(), true, 1..=most)?;
    let chunks = check("chunks", max_bytes / chunk, true, 1..=u32::MAX.into())?;
    crate::base::checked_name(&options.name)?;
    #[allow(clippy::cast_possible_truncation)] // as just checked
    Ok((chunks as u32, slots as u32))
}

impl OwnPool {
    pub(crate) fn create(domain: &DomainCore, options: PoolOptions) -> Result<Arc<OwnPool>, Error> {
        let (chunk, (chunks, slots)) = (options.chunk(), checked(&options)?);
        let max_bytes = u64::from(chunks) * chunk;
        let half = options.trust == Trust::Half;
        // Before anything is made.
        let mappings = half.then(|| guard::mappings(slots, chunks.into()));
        let mappings = mappings.transpose()?;
        let window = crate::pool::reserve_own(max_bytes, chunk, &options)?;
        let (table_fd, table) = TableRw::create(slots, max_bytes, chunk)?;
        let shown = table_fd.try_clone().map_err(Error::system("fcntl"))?;
        let ((event, _), era) = domain.call_in_era(
            |req| Request::CreatePool {
                req,
                name: options.name.clone(),
                max_bytes,
                slots,
                chunk_bytes: chunk,
                trust: options.trust,
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
