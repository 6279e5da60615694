//! Quotas: refused memory is an error of the program, the books are right, and the memory of a peak goes back.

use crate::common;
use crate::common::{MIB, Stage, dog, resident};
use std::process::Stdio;
use tranship_core::Domain;
use tranship_core::error::{Refusal, RefusalCode};
use tranship_core::heap::{Heap, HeapOptions};
use tranship_testkit::{Control, Launch, child, skipped};

child!(
    /// Allocates pieces until it is refused, and again after it has freed them; reports both numbers.
    fn glutton(ctl: Control) -> Result<(), String> {
        while let Some(piece) = ctl.recv::<usize>().map_err(|e| e.to_string())? {
            let fill = || {
                let mut all: Vec<Vec<u8>> = Vec::with_capacity(1 << 20);
                loop {
                    let mut block: Vec<u8> = Vec::new();
                    if block.try_reserve_exact(piece).is_err() {
                        return all.len();
                    }
                    block.resize(piece, 0xa5);
                    all.push(block);
                }
            };
            ctl.send(&(fill(), fill())).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
);

/// Returns how many pieces of two sizes fit, twice each.
fn gorge(stage: &Stage, child: Launch, limit: u64) {
    let peer = stage.under(child).start().expect("start");
    // Small ones in slabs, pages, mappings.
    for piece in [1000usize, 100_000, 3_000_000] {
        let (first, second): (usize, usize) = peer.ask(&piece);
        let heap = stage.only_heap();
        assert!(heap.admitted_bytes <= limit, "{heap:?}");
        let bytes = (first * piece) as u64;
        assert!(bytes <= limit, "{first} pieces of {piece} in {limit}");
        // The first table of blocks takes 24 MiB of addresses, which are charged.
        assert!(
            bytes > limit / 2,
            "only {first} pieces of {piece} in {limit}"
        );
        let lost = first.abs_diff(second) * piece;
        assert!(
            lost as u64 <= limit / 20,
            "{first} pieces of {piece}, then {second}"
        );
    }
    drop(peer);
    stage.wait_until_empty();
}

#[test]
fn the_environment_limits_a_heap() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    gorge(
        &stage,
        glutton().env("TRANSHIP_HEAP_MAX", "128MiB"),
        128 * MIB,
    );
}

#[test]
fn the_manager_limits_a_heap() {
    let _dog = dog();
    let stage = Stage::new(100 * MIB);
    gorge(&stage, glutton(), 100 * MIB);
}

#[test]
fn without_a_manager_the_environment_still_limits() {
    let _dog = dog();
    let peer = glutton()
        .env("LD_PRELOAD", common::library())
        .env("TRANSHIP_SOCKET", "/no/such/manager.sock")
        .env("TRANSHIP_HEAP_MAX", "96MiB")
        .start()
        .expect("start");
    let (first, second): (usize, usize) = peer.ask(&1_000_000usize);
    assert!(
        (48..=96).contains(&first) && first.abs_diff(second) < 4,
        "{first}, {second}"
    );
}

child!(
    /// Keeps a number of MiB of small blocks, and on request allocates others for a moment. Answers with the resident
    /// memory.
    fn spiky(ctl: Control) -> Result<(), String> {
        fn blocks(mib: usize) -> Vec<Vec<u8>> {
            let sizes = [24usize, 100, 700, 5000, 60_000, 400_000, 3_000_000];
            let mut all = Vec::with_capacity(1 << 20);
            let mut bytes = 0;
            for size in sizes.into_iter().cycle() {
                if bytes >= mib << 20 {
                    return all;
                }
                // The same number of bytes for each size.
                for _ in 0..(3_000_000 / size).max(1) {
                    all.push(vec![7; size]);
                    bytes += size;
                }
            }
            all
        }
        let mut kept = Vec::new();
        while let Some((keep, spike)) = ctl.recv::<(usize, usize)>().map_err(|e| e.to_string())? {
            kept.push(blocks(keep));
            let peak = blocks(spike);
            let high = resident();
            drop(peak);
            ctl.send(&(high, resident())).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
);

#[test]
fn memory_goes_back_after_a_spike_while_it_is_freed() {
    let _dog = dog();
    let stage = Stage::new(8192 * MIB);
    let peer = stage.under(spiky()).start().expect("start");
    let (_, before): (u64, u64) = peer.ask(&(60usize, 0usize));
    let charged = stage.only_heap().admitted_bytes;
    let (high, after): (u64, u64) = peer.ask(&(0usize, 300usize));
    assert!(high > before + 280 * MIB, "there was a spike: {high}");
    let left = stage.only_heap().admitted_bytes;
    // An eighth of the memory in use may stay for the next allocation, besides tables and caches.
    let slack = before / 8 + 24 * MIB;
    assert!(after < before + slack, "{before} before, {after} after");
    // Two steps of admitted memory, each an eighth, stay too.
    assert!(
        left < charged + slack + before / 4,
        "{charged} charged before, {left} after"
    );
    assert!(left >= 60 * MIB, "{left} charged, and 60 MiB are kept");
}

child!(
    /// Keeps 160 MiB, and the memory admitted for a further amount that it had for a moment; then does a little on each
    /// request.
    fn idle(ctl: Control) -> Result<(), String> {
        let blocks = |mib: usize| vec![vec![7u8; 4 << 20]; mib / 4];
        let kept = blocks(160);
        drop(blocks(32));
        while let Some(round) = ctl.recv::<usize>().map_err(|e| e.to_string())? {
            drop(blocks(4));
            ctl.send(&round).map_err(|e| e.to_string())?;
        }
        drop(kept);
        Ok(())
    }
);

#[test]
fn what_one_heap_does_not_need_another_gets() {
    let _dog = dog();
    let (total, spare) = (300 * MIB, 10 * MIB);
    let stage = Stage::new(total);
    let peer = stage.under(idle()).start().expect("start");
    let _: usize = peer.ask(&0usize);
    let had = stage.only_heap().admitted_bytes;
    let domain = Domain::builder().socket(&stage.path).connect();
    let domain = domain.expect("connect");
    let heap = Heap::create(&domain, HeapOptions::new(total)).expect("heap");
    let wanted = total - had + spare;
    for round in 1.. {
        // There is not that much: the manager asks domains with more than their share.
        match heap.admit(wanted, wanted) {
            Ok(_) => break,
            // The total refuses, not the heap's own quota.
            Err(error) => match error.find::<Refusal>() {
                Some(refusal) => assert_eq!(refusal.code, RefusalCode::Total),
                None => panic!("{error}"),
            },
        }
        let _: usize = peer.ask(&round);
    }
    let (heaps, granted) = stage.books();
    assert!(granted <= total, "{heaps:?}");
}

const HUNGRY: &str = "
import sys
ok = bytearray(50 << 20)
try:
    bytearray(500 << 20)
    sys.exit('500 MiB in 128 MiB')
except MemoryError:
    pass
pieces = []
try:
    while True:
        pieces.append(bytearray(1 << 20))
except MemoryError:
    n = len(pieces)
    pieces = None
assert 20 < n < 80, n
ok = bytearray(60 << 20)
print('alive')
";

#[test]
fn python_gets_a_memory_error() {
    let _dog = dog();
    let stage = Stage::new(4096 * MIB);
    let mut python = stage.command("python3");
    python
        .args(["-c", HUNGRY])
        .env("TRANSHIP_HEAP_MAX", "128MiB");
    let output = match python.stderr(Stdio::inherit()).output() {
        Ok(output) => output,
        Err(error) => return skipped(format!("no python3: {error}")),
    };
    assert!(output.status.success());
    assert_eq!(output.stdout, b"alive\n");
    stage.wait_until_empty();
}
