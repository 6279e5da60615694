//! Errors of other implementations, one test each.
//!
//! NOT here: the chain routines over random sequences (`model`), other domains (`cross.rs`).

use std::ffi::c_void;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
use tranship_items::reaper::{self, Driver};
use tranship_mbuf::{
    Calls, Chain, Checksum, ClusterSize, Error, ExtKind, Flags, Header, Limits, MHLEN, MINCLSIZE,
    MLEN, MbufOptions, Mbufs, PERSISTENT, Routine, SendTag, Tag, What, inject,
};
use tranship_testkit::Watchdog;

fn mbufs() -> Mbufs {
    limited(Limits::NONE)
}

fn limited(limits: Limits) -> Mbufs {
    let options = MbufOptions::new().limits(limits);
    options.window_bytes(256 << 20).build().expect("allocator")
}

#[track_caller]
fn all_back(mbufs: &Mbufs) {
    let _dog = Watchdog::new();
    // The zones' own thread may still hold items.
    while mbufs.stats().outstanding() > 0 || mbufs.stats().memory_bytes > 0 {
        mbufs.reclaim();
        thread::yield_now();
    }
}

/// An owner that counts its drops.
struct Counted(Vec<u8>, Arc<AtomicUsize>);
impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn counted(mbufs: &Mbufs, len: usize) -> (Chain, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut chain = mbufs.gethdr().expect("mbuf");
    let owner = Counted(vec![7; len], dropped.clone());
    chain
        .attach(owner)
        .map_err(|(error, _)| error)
        .expect("vacant");
    (chain, dropped)
}

fn first_address(chain: &Chain) -> *const u8 {
    let first = chain.iter().next().expect("one");
    first.bytes().expect("mapped").as_ptr()
}

#[test]
fn a_holder_freed_before_its_shadows_stays_until_the_last() {
    let mbufs = mbufs();
    let (chain, dropped) = counted(&mbufs, 5000);
    let copies: Vec<_> = (0..3).map(|_| chain.copypacket().expect("mbuf")).collect();
    let second = copies[0].copym(100..200).expect("mbuf");
    assert_eq!(chain.last().references(), 5);
    drop(chain);
    assert_eq!(mbufs.stats().mbufs.current, 1, "the holder");
    drop(copies);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    assert_eq!(second.to_vec().expect("mapped"), [7; 100]);
    assert_eq!(second.last().references(), 1);
    drop(second);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    all_back(&mbufs);
}

#[test]
fn a_packet_is_recycled_as_a_unit_whoever_goes_last() {
    let mbufs = mbufs();
    let mut packet = mbufs.getcl().expect("packet");
    packet.append(&[1; 500]).expect("room");
    let address = first_address(&packet);
    let shadow = packet.copypacket().expect("mini");
    drop(packet);
    let stats = mbufs.stats();
    assert_eq!((stats.packets.current, stats.minis.current), (1, 1));
    drop(shadow);
    assert_eq!(mbufs.stats().outstanding(), 0);
    let mut again = mbufs.getcl().expect("packet");
    again.append(&[2]).expect("room");
    assert_eq!(first_address(&again), address, "the same cluster");
    assert!(again.is_writable() && again.last().references() == 1);
    assert_eq!(again.last().storage(), Some(ExtKind::Packet));
    drop(again);
    for _ in 0..1000 {
        drop(mbufs.getcl().expect("packet"));
    }
    let packets = mbufs.stats().packets;
    assert!(packets.hits > 900, "{packets:?}");
    all_back(&mbufs);
}

/// A mini-mbuf has no data area: the apparent room there is the next mbuf.
#[test]
fn a_mini_without_storage_has_no_room_wherever_its_header_goes() {
    let mbufs = mbufs();
    let lose: [fn(&mut Chain, &Mbufs); 4] = [
        |chain, _| chain.prepend(3).expect("mbuf").fill(3),
        |chain, _| assert!(chain.copyup(0, 8).expect("mbuf").is_empty()),
        |chain, _| chain.demote(),
        |chain, mbufs| {
            let mut to = mbufs.gethdr().expect("mbuf");
            chain.move_header(&mut to).expect("room for a header");
        },
    ];
    for lose in lose {
        // The mbufs behind it in their slab, which would be written over.
        let mut chain = mbufs.mini().expect("mini");
        let neighbours: Vec<_> = (0..8).map(|_| mbufs.mini().expect("mini")).collect();
        lose(&mut chain, &mbufs);
        let mini = chain.last();
        assert!(mini.is_mini());
        assert_eq!((mini.leading_space(), mini.trailing_space()), (0, 0));
        let before = chain.to_vec().expect("mapped");
        chain.append(&[0xff; 600]).expect("memory");
        assert_eq!(
            chain.to_vec().expect("mapped"),
            [&before[..], &[0xff; 600]].concat()
        );
        for chain in neighbours.iter().chain([&chain]) {
            chain.sanity().expect("sane");
        }
        assert!(neighbours.iter().all(|chain| chain.is_packet()));
    }
    all_back(&mbufs);
}

