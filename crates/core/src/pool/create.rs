//! Making a pool: its table, its place with the manager, its window and zones.

use super::gc::Gc;
use super::guard;
use super::larges::Larges;
use super::own::{Class, Counters, OwnPool};
use super::resizing::Resizing;
use super::short::Short;
use super::slots::Slot;
use super::store::Store;
use super::tag::Tag;
use super::waiters::Waiters;
use crate::base::lock;
use crate::domain::DomainCore;
use crate::error::{self, Error, Kind, OutOfRange};
use crate::options::PoolOptions;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use tranship_proto::{Event, Request, Trust};
use tranship_region::layout::TableRw;
use tranship_sync::SlotQueue;
use tranship_zone::{Classes, Keg, PAGE, RunAllocator, SlabShape, SlotNumbers, Zone, ZoneConfig};

/// The largest pool: fewer than 2^32 pages, also when it is rounded up to whole chunks.
const MAX_BYTES: u64 = (1 << 44) - (64 << 20);

impl OwnPool {
    pub(crate) fn create(domain: &DomainCore, options: PoolOptions) -> Result<Arc<OwnPool>, Error> {
        let chunk = options.chunk();
        let bad = |what, value, min, max| {
            Error::from(OutOfRange {
                what,
                value,
                min,
                max,
            })
        };
        if !chunk.is_power_of_two() || !((64 << 10)..=(64 << 20)).contains(&chunk) {
            return Err(bad(
                "the chunk size in bytes (a power of two)",
                chunk,
                64 << 10,
                64 << 20,
            ));
        }
        if options.max_bytes == 0 || options.max_bytes > MAX_BYTES {
            return Err(bad(
                "the pool's maximum in bytes",
                options.max_bytes,
                1,
                MAX_BYTES,
            ));
        }
        let align = options.align_bytes;
        if !align.is_power_of_two() || align > chunk {
            return Err(bad(
                "the alignment of buffers in bytes (a power of two)",
                align,
                1,
                chunk,
            ));
        }
        let half = options.trust == Trust::Half;
        let max_bytes = options.max_bytes.next_multiple_of(chunk);
        if options.preallocated_bytes > max_bytes {
            return Err(bad(
                "what the pool is to begin with, in bytes",
                options.preallocated_bytes,
                0,
                max_bytes,
            ));
        }
        let slots = options.slot_count();
        let slot_limit = u64::from(tranship_proto::SLOT_LIMIT);
        let slots = u32::try_from(slots)
            .ok()
            .filter(|s| (1..=tranship_proto::SLOT_LIMIT).contains(s))
            .ok_or(bad("slots", slots, 1, slot_limit))?;
        let chunks = max_bytes / chunk;
        let chunks = u32::try_from(chunks)
            .map_err(|_: std::num::TryFromIntError| bad("chunks", chunks, 1, u32::MAX.into()))?;
        crate::base::checked_name(&options.name)?;

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
        let least_bytes = align.max(if half { PAGE } else { 1 });
        let (sent, taker) = SlotQueue::new(slots);
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
            OwnPool {
                domain: domain.clone(),
                fork: domain.fork,
                id,
                base: crate::pool::base(&window),
                flags: {
                    let slices = !options.trust.all_write() || options.trusted;
                    let flag = |yes, flag| if yes { flag } else { 0 };
                    let long = half || domain.leaks.is_some();
                    AtomicU32::new(
                        flag(slices, Tag::TRUSTED | Tag::SLICE_MUT) | flag(long, Tag::LONG),
                    )
                },
                least_bytes,
                seals_from,
                sealing: Mutex::default(),
                _mappings: mappings,
                contended: AtomicBool::new(false),
                short: Short::new(&classes, least_bytes, |class| zones[class].place()),
                zones,
                slots: (0..slots).map(|_| Slot::default()).collect(),
                table,
                sent,
                gc: Mutex::new(Gc::new(taker, classes.count())),
                store: Mutex::new(Store {
                    runs: RunAllocator::new(chunks, chunk),
                    kegs: (0..classes.count())
                        .map(|class| Keg::new(SlabShape::new(classes.bytes_of(class), chunk)))
                        .collect(),
                    numbers: SlotNumbers::new(slots),
                    huge: HashMap::new(),
                    huge_allocs: 0,
                    large: Larges::default(),
                }),
                classes,
                waiters: Waiters::default(),
                resizing: Mutex::new(Resizing::new()),
                chunk_fds: Mutex::default(),
                window,
                chunk_shift: chunk.trailing_zeros(),
                serials: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
                table_fd,
                control_page_entry: AtomicU32::new(entry),
                handles: AtomicU32::new(1), // the caller's: another thread's turn takes down what has none
                shrink_target: AtomicU64::new(u64::MAX),
                options,
                max_bytes,
                counters: Counters::default(),
                me: me.clone(),
            }
        });
        // A pool's control page entry starts there.
        lock(&pool.gc).resume();
        domain.register.add_own(id, pool.clone());
        if domain.era() != era {
            // The manager that made it is gone, and the next one was perhaps not told of it.
            drop(domain.register.remove_own(id));
            let _ = domain.tell(&Request::DestroyPool { pool: id }, &[]);
            return Err(Kind::ManagerAway.into());
        }
        Ok(pool)
    }
}
