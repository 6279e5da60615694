//! Buffers in sealed memfds of their own, and an end that keeps what it should have given up.

use super::{PAGE, Pair, transfer};
use crate::lying::{Frame, Lying};
use crate::stage::{Stage, liar};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tranship_bulk::{BufferState, ChannelState, Direction, Kind, Trust};
use tranship_region::{Guarded, RoMapping};
use tranship_sys::map::Access;
use tranship_sys::memfd::{self, Seals};
use tranship_testkit::attack::{self, Target};

const LEN: usize = 4 * PAGE;
const ALL: Seals = Seals::SHRINK
    .union(Seals::GROW)
    .union(Seals::SEAL)
    .union(Seals::WRITE);

type Shown = Arc<Mutex<Vec<Arc<OwnedFd>>>>;

/// A liar that shows these with its next transfers, one each, and then nothing of its own.
fn showing(stage: &Stage, name: &str, shown: Vec<OwnedFd>) -> (Pair, u64) {
    let shown: Shown = Arc::new(Mutex::new(shown.into_iter().map(Arc::new).rev().collect()));
    let lie = move |frame: &mut Frame| {
        if transfer(frame).is_some() {
            frame.fds = shown.lock().expect("shown").pop().into_iter().collect();
        }
    };
    let pair = stage.pair(Trust::None, lie, name);
    pair.liar.seal_from(0);
    let pool = pair.liar.new_pool(2, LEN as u64, false).expect("pool");
    let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
    pair.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    (pair, pool)
}

impl Pair {
    fn moves(&self, pool: u64) -> (u64, u32) {
        let buffer = (pool, self.liar.alloc(pool).expect("alloc"));
        self.liar.move_(self.ends.1, buffer, &[]).expect("move");
        self.settle();
        buffer
    }

    #[track_caller]
    fn took(&self, buffer: (u64, u32), byte: u8) {
        let state = self.honest.buffer_state(buffer);
        assert_eq!(state, Some(BufferState::ReadWrite));
        self.still(buffer, byte)
            .unwrap_or_else(|what| panic!("{what}"));
    }

    fn still(&self, buffer: (u64, u32), byte: u8) -> Result<(), String> {
        let bytes = self.honest.read(buffer, 1)?;
        match bytes.iter().find(|found| **found != byte) {
            None => Ok(()),
            Some(found) => Err(format!("a byte is {found}, not {byte}")),
        }
    }

    #[track_caller]
    fn refused(&self, what: &str) {
        let state = self.honest.channel_state(self.ends.0);
        assert_eq!(state, Some(ChannelState::Closed), "{what}");
    }
}

fn filled(byte: u8) -> OwnedFd {
    let fd = memfd::create("liar").expect("memfd");
    // SAFETY: a slice of that length.
    unsafe { memfd::append(&fd, [byte; LEN].as_ptr(), LEN) }.expect("fill");
    fd
}

fn sealed(byte: u8) -> OwnedFd {
    let fd = filled(byte);
    memfd::add_seals(&fd, ALL).expect("seal");
    fd
}

