use super::*;
use crate::Domain;
use tranship_proto::DomainId;
use tranship_region::Opts;
use tranship_region::layout::TableRw;

const CHUNK: u64 = 64 << 10;

/// A reader's side of a pool of 16 slots, and the writer's table.
fn opened(domain: &Domain) -> (ForeignPool, TableRw) {
    opened_of(domain, Trust::Producer)
}

fn opened_of(domain: &Domain, trust: Trust) -> (ForeignPool, TableRw) {
    let shape = Offer {
        pool: PoolId(7),
        writer: DomainId(1),
        max_bytes: 4 * CHUNK,
        slots: 16,
        chunk_bytes: CHUNK,
        trust,
    };
    let (table, ours) = TableRw::create(16, 4 * CHUNK, CHUNK).expect("a table");
    let process = tranship_sys::pidfd::open(std::process::id()).expect("this process");
    let pool = ForeignPool::open(domain.core(), shape, table, process).expect("a pool");
    (pool, ours)
}

/// The writer's waits are bounded: a caller that is not woken is only late. Here one is not woken.
#[test]
fn the_last_release_wakes_a_writer_that_wants_it() {
    let _dog = tranship_testkit::Watchdog::new();
    let domain = Domain::embedded().expect("a domain");
    let (pool, table) = opened(&domain);
    let word = pool.refs.wake();
    let wake = || word.load(Ordering::Acquire);
    pool.retain(3);
    pool.release(3);
    assert_eq!(wake(), 0, "nobody wants to hear of it");
    tranship_ledger::want_releases(table.relinquish(), true);
    pool.retain(3);
    pool.retain(3);
    pool.release(3);
    assert_eq!(wake(), 0, "one is left");
    std::thread::scope(|s| {
        let (tell, told) = std::sync::mpsc::channel();
        let writer = s.spawn(move || {
            tell.send(rustix::thread::gettid()).expect("a listener");
            while wake() == 0 {
                futex::wait(word, 0, None).expect("a futex");
            }
        });
        asleep(told.recv().expect("a thread"));
        pool.release(3);
        writer.join().expect("no panic");
    });
    assert_eq!(wake(), 1);
    tranship_ledger::want_releases(table.relinquish(), false);
    pool.retain(3);
    pool.release(3);
    assert_eq!(wake(), 1);
}

/// One thread receives and counts alone, another one lets clones go; later a third one receives, too.
#[test]
fn references_are_counted_whoever_receives_and_lets_go() {
    const ROUNDS: u32 = 20_000;
    let _dog = tranship_testkit::Watchdog::new();
    let domain = Domain::embedded().expect("a domain");
    let (pool, _table) = opened(&domain);
    let (pool, half) = (&pool, &std::sync::Barrier::new(2));
    std::thread::scope(|s| {
        let (give, given) = std::sync::mpsc::channel();
        s.spawn(move || {
            for round in 0..ROUNDS {
                pool.receive(round % 2);
                if round % 3 == 0 {
                    pool.retain(round % 2);
                    give.send(round % 2).expect("a thread that lets go");
                }
                pool.release(round % 2);
                if round == ROUNDS / 2 {
                    half.wait();
                }
            }
        });
        s.spawn(move || given.into_iter().for_each(|slot| pool.release(slot)));
        s.spawn(move || {
            half.wait();
            for round in 0..ROUNDS {
                pool.receive(round % 2);
                pool.release(round % 2);
            }
        });
    });
    assert!(pool.nothing_held(), "{:?}", pool.held().collect::<Vec<_>>());
    // Where nobody is the one any more a thread that received alone counts all the same.
    pool.receive(1);
    pool.receive(1);
    assert_eq!(pool.word(1).load(Ordering::Relaxed), 2);
}

#[test]
fn a_slot_is_below_the_number_of_slots() {
    let domain = Domain::embedded().expect("a domain");
    let (pool, _table) = opened(&domain);
    let check = |slot| pool.check_slot(BufferId::new(PoolId(7), slot, 2));
    assert_eq!(check(15), Ok(15));
    assert_eq!(
        check(16),
        Err(Violation::Slot {
            slot: 16,
            slots: 16
        })
    );
}

/// Until the thread sleeps in the kernel.
fn asleep(thread: rustix::thread::Pid) {
    let file = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    loop {
        let stat = std::fs::read_to_string(&file).expect("a thread that lives");
        if stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
        {
            return;
        }
        std::thread::yield_now();
    }
}

