//! The kernel can send protected memory without filling page tables first. Memory that was never touched gets no pages
//! by that.

use std::os::unix::fs::MetadataExt;
use tranship_testkit::Watchdog;
use tranship_zcopy::Arena;

const PAGE: usize = 4096;

/// Bytes that the page tables have of the mappings from which arenas are sent.
fn shown() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("proc");
    let (mut is_one, mut bytes) = (false, 0);
    for line in maps.lines() {
        // The first line of a mapping; the others begin with a key.
        if !line
            .split_whitespace()
            .next()
            .is_some_and(|word| word.ends_with(':'))
        {
            is_one = line.contains(" r--s ") && line.contains("memfd:tranship-zcopy ");
        }
        if let Some(rest) = line.strip_prefix("Rss:").filter(|_| is_one) {
            let kib = rest.trim().trim_end_matches("kB").trim();
            bytes += kib.parse::<usize>().expect("a number") * 1024;
        }
    }
    bytes
}

fn memory(arena: &Arena) -> u64 {
    let file = arena.descriptor().try_clone_to_owned();
    let file = std::fs::File::from(file.expect("a descriptor"));
    file.metadata().expect("fstat").blocks() * 512
}

/// One test, as all arenas of a process are counted.
#[test]
fn what_is_protected_is_shown_and_what_was_never_touched_is_not() {
    let _dog = Watchdog::new();
    let raw = Arena::new().expect("an arena");
    for _ in 0..64 {
        raw.alloc_raw(PAGE).expect("memory");
    }
    raw.protect();
    assert_eq!((memory(&raw), shown()), (0, 0));

    let arena = Arena::new().expect("an arena");
    let value = |len: usize| arena.copy(&vec![7; len]).expect("a value");
    // Four pageblocks, and pages that are no whole ones.
    let mut values: Vec<_> = (0..64).map(|_| value(PAGE)).collect();
    values.extend((0..4).map(|_| value(18 * PAGE)));
    // A pageblock of values that are always copied.
    values.extend((0..64).map(|_| value(1000)));
    let (small, all) = (16 * PAGE, (64 + 4 * 18) * PAGE);
    assert_eq!((memory(&arena), shown()), ((all + small) as u64, 0));
    arena.protect();
    assert!(values.iter().all(|value| value.is_protected()));
    assert_eq!((memory(&arena), shown()), ((all + small) as u64, all));
}