liar!(what_could_change_is_not_taken);
fn what_could_change_is_not_taken(stage: &Stage) {
    let with = |seals: Seals| {
        let fd = filled(1);
        memfd::add_seals(&fd, seals).expect("seals");
        fd
    };
    let of = |len: u64, backed: bool| {
        let fd = memfd::create("liar").expect("memfd");
        match backed {
            true => memfd::fallocate(&fd, len).expect("fallocate"),
            false => memfd::set_len(&fd, len).expect("size"),
        }
        memfd::add_seals(&fd, ALL).expect("seals");
        fd
    };
    let path_only = |fd: OwnedFd| {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).expect("open")
    };
    let executable = {
        let fd = rustix::fs::memfd_create("liar", rustix::fs::MemfdFlags::ALLOW_SEALING);
        let fd = fd.expect("memfd");
        memfd::fallocate(&fd, LEN as u64).expect("fallocate");
        memfd::add_seals(&fd, ALL).expect("seals");
        fd
    };
    let mut all = vec![
        ("no seals", with(Seals::empty())),
        ("it may be written", with(ALL - Seals::WRITE)),
        (
            "it may be written by who has it mapped",
            with((ALL - Seals::WRITE) | Seals::FUTURE_WRITE),
        ),
        ("it may shrink", with(ALL - Seals::SHRINK)),
        ("it may grow", with(ALL - Seals::GROW)),
        ("more may be sealed", with(ALL - Seals::SEAL)),
        ("it may be executed", executable),
        ("too short", of(LEN as u64 - 4096, true)),
        ("too long", of(2 * LEN as u64, true)),
        ("nothing behind it", of(LEN as u64, false)),
        ("a name without the file", path_only(sealed(1))),
    ];
    let file = std::fs::File::open("/proc/self/status").expect("a file");
    all.push(("not memory", file.into()));
    for (what, fd) in all {
        let (pair, pool) = showing(
            stage,
            &format!("sealed-{}", what.replace(' ', "-")),
            vec![fd],
        );
        let buffer = pair.moves(pool);
        pair.refused(what);
        assert_ne!(
            pair.honest.buffer_state(buffer),
            Some(BufferState::ReadWrite),
            "{what}"
        );
    }
    let (pair, pool) = showing(stage, "sealed-nothing", Vec::new());
    pair.moves(pool);
    pair.refused("nothing shown");
    // What is right is taken, by the same way.
    let (pair, pool) = showing(stage, "sealed-right", vec![sealed(1)]);
    let buffer = pair.moves(pool);
    pair.took(buffer, 1);
}

liar!(a_mapping_that_is_kept_costs_the_seal);
/// A mapping that could write it is kept: then the kernel refuses the seal, and the receiver what has none.
fn a_mapping_that_is_kept_costs_the_seal(stage: &Stage) {
    let fd = filled(1);
    let kept = Guarded::map(&fd, LEN, Access::ReadWrite).expect("map");
    let refused = memfd::add_seals(&fd, ALL).expect_err("mapped");
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
    let (pair, pool) = showing(stage, "kept", vec![fd]);
    pair.moves(pool);
    pair.refused("a mapping was kept");
    drop(kept);
}

liar!(descriptors_that_are_kept_change_nothing);
/// Descriptors that are kept, read-only mappings of them, and everything that the kernel offers to use them.
fn descriptors_that_are_kept_change_nothing(stage: &Stage) {
    let fd = sealed(6);
    let kept = fd.try_clone().expect("dup");
    let map = RoMapping::map(&kept, LEN);
    let (pair, pool) = showing(stage, "descriptors", vec![fd]);
    let buffer = pair.moves(pool);
    pair.took(buffer, 6);
    let target = Target {
        fd: Some(kept.as_raw_fd()),
        map: map
            .as_ref()
            .ok()
            .map(|map| (map.base().expose_provenance(), LEN)),
        ..Target::default()
    };
    let attempts = attack::run_all(&attack::all(), &target, &mut || pair.still(buffer, 6));
    assert!(
        attempts.iter().all(|attempt| attempt.harm.is_none()),
        "{}",
        attack::table(&attempts)
    );
}

liar!(a_receiver_changes_nothing_of_the_senders);
/// The receiver's side: it has the descriptor of a copy, and the owner goes on reading the same pages.
fn a_receiver_changes_nothing_of_the_senders(stage: &Stage) {
    let caught: Arc<Mutex<Option<Arc<OwnedFd>>>> = Arc::default();
    let there = Arc::clone(&caught);
    // It listens.
    let look = move |frame: &mut Frame| {
        if transfer(frame).is_some() {
            *there.lock().expect("caught") = frame.fds.first().cloned();
        }
    };
    let lying = Lying {
        hears: Arc::new(Mutex::new(look)),
        ..Lying::default()
    };
    let pair = stage.meet(Direction::Source, Trust::None, lying, "receiver");
    let (owner, end) = (&pair.honest, pair.ends.0);
    while owner.channel_state(end) != Some(ChannelState::Connected) {
        pair.settle();
    }
    owner.seal_from(0);
    let pool = owner.new_pool(1, LEN as u64);
    owner.assign(end, pool);
    pair.settle();
    assert_eq!(owner.assigned(), Some(Ok(())));
    let own = (pool, owner.alloc(pool));
    owner.fill(own, 3);
    owner.copy(end, own);
    pair.settle();
    let fd = caught.lock().expect("caught").take().expect("a descriptor");
    let received = pair.liar.address(own).expect("mapped");
    let target = Target {
        fd: Some(fd.as_raw_fd()),
        map: Some((received, LEN)),
        ..Target::default()
    };
    let mut check = || pair.still(own, 3);
    let attempts = attack::run_all(&attack::all(), &target, &mut check);
    assert!(
        attempts.iter().all(|attempt| attempt.harm.is_none()),
        "{}",
        attack::table(&attempts)
    );
}