/// A manager that was restarted may show it a chunk before it has been told what was at its place.
#[test]
fn a_younger_chunk_takes_the_place_of_an_older_one() {
    let domain = Domain::embedded().expect("a domain");
    let (pool, _table) = opened(&domain);
    let writer = crate::pool::reserve(4 * CHUNK, CHUNK).expect("a window");
    let chunks = [0, 1].map(|at| {
        let fd = writer
            .make_chunk(at, "chunk", Opts::default())
            .expect("a chunk");
        let first = writer
            .base()
            .wrapping_add(at as usize * writer.chunk_bytes());
        // SAFETY: of a chunk that was just made there for writing.
        unsafe { first.write_volatile(if at == 0 { 5 } else { 6 }) };
        fd
    });
    let show = |which: usize, serial| {
        let fd = chunks[which].try_clone().expect("a descriptor");
        pool.attach(1, serial, fd).expect("attached");
        // SAFETY: attached.
        let first = unsafe { pool.at(CHUNK).read_volatile() };
        (pool.mapped(), first)
    };
    assert_eq!(show(0, 5), (vec![(1, 5)], 5));
    assert_eq!(show(1, 6), (vec![(1, 6)], 6));
    // The news of the older chunk's end comes late, and changes nothing.
    pool.detach(1, 5);
    assert_eq!(show(0, 5), (vec![(1, 6)], 6));
    pool.detach(1, 6);
    assert_eq!(pool.mapped(), []);
}

/// A writer may have moved a buffer to us, and then say that nothing of its chunk is alive. A write to such a buffer
/// does not fault.
#[test]
fn what_a_liar_takes_away_can_still_be_written() {
    for trust in [Trust::Full, Trust::Half] {
        let domain = Domain::embedded().expect("a domain");
        let (pool, table) = opened_of(&domain, trust);
        let opts = Opts {
            sealing: tranship_region::Sealing::Shared,
            ..Opts::default()
        };
        let chunk = || {
            tranship_region::make("chunk", 64 << 10, opts)
                .expect("a chunk")
                .0
        };
        let slot = table.slot(3).expect("a slot");
        slot.offset.store(0, Ordering::Relaxed);
        slot.length.store(4096, Ordering::Relaxed);
        pool.attach(0, 1, chunk()).expect("attached");
        let id = BufferId::new(PoolId(7), 3, 2);
        pool.hold(id, (0, 4096), Access::ReadWrite).expect("held");
        let byte = pool.at(0);
        // SAFETY: held for writing.
        let write = |value| unsafe { byte.write_volatile(value) };
        // SAFETY: as above.
        let read = || unsafe { byte.read_volatile() };
        write(1);
        pool.detach(0, 1);
        assert_eq!(read(), 0);
        write(2);
        assert_eq!(read(), 2);
        pool.attach(0, 2, chunk()).expect("attached");
        assert_eq!(read(), 0);
        write(3);
        pool.release_held(3, Access::ReadWrite);
        assert!(pool.nothing_held());
    }
}

/// A liar may share what it moves: the one that may write takes that along when it goes.
#[test]
fn a_moved_buffer_takes_writing_along() {
    use crate::buffer::{BufferMut, Tag};
    use tranship_testkit::probe::{Access as Can, Probe};
    let domain = Domain::embedded().expect("a domain");
    let (pool, table) = opened_of(&domain, Trust::Half);
    let opts = Opts {
        sealing: tranship_region::Sealing::Shared,
        ..Opts::default()
    };
    let (chunk, _) = tranship_region::make("chunk", 64 << 10, opts).expect("a chunk");
    let slot = table.slot(3).expect("a slot");
    slot.length.store(4096, Ordering::Relaxed);
    pool.attach(0, 1, chunk).expect("attached");
    let id = BufferId::new(PoolId(7), 3, 2);
    let probe = Probe::new();
    let can = || probe.touch(pool.at(0).as_ptr().expose_provenance());
    pool.hold(id, (0, 4096), Access::ReadWrite).expect("held");
    pool.hold(id, (0, 4096), Access::Read).expect("held");
    assert_eq!(can(), Can::ReadWrite);
    let tag = Tag::foreign(3, 2, Tag::LONG | Tag::MOVED);
    // SAFETY: the first of the two references, which was counted for writing, is its.
    drop(unsafe { BufferMut::foreign(pool.at(0), 4096, std::ptr::NonNull::from(&pool), tag) });
    assert_eq!(can(), Can::Read);
    pool.release_held(3, Access::Read);
    assert_eq!(can(), Can::None);
}