/// The shortest way of freeing drops it too.
#[test]
fn what_a_header_owns_goes_with_the_packet() {
    let mbufs = mbufs();
    let dropped = Arc::new(AtomicUsize::new(0));
    for packets in 1..20 {
        let mut chain = match packets % 3 {
            0 => mbufs.gethdr().expect("mbuf"),
            _ => mbufs.getcl().expect("packet"),
        };
        let owned = Counted(Vec::new(), dropped.clone());
        chain.header_mut().expect("packet").send_tag = Some(SendTag::new(1, owned));
        drop(chain);
        assert_eq!(dropped.load(Ordering::SeqCst), packets);
    }
    all_back(&mbufs);
}

#[test]
fn a_failing_init_fails_the_packet_and_nothing_else() {
    let limits = Limits {
        clusters: 3,
        ..Limits::NONE
    };
    let mbufs = limited(limits);
    let mut held: Vec<_> = (0..3).map(|_| mbufs.getcl().expect("packet")).collect();
    assert_eq!(mbufs.getcl().err(), Some(What::Packet.into()));
    let mut plain = mbufs.gethdr().expect("mbufs are not limited");
    let failed = plain.clget().expect_err("no cluster");
    assert_eq!(failed.errno(), rustix::io::Errno::NOBUFS.raw_os_error());
    assert!(mbufs.stats().packets.failures > 0);
    assert!(mbufs.stats().clusters[0].failures > 0);
    // A cached packet has the cluster: the allocator takes it from that packet.
    drop(held.pop());
    plain.clget().expect("the packet's cluster");
    drop(plain);
    held.push(mbufs.getcl().expect("packet"));
    drop(held);
    all_back(&mbufs);
}

#[test]
fn who_waits_at_a_limit_gets_what_is_freed() {
    let _dog = Watchdog::new();
    // No thread takes a cluster out of an idle cache: it must not get there.
    reaper::set_driver(Driver::Nobody);
    let limits = Limits {
        clusters: 1,
        ..Limits::NONE
    };
    let mbufs = limited(limits);
    let patient = mbufs.waiting_for(Duration::from_millis(1));
    for round in 0..20 {
        let held = mbufs.getcl().expect("packet");
        assert!(patient.getcl().is_err(), "in time");
        let before = mbufs.stats().clusters[0].sleeps;
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mbufs = mbufs.waiting();
                if round % 2 == 0 {
                    return mbufs.getcl().expect("granted");
                }
                let mut chain = mbufs.gethdr().expect("mbuf");
                let cluster = mbufs.cluster(ClusterSize::Std).expect("granted");
                chain
                    .attach_mut(cluster)
                    .map_err(|(error, _)| error)
                    .expect("vacant");
                chain
            });
            while mbufs.stats().clusters[0].sleeps == before {
                thread::yield_now();
            }
            drop(held); // its cluster must not stay with a cached packet
            drop(waiter.join().expect("waiter"));
        });
    }
    all_back(&mbufs);
}

#[test]
fn zones_over_one_keg_account_by_themselves() {
    let mbufs = mbufs();
    let tagged = mbufs.tagged_zone(7, 1, 8);
    let plain: Vec<_> = (0..10).map(|_| mbufs.get().expect("mbuf")).collect();
    let packets: Vec<_> = (0..20).map(|_| mbufs.getcl().expect("packet")).collect();
    let tags: Vec<_> = (0..30).map(|_| tagged.gethdr().expect("tagged")).collect();
    let stats = mbufs.stats();
    let current = (
        stats.mbufs.current,
        stats.packets.current,
        stats.more[0].current,
    );
    assert_eq!(current, (10, 20, 30));
    assert_eq!((stats.packets.allocs, stats.outstanding()), (20, 60));
    drop((plain, packets, tags));
    let stats = mbufs.stats();
    assert_eq!((stats.mbufs.current, stats.packets.current), (0, 0));
    assert!(
        stats
            .to_string()
            .contains("mbuf+clusters out of packet secondary zone in use")
    );
    all_back(&mbufs);
}

