//! The part of the heap's address space that can be written: little more than is in use, whatever the limit. This
//! matters for programs that lock or walk their memory, and for machines and limits that count writable memory.

use crate::common::{MIB, dog, library, resident};
use std::sync::atomic::{AtomicU8, Ordering};
use tranship_testkit::{Control, Launch, child, skipped};

/// Returns a number of kilobytes of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let all = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| {
        line.trim_matches([':', ' ', '\t', 'k', 'B'])
            .parse::<u64>()
            .ok()
    });
    number.expect("a number") << 10
}

/// Returns the private mappings that can be written.
fn writable() -> Vec<std::ops::Range<usize>> {
    let all = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        rest.starts_with("rw-p").then_some(hex(from)?..hex(to)?)
    };
    all.lines().filter_map(range).collect()
}

fn writable_bytes() -> u64 {
    writable().iter().map(|range| range.len() as u64).sum()
}

/// Returns the inaccessible private memory that a debugger would write into a dump, bytes.
fn dumped_in_vain() -> u64 {
    let all = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let (mut bytes, mut kib) = (0, None);
    for line in all.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Size:"), Some(size)) if kib == Some(0) => kib = size.parse::<u64>().ok(),
            (Some("VmFlags:"), _) => {
                let dumped = !line.contains(" dd");
                bytes += kib.filter(|_| dumped).unwrap_or(0) << 10;
                kib = None;
            }
            (Some(_), Some("---p")) => kib = Some(0),
            _ => {}
        }
    }
    bytes
}

/// Rewrites one byte of each page of all writable memory with its value.
fn walk() {
    for range in writable() {
        for page in range.step_by(4096) {
            let byte = std::ptr::with_exposed_provenance_mut::<u8>(page);
            // SAFETY: private memory of this process's that can be written; atomic, and nothing changes.
            unsafe { AtomicU8::from_ptr(byte) }.fetch_or(0, Ordering::Relaxed);
        }
    }
}

/// Blocks of all kinds.
fn blocks(bytes: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut have = 0;
    for size in [700usize, 5000, 60_000, 400_000, 3_000_000]
        .into_iter()
        .cycle()
    {
        if have >= bytes {
            return all;
        }
        for _ in 0..(3_000_000 / size).max(1) {
            all.push(vec![7; size]);
            have += size as u64;
        }
    }
    all
}

/// Runs a child with a limit of its heap, without one, or without the allocator.
fn with(child: Launch, max: Option<&str>) -> [Launch; 2] {
    let child = child.env("TRANSHIP_SOCKET", "/no/such/manager.sock");
    let under = child.clone().env("LD_PRELOAD", library());
    let under = match max {
        Some(max) => under.env("TRANSHIP_HEAP_MAX", max),
        None => under,
    };
    [child, under]
}

child!(
    /// Sends the bytes that it can write at its start, its data size, and its address space; then, on request, the
    /// resident memory after it has written everything that it can.
    fn walker(ctl: Control) -> Result<(), String> {
        ctl.send(&(writable_bytes(), status("VmData"), status("VmSize")))
            .map_err(|e| e.to_string())?;
        let _: Option<u8> = ctl.recv().map_err(|e| e.to_string())?;
        walk();
        let kept = blocks(10 * MIB);
        ctl.send(&resident()).map_err(|e| e.to_string())?;
        assert!(kept.iter().all(|block| block.iter().all(|b| *b == 7)));
        Ok(())
    }
);

#[test]
fn little_can_be_written_and_who_writes_all_of_it_fills_little() {
    let _dog = dog();
    // The limits of writable bytes, for the tables and the heap's first 2 MiB; and of addresses.
    for (max, addresses) in [
        (Some("32MiB"), 512 * MIB),
        (Some("4GiB"), 32 << 30),
        (None, 128 << 30),
    ] {
        let [plain, under] = with(walker(), max).map(|child| child.start().expect("start"));
        let before: (u64, u64, u64) = plain.expect();
        let with: (u64, u64, u64) = under.expect();
        let more = 16 * MIB;
        assert!(
            with.0 < before.0 + more,
            "{max:?}: {with:?}, without {before:?}"
        );
        assert!(
            with.1 < before.1 + more,
            "{max:?}: {with:?}, without {before:?}"
        );
        assert!(
            with.2 < before.2 + addresses,
            "{max:?}: {with:?}, without {before:?}"
        );
        let (before, with): (u64, u64) = (plain.ask(&0u8), under.ask(&0u8));
        assert!(
            with < before + more,
            "{max:?}: {with} resident, without {before}"
        );
    }
}

