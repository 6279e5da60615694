//! Checks that no sequence of operations on correct chains reaches: if a mutation removes such a check, a test here
//! fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tranship_core::{Domain, PoolOptions};
use tranship_mbuf::{Chain, Error, Flags, Limits, MbufOptions, Mbufs, inject};
use tranship_testkit::Watchdog;

/// Counts the tags that are there, by their length.
struct Counting;
static TAGS: AtomicUsize = AtomicUsize::new(0);
const TAG_BYTES: usize = 12_345;

fn is_tag(layout: Layout) -> bool {
    (TAG_BYTES..TAG_BYTES + 64).contains(&layout.size())
}

// SAFETY: all of it is `System`'s.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAGS.fetch_add(usize::from(is_tag(layout)), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        TAGS.fetch_sub(usize::from(is_tag(layout)), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn mbufs() -> Mbufs {
    let options = MbufOptions::new().limits(Limits::NONE);
    options.window_bytes(256 << 20).build().expect("allocator")
}

/// Makes a packet over a file that ends before the packet does.
fn beyond_the_end(mbufs: &Mbufs) -> Chain {
    let fd = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let mut file = std::fs::File::from(fd);
    file.write_all(&[1; 30]).expect("write");
    let mut chain = mbufs.mini().expect("mini");
    let attached = chain.attach_file(Arc::new(file), 0, 300);
    attached.map_err(|(error, _)| error).expect("vacant");
    chain
}

#[test]
fn what_was_to_be_filled_from_a_file_that_is_too_short_is_freed() {
    let mbufs = mbufs();
    let mut chain = beyond_the_end(&mbufs);
    let before = mbufs.stats().outstanding();
    assert!(matches!(chain.pullup(40), Err(Error::File { .. })));
    assert_eq!(mbufs.stats().outstanding(), before, "pullup");
    assert!(matches!(chain.copyup(40, 8), Err(Error::File { .. })));
    assert_eq!(mbufs.stats().outstanding(), before, "copyup");
    assert!(chain.pulldown(10..200).is_err());
    assert_eq!(mbufs.stats().outstanding(), before, "pulldown");
    assert!(chain.dup().is_err() && chain.defrag().is_err() && chain.unshare().is_err());
    assert!(chain.make_readable().is_err() && chain.make_writable(0..100).is_err());
    assert!(chain.collapse(1).is_ok() && chain.fragment(50).is_err());
    let full = Arc::new(std::fs::File::open("/dev/null").expect("only to be read"));
    assert!(matches!(
        chain.move_to_file(full.clone(), 0),
        Err(Error::File { .. })
    ));
    let error = chain.move_to_file(full.clone(), u64::MAX - 10);
    assert!(matches!(error, Err(Error::TooLong { limit: 10, .. })));
    assert_eq!(Arc::strong_count(&full), 1);
    chain.truncate(40);
    assert!(chain.compress_unmapped().is_err(), "30 of them are there");
    chain.sanity().expect("sane");
    assert_eq!((chain.len(), chain.count()), (40, 1));
    assert_eq!(mbufs.stats().outstanding(), before);
    drop(chain);
    assert_eq!(mbufs.stats().outstanding(), 0);
}

/// Both threads find the packet shared, and both report that they release it.
#[test]
fn a_packet_that_two_let_go_at_once_is_the_next_ones_own() {
    for packet_last in [true, false] {
        let mbufs = mbufs();
        let mut packet = mbufs.getcl().expect("packet");
        packet.append(&[1; 100]).expect("room");
        let shadow = packet.copypacket().expect("mini");
        let (one, other) = match packet_last {
            true => (packet, shadow),
            false => (shadow, packet),
        };
        inject::meanwhile(move || drop(other));
        drop(one);
        assert_eq!(mbufs.stats().outstanding(), 0);
        let mut again = mbufs.getcl().expect("packet");
        assert_eq!(again.last().references(), 1);
        again.append(&[2; 100]).expect("room in place");
        assert_eq!(again.count(), 1);
        let copies = [(); 3].map(|()| again.copypacket().expect("mini"));
        assert_eq!(again.last().references(), 4);
        drop(again);
        assert_eq!(copies[2].to_vec().expect("mapped"), [2; 100]);
        drop(copies);
        assert_eq!(mbufs.stats().outstanding(), 0);
    }
}

/// The mbuf has no other reference, but its buffer has.
#[test]
fn a_buffer_that_others_know_is_not_written_in_place() {
    let domain = Domain::builder().name("one").embedded().expect("embedded");
    let pool = domain.create_pool(PoolOptions::new(1 << 20)).expect("pool");
    let mbufs = Mbufs::over_pool(&pool).expect("mbufs");
    let mut chain = mbufs.getcl().expect("packet");
    chain.append(&[1; 1000]).expect("room");
    chain.trim_front(100);
    assert!(chain.is_writable() && chain.leading_space() == 100);
    let (aggregate, copied) = chain.to_aggregate(&pool).expect("memory");
    assert_eq!((copied, chain.last().references()), (0, 1));
    assert!(!chain.is_writable());
    assert_eq!((chain.leading_space(), chain.trailing_space()), (0, 0));
    assert!(chain.iter_mut().all(|bytes| bytes.is_none()));
    chain.push_front(b"header").expect("mbuf");
    chain.append(b"trailer").expect("mbuf");
    chain.pulldown(6..20).expect("copied").fill(9);
    assert_eq!(aggregate.to_vec(), [1; 900]);
    assert!(chain.count() > 3);
}