#[test]
fn a_tag_taken_away_is_made_anew_and_is_zero() {
    let mbufs = mbufs();
    let zone = mbufs.tagged_zone(7, 1, 8);
    let mut chain = zone.gethdr().expect("tagged");
    let tags = &mut chain.header_mut().expect("packet").tags;
    tags.find_mut(7, 1).expect("its tag").data_mut().fill(9);
    tags.prepend(Tag::new(8, 8 | PERSISTENT, 3).expect("memory"));
    drop(chain);
    let mut chain = zone.gethdr().expect("tagged");
    let tags = &mut chain.header_mut().expect("packet").tags;
    assert_eq!(tags.iter().count(), 1);
    assert_eq!(tags.find(7, 1).expect("its tag").data(), [0; 8]);
    tags.clear();
    drop(chain);
    inject::fail_at(2); // the mbuf, then its tag
    assert_eq!(zone.gethdr().err(), Some(What::Tag.into()));
    inject::fail_at(0);
    let mut chain = zone.gethdr().expect("tagged");
    assert!(chain.header().expect("packet").tags.find(7, 1).is_some());
    // Data at the place of a dropped header must not be taken for a header.
    chain.demote();
    chain.align(MLEN).expect("empty");
    chain.append(&[0xff; MLEN]).expect("room");
    drop(chain);
    assert!(zone.gethdr().expect("tagged").header().is_some());
    all_back(&mbufs);
}

#[test]
fn freed_on_another_thread_and_at_a_threads_end_nothing_is_lost() {
    let _dog = Watchdog::new();
    let mbufs = mbufs();
    let (send, receive) = std::sync::mpsc::channel::<Chain>();
    thread::scope(|scope| {
        let mbufs = &mbufs;
        scope.spawn(move || {
            for n in 0..5000 {
                let mut chain = mbufs.getcl().expect("packet");
                chain.append(&[1; 3000]).expect("room");
                if n % 3 == 0 {
                    send.send(chain.copypacket().expect("mini")).expect("open");
                }
                send.send(chain).expect("open");
            }
        });
        scope.spawn(move || receive.into_iter().for_each(drop));
    });
    all_back(&mbufs);
}

#[test]
fn many_threads_drop_one_storage_once() {
    let _dog = Watchdog::new();
    let mbufs = mbufs();
    for _ in 0..200 {
        let (chain, dropped) = counted(&mbufs, 100);
        let copies: Vec<_> = (0..4).map(|_| chain.copypacket().expect("mini")).collect();
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for copy in copies {
                scope.spawn(|| {
                    barrier.wait();
                    let more = copy.copypacket().expect("mini");
                    drop(copy);
                    assert_eq!(more.byte(99).expect("there"), 7);
                });
            }
            drop(chain);
        });
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
    all_back(&mbufs);
}

