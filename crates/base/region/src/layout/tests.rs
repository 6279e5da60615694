use super::*;
use crate::{Opts, RwMapping, make};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

fn word(map: &RwMapping, offset: usize) -> u32 {
    map.view().read::<u32>(offset).expect("in bounds")
}

#[test]
fn a_table_is_where_the_format_says() {
    let (fd, rw) = TableRw::create(1000, 1 << 30, 1 << 20).expect("create");
    let ro = TableRo::open(&fd, 1000, 1 << 30, 1 << 20).expect("open");
    assert_eq!(
        rw.mapping().len(),
        (4096 + 32 * 1000_usize).next_multiple_of(4096)
    );
    assert_eq!(rw.mapping().view().read(0), Ok(*b"RANSHIP\0"));
    assert_eq!(word(rw.mapping(), 12), 2);
    assert!(
        rw.slots()
            .iter()
            .all(|slot| slot.generation.load(Relaxed) == 1)
    );
    let slot = rw.slot(999).expect("slot");
    slot.generation.store(2, Relaxed);
    slot.serial.store(3, Relaxed);
    slot.offset.store(4, Relaxed);
    slot.length.store(5, Release);
    rw.relinquish().store(6, Relaxed);
    let seen = ro.slot(999).expect("slot");
    assert_eq!(seen.length().load(Acquire), 5);
    assert_eq!(seen.generation().load(SeqCst), 2);
    assert_eq!(
        (seen.serial().load(Relaxed), seen.offset().load(Relaxed)),
        (3, 4)
    );
    assert_eq!(ro.relinquish().load(Relaxed), 6);
    let at = 4096 + 32 * 999;
    let words = [0, 4, 8, 16].map(|offset| word(rw.mapping(), at + offset));
    assert_eq!((words, word(rw.mapping(), 64)), ([2, 3, 4, 5], 6));
    assert!(rw.slot(1000).is_none() && ro.slot(1000).is_none() && ro.slot(u32::MAX).is_none());
}

#[test]
fn references_and_counts_are_where_the_format_says() {
    let (fd, rw) = RefsRw::create(5000).expect("create");
    let ro = RefsRo::open(&fd, 5000).expect("open");
    rw.get(4999).expect("ref").store(7, Relaxed);
    rw.wake().store(8, Relaxed);
    assert_eq!(ro.get(4999).expect("ref").load(Acquire), 7);
    assert_eq!(ro.wake().load(Relaxed), 8);
    assert_eq!(word(rw.mapping(), 128 + 4 * 4999), 7);
    assert_eq!(word(rw.mapping(), 64), 8);
    assert_eq!(ro.wake_ptr().addr() - ro.mapping().base().addr(), 64);
    assert!(ro.get(5000).is_none() && rw.get(5000).is_none());

    for (way, kind) in [(Way::Sent, 4), (Way::Rcvd, 5)] {
        let (fd, rw) = CountsRw::create(way, 5000).expect("create");
        let ro = CountsRo::open(&fd, way, 5000).expect("open");
        rw.counts()[4999].store(9, Relaxed);
        assert_eq!(ro.get(4999).expect("count").load(Relaxed), 9);
        assert_eq!(word(rw.mapping(), 64 + 4 * 4999), 9);
        assert_eq!(word(rw.mapping(), 12), kind);
        assert_eq!(ro.counts_ptr().addr() - ro.mapping().base().addr(), 64);
        assert!(ro.get(5000).is_none());
    }
}