liar!(what_is_shown_again_is_seen_again_and_no_more);
/// The same memfd for two buffers, and for one that was sent before: each receiver's view is its own, and what is in it is the
/// sender's to say anyhow.
fn what_is_shown_again_is_seen_again_and_no_more(stage: &Stage) {
    let fd = sealed(2);
    let again = fd.try_clone().expect("dup");
    let once_more = fd.try_clone().expect("dup");
    let (pair, pool) = showing(stage, "replayed", vec![fd, again, sealed(5), once_more]);
    let (one, two) = (pair.moves(pool), pair.moves(pool));
    pair.honest.fill(one, 9);
    pair.took(one, 9);
    pair.took(two, 2);
    // Swapped: another one, and then the first again.
    for byte in [5, 2] {
        pair.honest.pass(pair.ends.0, one);
        pair.settle();
        pair.liar.move_(pair.ends.1, one, &[]).expect("move");
        pair.settle();
        pair.took(one, byte);
    }
    pair.took(two, 2);
}

liar!(between_check_and_use_nothing_changes);
/// While the receiver checks and maps, and ever after, another thread tries whatever a descriptor allows.
fn between_check_and_use_nothing_changes(stage: &Stage) {
    for round in 0..100u8 {
        let fd = filled(round);
        let kept = fd.try_clone().expect("dup");
        // Half of the time the seal comes late: then it is not there, or it is, and holds from then on.
        let late = round % 2 == 1;
        if !late {
            memfd::add_seals(&fd, ALL).expect("seal");
        }
        let (pair, pool) = showing(stage, &format!("race-{round}"), vec![fd]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if late {
                    let _ = memfd::add_seals(&kept, ALL);
                }
                while !stop.load(Ordering::Relaxed) {
                    let _ = rustix::io::pwrite(&kept, &[0xee; 64], 0);
                    let _ = memfd::punch(&kept, 0, LEN as u64);
                    let _ = memfd::set_len(&kept, 0);
                    let _ = Guarded::map(&kept, LEN, Access::ReadWrite);
                }
            });
            let buffer = pair.moves(pool);
            let taken = pair.honest.buffer_state(buffer) == Some(BufferState::ReadWrite);
            assert!(taken || late, "what was sealed is taken");
            for _ in 0..20 {
                if taken {
                    pair.took(buffer, round);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

liar!(pages_that_io_uring_holds_are_not_sealed);
/// A buffer that io_uring may write into is registered with it, unmapped, and still not sealed.
fn pages_that_io_uring_holds_are_not_sealed(stage: &Stage) {
    let mut params = [0u32; 30];
    // SAFETY: 120 bytes of parameters, which the kernel fills in.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
    let Ok(ring) = i32::try_from(ring).map(|ring| (ring >= 0).then_some(ring)) else {
        unreachable!("a descriptor is a small number");
    };
    let Some(ring) = ring else {
        return tranship_testkit::skipped("this machine allows no io_uring");
    };
    // SAFETY: a descriptor that the kernel just gave.
    let ring = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(ring) };
    let fd = filled(1);
    let map = Guarded::map(&fd, LEN, Access::ReadWrite).expect("map");
    let piece = libc::iovec {
        iov_base: map.base().cast(),
        iov_len: LEN,
    };
    const REGISTER_BUFFERS: i64 = 0;
    // SAFETY: one piece, mapped as long as the call; the pages are held by the kernel from then on.
    let held = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            i64::from(ring.as_raw_fd()),
            REGISTER_BUFFERS,
            &raw const piece,
            1i64,
        )
    };
    if held != 0 {
        return tranship_testkit::skipped("no memory may be locked here");
    }
    drop(map);
    let refused = memfd::add_seals(&fd, ALL).expect_err("the ring could write it");
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
    let (pair, pool) = showing(stage, "uring", vec![fd.try_clone().expect("dup")]);
    pair.moves(pool);
    pair.refused("held by a ring");
    // With the ring gone the seal takes hold; the kernel lets go of the pages a little later.
    drop(ring);
    while memfd::add_seals(&fd, ALL).is_err() {
        std::thread::yield_now();
    }
    let (pair, pool) = showing(stage, "uring-gone", vec![fd]);
    let buffer = pair.moves(pool);
    pair.took(buffer, 1);
}

