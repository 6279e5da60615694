//! Packets of real sizes: how many come out of the packet cache, and how much memory they take beyond their bytes, against
//! buffers of exact size.
//!
//! What an exact-size scheme takes is counted, not run: one allocation for the buffer (head room, the bytes, the shared
//! part at its end, rounded up to a size class) and one for what describes it.

use std::collections::VecDeque;

use anyhow::Result;
use tranship_mbuf::{Chain, Error, Limits, MCLBYTES, MHLEN, MbufOptions, Mbufs};

use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Facts, Measured};

pub const SYSTEMS: [&str; 1] = ["exact-size"];

/// Packets that are in flight at once.
const IN_FLIGHT: usize = 256;
const PACKETS: usize = 100_000;

/// Sizes in bytes and how many of a thousand packets have them.
struct Sizes {
    name: &'static str,
    parts: &'static [(usize, usize)],
}

const TRACES: [Sizes; 2] = [
    // Acknowledgements and full frames, as on a gateway.
    Sizes {
        name: "bimodal",
        parts: &[(52, 470), (120, 80), (576, 50), (1500, 400)],
    },
    // 7:4:1.
    Sizes {
        name: "imix",
        parts: &[(40, 583), (576, 334), (1500, 83)],
    },
];

impl Sizes {
    /// The same sequence every time.
    fn sequence(&self) -> impl Iterator<Item = usize> + '_ {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        (0..PACKETS).map(move |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut at = usize::try_from(state % 1000).unwrap_or(0);
            for (size, share) in self.parts {
                if at < *share {
                    return *size;
                }
                at -= share;
            }
            self.parts[0].0
        })
    }
}

pub fn bench(common: &Common, outcome: &mut Outcome) {
    for trace in &TRACES {
        let mut cells: Vec<Cell<'_>> = Vec::new();
        if common.wants("tranship") {
            cells.push(Cell {
                system: "tranship",
                key: key(trace),
                measure: Box::new(|_| ours(trace)),
            });
        }
        if common.wants("exact-size") {
            cells.push(Cell {
                system: "exact-size",
                key: key(trace),
                measure: Box::new(|_| Ok(vec![counted(trace)])),
            });
        }
        outcome.group(common.runs().min(5), cells);
    }
}

fn key(trace: &Sizes) -> Key {
    Key {
        mode: trace.name,
        buffers: Some(IN_FLIGHT),
        ..Key::default()
    }
}

fn packet(mbufs: &Mbufs, size: usize) -> Result<Chain, Error> {
    if size <= MHLEN {
        Ok(mbufs.gethdr()?)
    } else if size <= MCLBYTES {
        Ok(mbufs.getcl()?)
    } else {
        mbufs.getm2(size)
    }
}

fn ours(trace: &Sizes) -> Result<Vec<Measured>> {
    let mbufs = MbufOptions::new().limits(Limits::NONE).build()?;
    let mut flight = VecDeque::with_capacity(IN_FLIGHT + 1);
    let (mut bytes, mut memory) = (0, 0);
    let begun = clock::ticks();
    for size in trace.sequence() {
        let chain = packet(&mbufs, size)?;
        bytes += size;
        let clusters = chain.iter().filter(|mbuf| mbuf.storage().is_some());
        memory += 256 * chain.count() + clusters.map(|mbuf| mbuf.size()).sum::<usize>();
        flight.push_back(chain);
        if flight.len() > IN_FLIGHT {
            drop(flight.pop_front());
        }
    }
    let ns = clock::ns(clock::ticks() - begun);
    let stats = mbufs.stats();
    let percent = |zone: &tranship_mbuf::ZoneUse| zone.hits as f64 * 100.0 / zone.allocs as f64;
    let facts = Facts::from([
        (
            "wasted_bytes_per_packet".into(),
            (memory - bytes) as f64 / PACKETS as f64,
        ),
        ("packet_cache_hit_percent".into(), percent(&stats.packets)),
        ("mbuf_cache_hit_percent".into(), percent(&stats.mbufs)),
    ]);
    Ok(vec![Measured {
        facts,
        ..Measured::rate(PACKETS as f64 * 1e9 / ns)
    }])
}

/// The exact-size scheme, by the sums.
fn counted(trace: &Sizes) -> Measured {
    const HEAD_ROOM: usize = 64;
    const SHARED_PART: usize = 320;
    const DESCRIPTION: usize = 256;
    let mut wasted = 0;
    for size in trace.sequence() {
        let buffer = (size + HEAD_ROOM).next_multiple_of(64) + SHARED_PART;
        wasted += DESCRIPTION + class(buffer) - size;
    }
    let wasted = wasted as f64 / PACKETS as f64;
    Measured {
        facts: Facts::from([("wasted_bytes_per_packet".into(), wasted)]),
        ..Measured::default()
    }
}

/// Size classes of a general-purpose slab allocator: powers of two and two between the small ones.
fn class(bytes: usize) -> usize {
    match bytes {
        0..=64 => 64,
        65..=96 => 96,
        97..=128 => 128,
        129..=192 => 192,
        _ => bytes.next_power_of_two(),
    }
}