#[test]
fn a_control_page_is_where_the_format_says() {
    let (fd, rw) = ControlPageRw::create(100, 0xabcd).expect("create");
    let ro = ControlPageRo::open(&fd, 100, 0xabcd).expect("open");
    let entry = rw.entry(99).expect("entry");
    entry.epoch.store(1, Relaxed);
    entry.quota.store(2, Relaxed);
    entry.pool.store(3, Relaxed);
    rw.wake().store(4, Relaxed);
    let seen = [ro.epoch(99), ro.quota(99), ro.pool(99)];
    assert_eq!(
        seen.map(|word| word.expect("entry").load(Acquire)),
        [1, 2, 3]
    );
    assert_eq!((ro.wake().load(Relaxed), ro.instance()), (4, 0xabcd));
    let at = 4096 + 32 * 99;
    let words = [at, at + 8, at + 16, 64, 72].map(|offset| word(rw.mapping(), offset));
    assert_eq!(words, [1, 2, 3, 4, 0xabcd]);
    assert!(ro.epoch(100).is_none() && rw.entry(100).is_none());
    let error = ControlPageRo::open(&fd, 100, 0xabce).expect_err("another manager");
    assert!(matches!(
        error,
        OpenError::Header {
            field: "instance",
            ..
        }
    ));
}

/// Makes a memfd with good counts, but one word of the header changed before sealing.
fn forged(change_at: usize) -> OwnedFd {
    let len = refs::len(10);
    let (fd, map) = make("test", len, Opts::default()).expect("make");
    let mut header = [0u8; 64];
    header[..8].copy_from_slice(b"RANSHIP\0");
    (header[8], header[12], header[16]) = (1, 3, 10);
    header[change_at] ^= 0x40;
    // SAFETY: our own mapping, in bounds, no reference to it.
    unsafe { map.base().cast::<[u8; 64]>().write_volatile(header) };
    // The writer's mapping may end here: the file keeps its contents.
    fd
}

#[test]
fn every_byte_of_a_header_counts() {
    for at in 0..64 {
        let error = RefsRo::open(forged(at), 10).expect_err("forged");
        let field = match error {
            OpenError::Header { field, .. } => field,
            other => panic!("byte {at}: {other}"),
        };
        let expected = match at {
            0..8 => "magic",
            8..12 => "version",
            12..16 => "kind",
            16..20 => "count",
            _ => "the word at ",
        };
        assert!(field.starts_with(expected), "byte {at}: {field}");
    }
}

#[test]
fn what_was_agreed_counts() {
    let (fd, _rw) = TableRw::create(100, 1 << 30, 1 << 20).expect("create");
    for (slots, max, chunk) in [
        (101, 1 << 30, 1 << 20),
        (100, 1, 1 << 20),
        (100, 1 << 30, 1),
    ] {
        let error = TableRo::open(&fd, slots, max, chunk).expect_err("other numbers");
        assert!(matches!(error, OpenError::Header { .. }));
    }
    let error = TableRo::open(&fd, 1000, 1 << 30, 1 << 20).expect_err("another size");
    assert!(matches!(error, OpenError::Verify(VerifyError::Size { .. })));
    let (fd, _rw) = CountsRw::create(Way::Sent, 100).expect("create");
    let error = CountsRo::open(&fd, Way::Rcvd, 100).expect_err("the other kind");
    assert!(matches!(error, OpenError::Header { field: "kind", .. }));
}

#[test]
fn numbers_out_of_range_are_errors_before_anything_is_made() {
    for slots in [0, SLOT_LIMIT + 1, u32::MAX] {
        assert!(matches!(
            RefsRw::create(slots),
            Err(CreateError::Count { .. })
        ));
        assert!(matches!(
            TableRw::create(slots, 1, 1),
            Err(CreateError::Count { .. })
        ));
        assert!(matches!(
            CountsRw::create(Way::Sent, slots),
            Err(CreateError::Count { .. })
        ));
    }
    for entries in [0, u32::MAX] {
        assert!(matches!(
            ControlPageRw::create(entries, 1),
            Err(CreateError::Count { .. })
        ));
    }
}

#[test]
fn a_reader_sleeps_on_the_writers_word() {
    let (fd, rw) = RefsRw::create(1).expect("create");
    let ro = RefsRo::open(&fd, 1).expect("open");
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            while ro.wake().load(Acquire) == 0 {
                tranship_sys::futex::wait(ro.wake_ptr(), 0, None).expect("wait");
            }
        });
        // Ordering: the sleeper's acquire; the kernel compares once more before it sleeps.
        rw.wake().store(1, Release);
        tranship_sys::futex::wake(rw.wake(), 1).expect("wake");
        sleeper.join().expect("sleeper");
    });
}