liar!(a_direct_read_ends_before_the_seal);
/// A read from a disk, without the page cache, is under way into pages that are unmapped and then to be sealed: the seal is
/// refused, or it comes when the read has ended.
fn a_direct_read_ends_before_the_seal(stage: &Stage) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let path = folder.path().join("bytes");
    std::fs::write(&path, vec![0xee; 1 << 20]).expect("write");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let Ok(disk) = rustix::fs::open(&path, flags, rustix::fs::Mode::empty()) else {
        return tranship_testkit::skipped("no O_DIRECT here");
    };
    let (mut refused, mut taken) = (0, 0);
    for round in 0..50 {
        let fd = filled(1);
        let map = Guarded::map(&fd, LEN, Access::ReadWrite).expect("map");
        let (at, disk) = (map.base().expose_provenance(), disk.as_fd());
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begun.store(true, Ordering::Release);
                let at = std::ptr::with_exposed_provenance_mut(at);
                // SAFETY: to be unmapped at any moment; then the kernel says EFAULT, or has the pages already.
                unsafe { libc::pread(disk.as_raw_fd(), at, LEN, 0) };
            });
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for _ in 0..round * 200 {
                std::hint::spin_loop();
            }
            drop(map);
            if memfd::add_seals(&fd, ALL).is_err() {
                refused += 1;
                return;
            }
            let mut before = vec![0; LEN];
            rustix::io::pread(&fd, &mut before, 0).expect("read");
            let (pair, pool) = showing(stage, &format!("direct-{round}"), vec![fd]);
            let buffer = pair.moves(pool);
            let bytes = pair.honest.read(buffer, 50).expect("the same bytes");
            assert_eq!(bytes, before, "round {round}");
            taken += 1;
        });
    }
    println!("{refused} seals refused, {taken} buffers taken");
}

liar!(sealed_buffers_are_of_none_and_are_not_shown_as_a_whole);
/// What only level `none` has is not believed of another; and a pool whose buffers come one by one comes with no memory.
fn sealed_buffers_are_of_none_and_are_not_shown_as_a_whole(stage: &Stage) {
    const ASSIGN: u8 = 2;
    const SHOW: u8 = 4;
    for trust in Trust::ALL {
        let lie = move |frame: &mut Frame| {
            if frame.bytes.first() == Some(&ASSIGN)
                && let Some(sealed) = frame.bytes.last_mut()
            {
                *sealed = 1;
            }
        };
        let pair = stage.pair(trust, lie, &format!("of-{trust:?}"));
        pair.liar.seal_from(u64::MAX);
        let pool = pair.liar.new_pool(1, LEN as u64, false).expect("pool");
        let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
        pair.settle();
        match trust {
            // The liar waits for memory to take snapshots of, and gets none.
            Trust::None => assert_ne!(asked.result(), Some(Ok(()))),
            _ => assert_eq!(asked.result(), Some(Err(Kind::PoolInvalid.into()))),
        }
        assert_eq!(pair.honest.pool(pool), None);
    }
    let extra = Arc::new(sealed(1));
    let lie = move |frame: &mut Frame| {
        if frame.bytes.first() == Some(&SHOW) {
            frame.fds = vec![Arc::clone(&extra)];
        }
    };
    let pair = stage.pair(Trust::None, lie, "shown");
    pair.liar.seal_from(0);
    let pool = pair.liar.new_pool(1, LEN as u64, false).expect("pool");
    let asked = pair.liar.assign(pair.ends.1, pool).expect("assign");
    pair.settle();
    assert_eq!(asked.result(), Some(Err(Kind::PoolMap.into())));
}