child!(
    /// Sends the bytes that it can write before, with, and after a peak.
    fn spike(ctl: Control) -> Result<(), String> {
        let before = writable_bytes();
        let peak = blocks(200 * MIB);
        let high = writable_bytes();
        drop(peak);
        // SAFETY: gives back free memory.
        unsafe { libc::malloc_trim(0) };
        assert_eq!(dumped_in_vain() >> 30, 0);
        ctl.send(&(before, high, writable_bytes()))
            .map_err(|e| e.to_string())
    }
);

#[test]
fn what_was_given_back_cannot_be_written() {
    let _dog = dog();
    let [_, under] = with(spike(), None);
    let peer = under.start().expect("start");
    let (before, high, after): (u64, u64, u64) = peer.expect();
    // Sizes are rounded up, and tables of a tenth are beside them.
    assert!(before < 32 * MIB && high < 300 * MIB, "{before}, {high}");
    assert!(after < before + 16 * MIB, "{before}, {high}, {after}");
}

child!(
    /// Locks all its memory, if that is at most a given size, and allocates. Sends whether it could, and the resident
    /// memory before, with, and after its blocks.
    fn locker(ctl: Control) -> Result<(), String> {
        let most = ctl
            .recv::<u64>()
            .map_err(|e| e.to_string())?
            .ok_or("no task")?;
        if writable_bytes() > most {
            return ctl.send(&(false, [0u64; 3])).map_err(|e| e.to_string());
        }
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: plain system calls.
        let locked = unsafe {
            // As a user that may lock so much, if possible: root may lock everything, and not every user may set a
            // limit.
            if libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) == 0 && libc::geteuid() == 0
            {
                assert_eq!(libc::seteuid(65534), 0);
            }
            libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) == 0
        };
        let mut figures = [resident(); 3];
        let kept = blocks(24 * MIB);
        figures[1] = resident();
        assert!(kept.iter().all(|block| block.iter().all(|b| *b == 7)));
        drop(kept);
        // SAFETY: as above.
        unsafe { libc::malloc_trim(0) };
        figures[2] = resident();
        ctl.send(&(locked, figures)).map_err(|e| e.to_string())
    }
);

#[test]
fn a_program_with_a_limit_locks_its_memory_and_gives_it_back() {
    let _dog = dog();
    let most = 512 * MIB;
    let [plain, under] = with(locker(), Some("40MiB")).map(|child| {
        let peer = child.start().expect("start");
        peer.ask::<(bool, [u64; 3])>(&most)
    });
    if !plain.0 {
        return skipped(format!("nobody may lock {most} bytes here"));
    }
    let (locked, [before, with, after]) = under;
    assert!(locked, "{most} bytes are not enough");
    assert!(before < 64 * MIB, "{before}");
    assert!(with < before + 48 * MIB, "{before}, then {with}");
    assert!(after < before + 12 * MIB, "{before}, {with}, then {after}");
}

child!(
    /// Reports how much of 1 GiB it gets with a limit on data above its present size, in blocks of 1000 and of 100,000
    /// bytes, twice.
    fn bounded(ctl: Control) -> Result<(), String> {
        let more = ctl
            .recv::<u64>()
            .map_err(|e| e.to_string())?
            .ok_or("no task")?;
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: plain system calls.
        let set = unsafe {
            libc::getrlimit(libc::RLIMIT_DATA, &raw mut limit);
            limit.rlim_cur = status("VmData") + more;
            libc::setrlimit(libc::RLIMIT_DATA, &raw const limit)
        };
        assert_eq!(set, 0);
        let gorge = |size: usize| {
            let mut all = Vec::new();
            while all.len() * size < 1 << 30 && all.try_reserve(1).is_ok() {
                let mut block: Vec<u8> = Vec::new();
                if block.try_reserve_exact(size).is_err() {
                    break;
                }
                block.resize(size, 7);
                all.push(block);
            }
            let bytes = (all.len() * size) as u64;
            drop(all);
            // SAFETY: gives back free memory.
            unsafe { libc::malloc_trim(0) };
            bytes
        };
        let bytes = [1000, 100_000, 1000, 100_000].map(gorge);
        ctl.send(&bytes).map_err(|e| e.to_string())
    }
);

/// RLIMIT_DATA counts the same as strict overcommit: private memory that can be written, used or not.
#[test]
fn a_limit_of_what_can_be_written_refuses_memory_and_ends_nobody() {
    let _dog = dog();
    let [_, under] = with(bounded(), None);
    let peer = under.start().expect("start");
    let more = 64 * MIB;
    let bytes: [u64; 4] = peer.ask(&more);
    assert!(
        bytes.iter().all(|bytes| (more / 2..=more).contains(bytes)),
        "{bytes:?} of {more}"
    );
}