#[test]
fn mbufs_outlive_their_allocator() {
    let mbufs = mbufs();
    let (mut chain, dropped) = counted(&mbufs, 10);
    let mut packet = mbufs.getcl().expect("packet");
    let (copy, handle) = (mbufs.clone(), mbufs.waiting());
    drop((mbufs, copy, handle));
    packet.append(&[1; 2048]).expect("room in place");
    assert!(
        matches!(packet.append(&[1]), Err(Error::NoBuffers(_))),
        "it is closed"
    );
    assert!(chain.prepend(10).is_err() && chain.len() == 10);
    chain.cat(packet);
    assert_eq!(chain.len(), 2058);
    thread::spawn(move || drop(chain)).join().expect("thread");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn a_free_routine_is_called_once_with_what_it_was_given() {
    let mbufs = mbufs();
    let calls = Arc::new(AtomicUsize::new(0));
    let mut chain = mbufs.mini().expect("mini");
    let seen = calls.clone();
    let free = move |bytes: Vec<u8>| {
        assert_eq!(bytes, [3; 40]);
        seen.fetch_add(1, Ordering::SeqCst);
    };
    chain.attach_with(vec![3; 40], free).expect("vacant");
    assert!(!chain.is_writable() && chain.leading_space() == 0);
    let (error, back) = chain.attach(vec![1]).expect_err("occupied");
    assert!(matches!(error, Error::Occupied) && back == [1]);
    let tail = chain.split_off(10).expect("mini");
    drop(chain);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    drop(thread::spawn(move || drop(tail)).join());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    all_back(&mbufs);
}

#[test]
fn shared_storage_cannot_be_written_until_it_is_ones_own() {
    let mbufs = mbufs();
    let mut chain = mbufs.getcl().expect("packet");
    chain.append(&[1; 100]).expect("room");
    chain.trim_front(20);
    assert_eq!((chain.leading_space(), chain.trailing_space()), (20, 1948));
    let copy = chain.copypacket().expect("mini");
    assert_eq!((chain.leading_space(), chain.trailing_space()), (0, 0));
    assert!(chain.iter_mut().all(|bytes| bytes.is_none()));
    let calls = Calls::now();
    chain.pulldown(10..20).expect("memory").fill(9);
    assert!(Calls::now().since(&calls).of(Routine::PulldownCopied) >= 1);
    assert_eq!(copy.to_vec().expect("mapped"), [1; 80], "not the other's");
    assert_eq!(chain.byte(10).expect("there"), 9);
    assert_eq!(chain.count(), 3, "before, copied, behind");
    drop(chain);
    assert!(copy.is_writable());
    drop(copy);
    all_back(&mbufs);
}

#[test]
fn a_pullup_that_finds_the_bytes_in_place_copies_nothing() {
    let mbufs = mbufs();
    let mut chain = mbufs.devget(&[5; 1000], 0).expect("packet");
    let address = first_address(&chain);
    assert_eq!(chain.pullup(MHLEN).expect("there"), [5; MHLEN]);
    assert_eq!(first_address(&chain), address);
    // More than max_protohdr is not taken along.
    chain.fragment(10).expect("memory");
    chain.pullup(15).expect("memory");
    assert_eq!(chain.iter().next().expect("one").len(), 60);
    assert!(matches!(
        chain.pullup(MHLEN + 1),
        Err(Error::TooLong { .. })
    ));
    assert!(chain.pullup(MHLEN).is_ok());
}

#[test]
fn the_header_stays_with_the_packet() {
    let mbufs = mbufs();
    let mut chain = mbufs.devget(&[5; 3000], 0).expect("packet");
    let living = SendTag::living();
    *chain.header_mut().expect("packet") = Header {
        send_tag: Some(SendTag::new(3, 17u32)),
        interface: 2,
        checksum: Checksum::IP | Checksum::TCP,
        vlan: 100,
        ..Header::default()
    };
    chain.insert_flags(Flags::MCAST | Flags::VLANTAG | Flags::RDONLY);
    assert!(
        !chain.flags().contains(Flags::RDONLY),
        "only the library sets it"
    );
    chain.prepend(MHLEN).expect("mbuf");
    let tail = chain.split_off(1500).expect("mbuf");
    for part in [&chain, &tail] {
        let header = part.header().expect("packet");
        assert_eq!((header.interface, header.vlan), (2, 100));
        assert!(header.checksum.contains(Checksum::TCP));
        let tag = header.send_tag.as_ref().expect("send tag");
        assert_eq!((tag.interface(), tag.data::<u32>()), (3, Some(&17)));
        assert!(part.flags().contains(Flags::MCAST | Flags::VLANTAG));
        part.sanity().expect("sane");
    }
    assert_eq!(SendTag::living(), living + 1);
    drop((chain, tail));
    assert_eq!(SendTag::living(), living);
}

#[test]
fn pieces_of_a_file_are_read_only_where_bytes_are_asked_for() {
    let mbufs = mbufs();
    let fd = rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let mut file = std::fs::File::from(fd);
    let bytes: Vec<u8> = (0..200).collect();
    file.write_all(&bytes).expect("write");
    let file = Arc::new(file);
    let zone = mbufs.file_zone(file.clone(), "pieces");
    let mut chain = zone.get(50, 100).expect("mini");
    let mut other = mbufs.mini().expect("mini");
    other
        .attach_file(file.clone(), 0, 300)
        .map_err(|(error, _)| error)
        .expect("vacant");
    assert!(chain.reader().is_none() && chain.io_slices().is_none());
    let (fd, offset) = chain.last().file().expect("a piece");
    assert_eq!(
        (rustix::fs::fstat(fd).expect("open").st_size, offset),
        (200, 50)
    );
    chain.trim_front(10);
    let tail = chain.split_off(20).expect("mini");
    assert_eq!(tail.last().file().expect("a piece").1, 80);
    assert_eq!(chain.to_vec().expect("read"), bytes[60..80]);
    assert_eq!(chain.pullup(5).expect("read"), &bytes[60..65]);
    // The file ends before the piece does.
    let error = other.to_vec().expect_err("200 bytes");
    assert!(matches!(error, Error::File { .. }), "{error}");
    assert!(other.pullup(10).is_ok(), "the first 60 bytes are there");
    assert!(other.defrag().is_err() && other.len() == 300);
    other.sanity().expect("sane");
    assert!(
        chain.print(16).to_string().contains("3c 3d"),
        "{}",
        chain.print(16)
    );
    drop((chain, tail, other));
    all_back(&mbufs);
    let _ = file.as_fd();
}

#[test]
fn limits_leave_an_mbuf_for_every_cluster() {
    let mbufs = limited(Limits::for_memory(64 << 20));
    let limits = mbufs.limits();
    assert_eq!(limits.clusters, (64 << 20) / 2048 / 4);
    let few = Limits {
        mbufs: 10,
        ..limits
    };
    let error = mbufs.set_limits(few).expect_err("too few mbufs");
    assert_eq!(error.errno(), rustix::io::Errno::INVAL.raw_os_error());
    let two = Limits {
        clusters: 2,
        ..limits
    };
    mbufs
        .set_limits(two)
        .expect("raised or lowered at run time");
    let held = (mbufs.getcl().expect("one"), mbufs.getcl().expect("two"));
    assert!(mbufs.getcl().is_err());
    mbufs.set_limits(limits).expect("raised");
    assert!(mbufs.getcl().is_ok());
    drop(held);
    all_back(&mbufs);
}

/// Cached packets do not keep clusters above the limit either.
#[test]
fn a_lowered_limit_holds_as_soon_as_packets_come_back() {
    // No thread takes a packet out of an idle cache: the last lines search for it there.
    reaper::set_driver(Driver::Nobody);
    let mbufs = mbufs();
    let mut held: Vec<_> = (0..5).map(|_| mbufs.getcl().expect("packet")).collect();
    let two = Limits {
        clusters: 2,
        ..Limits::NONE
    };
    mbufs.set_limits(two).expect("enough mbufs");
    held.truncate(3);
    assert!(mbufs.getcl().is_err(), "three are out");
    held.clear();
    for _ in 0..2 {
        held.extend((0..2).map(|_| mbufs.getcl().expect("two are allowed")));
        assert!(mbufs.getcl().is_err() && mbufs.cluster(ClusterSize::Std).is_err());
        held.clear();
    }
    drop(mbufs.getcl());
    assert!(mbufs.stats().packets.cached > 0, "as ever");
    all_back(&mbufs);
}

#[test]
fn sizes_choose_their_mbufs() {
    let mbufs = mbufs();
    let kinds = |chain: &Chain| chain.iter().map(|mbuf| mbuf.size()).collect::<Vec<_>>();
    assert_eq!(kinds(&mbufs.get2(MHLEN).expect("mbuf")), [MHLEN]);
    assert_eq!(kinds(&mbufs.get2(MINCLSIZE).expect("mbuf")), [2048]);
    assert_eq!(kinds(&mbufs.get2(4096).expect("mbuf")), [4096]);
    assert!(matches!(mbufs.get2(4097), Err(Error::TooLong { .. })));
    assert_eq!(kinds(&mbufs.get3(4097).expect("mbuf")), [9216]);
    assert_eq!(kinds(&mbufs.get3(16384).expect("mbuf")), [16384]);
    assert!(mbufs.get3(16385).is_err());
    assert_eq!(kinds(&mbufs.getm2(5000).expect("mbufs")), [4096, 2048]);
    // Without pages of memory two clusters take their place.
    mbufs
        .set_limits(Limits {
            jumbo_page: 0,
            mbufs: u64::MAX,
            clusters: 1 << 20,
            jumbo9: 0,
            jumbo16: 0,
        })
        .expect("enough mbufs");
    assert_eq!(kinds(&mbufs.getm2(5000).expect("mbufs")), [2048; 3]);
    let record = mbufs.getm2_with(300, tranship_mbuf::Kind::CONTROL, Flags::EOR);
    let record = record.expect("mbufs");
    assert!(record.last().flags().contains(Flags::EOR) && !record.is_packet());
    assert_eq!(record.kind(), tranship_mbuf::Kind::CONTROL);
    mbufs.record_sizes(true);
    drop(mbufs.devget(&[0; 1500], 0).expect("mbuf"));
    assert_eq!(mbufs.stats().sizes.0.iter().sum::<u64>(), 1);
    assert!(mbufs.stats().to_string().contains("up to 1518 bytes"));
}

#[test]
fn lengths_that_are_set_stay_inside_the_storage_and_reach_the_header() {
    let mbufs = mbufs();
    let mut packet = mbufs.gethdr().expect("mbuf");
    packet.reserve_front(10).expect("empty");
    assert!(matches!(
        packet.set_first_len(MHLEN - 9),
        Err(Error::TooLong { wanted, limit }) if wanted == MHLEN - 9 && limit == MHLEN - 10
    ));
    assert_eq!(packet.len(), 0);
    packet.set_first_len(MHLEN - 10).expect("inside");
    assert_eq!(packet.len(), MHLEN - 10);
    let mut second = mbufs.getcl().expect("cluster");
    second.append(&[1]).expect("room");
    packet.cat(second);
    // As C has it: the chain that begins with the last mbuf, which stays in this one.
    let last = packet.last().as_raw();
    // SAFETY: it is not dropped, and its first mbuf stays the same.
    let mut tail = std::mem::ManuallyDrop::new(unsafe { Chain::from_raw(last) });
    tail.set_first_len(100).expect("inside");
    assert_eq!(packet.fix_header(), MHLEN + 90);
    assert_eq!(packet.len(), MHLEN + 90);
    // This holds for shared storage too: it is only read.
    let mut copy = packet.copypacket().expect("copy");
    copy.set_first_len(3).expect("shorter");
    assert_eq!((copy.len(), packet.len()), (103, MHLEN + 90));
    // A mini-mbuf has no room of its own.
    assert!(mbufs.mini().expect("mini").set_first_len(1).is_err());
    drop((packet, copy));
    all_back(&mbufs);
}

extern "C" fn count_free(freed: *mut c_void, _: *mut c_void) {
    // SAFETY: the test's own counter, which outlives its mbufs.
    unsafe { (*freed.cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst) };
}

#[test]
fn memory_that_its_owner_counts_is_freed_once_by_the_last_reference() {
    let _dog = Watchdog::new();
    let mbufs = mbufs();
    let (count, freed) = (AtomicU32::new(0), AtomicUsize::new(0));
    let mut memory = vec![7; 5000];
    for round in 0..20 {
        count.store(1, Ordering::SeqCst); // this program's own reference
        let mut chain = mbufs.gethdr().expect("an mbuf");
        let counted = tranship_mbuf::Counted {
            bytes: NonNull::from(&mut memory[..]),
            count: NonNull::from(&count),
            free: Some(count_free),
            args: [(&raw const freed).cast_mut().cast(), std::ptr::null_mut()],
        };
        // SAFETY: memory and counters outlive the threads, and nothing writes the memory.
        unsafe { chain.attach_counted(counted) }.expect("vacant");
        assert_eq!(
            chain.iter().next().expect("one").storage(),
            Some(ExtKind::Counted)
        );
        assert!(!chain.is_writable(), "this program refers to it, too");
        let mut copies: Vec<_> = (0..4)
            .map(|_| chain.copypacket().expect("memory"))
            .collect();
        assert_eq!(count.load(Ordering::SeqCst), 6);
        drop(chain); // the mbuf that attached it goes first
        thread::scope(|scope| {
            for copy in copies.drain(1..) {
                scope.spawn(move || {
                    for _ in 0..100 {
                        let again = copy.copypacket().expect("memory");
                        assert_eq!(again.len(), 5000);
                    }
                });
            }
        });
        assert_eq!(count.fetch_sub(1, Ordering::SeqCst), 2);
        assert!(copies[0].is_writable(), "nothing else refers to it");
        let copy = copies.pop().expect("the last");
        let (kept, made) = (copy.dup().expect("memory"), freed.load(Ordering::SeqCst));
        assert_eq!(made, round);
        thread::spawn(move || drop(copy)).join().expect("freed");
        assert_eq!(
            (count.load(Ordering::SeqCst), freed.load(Ordering::SeqCst)),
            (0, round + 1)
        );
        assert_eq!(kept.to_vec().expect("bytes"), [7; 5000]);
    }
    all_back(&mbufs);
}