#[test]
fn a_piece_that_others_refer_to_is_not_compressed() {
    let mbufs = mbufs();
    let mut chain = beyond_the_end(&mbufs);
    chain.truncate(30);
    let copy = chain.copypacket().expect("mini");
    assert_eq!(chain.compress_unmapped().expect("nothing to do"), 0);
    drop(copy);
    assert_eq!(chain.compress_unmapped().expect("memory"), 1);
    assert!(chain.last().file().is_none() && chain.is_writable());
    assert_eq!(chain.to_vec().expect("mapped"), [1; 30]);
}

#[test]
fn what_cached_mbufs_keep_goes_when_they_do() {
    let _dog = Watchdog::new();
    let mbufs = mbufs();
    let fd = rustix::fs::memfd_create("kept", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let file = Arc::new(std::fs::File::from(fd));
    let (pieces, tagged) = (
        mbufs.file_zone(file.clone(), "pieces"),
        mbufs.tagged_zone(7, 1, TAG_BYTES),
    );
    let before = Arc::strong_count(&file);
    let out: Vec<_> = (0..10)
        .map(|_| {
            (
                pieces.get(0, 10).expect("mini"),
                tagged.gethdr().expect("mbuf"),
            )
        })
        .collect();
    assert!(Arc::strong_count(&file) >= before + 10 && TAGS.load(Ordering::Relaxed) >= 10);
    drop(out);
    assert!(Arc::strong_count(&file) > before, "they stay in the caches");
    // The zones' own thread may still hold items.
    while mbufs.stats().memory_bytes > 0 {
        mbufs.reclaim();
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&file), before);
    assert_eq!(TAGS.load(Ordering::Relaxed), 0);
}

/// Neither chain is changed: the other keeps its flags, and does not become a packet.
#[test]
fn a_chain_without_a_header_has_none_to_give() {
    let mbufs = mbufs();
    let mut bare = mbufs.get().expect("mbuf");
    for packet in [true, false] {
        let mut to = match packet {
            true => mbufs.gethdr().expect("mbuf"),
            false => mbufs.get().expect("mbuf"),
        };
        to.insert_flags(Flags::BCAST | Flags::VLANTAG);
        if let Some(header) = to.header_mut() {
            header.vlan = 7;
        }
        let before = to.flags();
        assert!(matches!(bare.dup_header(&mut to), Err(Error::NoHeader)));
        assert!(matches!(bare.move_header(&mut to), Err(Error::NoHeader)));
        assert_eq!((to.flags(), to.is_packet()), (before, packet));
        assert_eq!(to.header().map(|header| header.vlan), packet.then_some(7));
        assert_eq!((bare.is_packet(), Error::NoHeader.errno()), (false, 22));
    }
}

/// Nothing is allocated for a length that no header could hold.
#[test]
fn no_chain_becomes_longer_than_a_header_can_say() {
    let mbufs = mbufs();
    let mut chain = mbufs.devget(b"short", 0).expect("memory");
    let before = mbufs.stats().outstanding();
    let most = u32::MAX as usize;
    let too_long = |done: Result<(), Error>| {
        let error = done.expect_err("too long");
        assert!(
            matches!(error, Error::TooLong { limit, .. } if limit == most),
            "{error}"
        );
        assert_eq!(error.errno(), 22);
    };
    too_long(chain.copyback(most, b"x"));
    too_long(chain.copyback(usize::MAX, b"x"));
    too_long(chain.reserve(most - 4));
    too_long(chain.reserve(usize::MAX));
    too_long(mbufs.getm2(most + 1).map(drop));
    too_long(mbufs.getm2(usize::MAX).map(drop));
    too_long(mbufs.devget(b"x", most).map(drop));
    too_long(mbufs.devget(b"x", usize::MAX).map(drop));
    let (large, mut more) = (vec![0; 1 << 20], mbufs.mini().expect("mini"));
    let file = Arc::new(std::fs::File::open("/dev/null").expect("open"));
    let attached = more.attach_file(file, 0, most - 100);
    attached.map_err(|(error, _)| error).expect("vacant");
    too_long(more.append(&large));
    too_long(more.prepend(101).map(drop));
    assert_eq!((more.len(), more.count()), (most - 100, 1));
    assert_eq!(chain.to_vec().expect("mapped"), b"short");
    drop(more);
    assert_eq!(mbufs.stats().outstanding(), before);
}
