//! What it costs to split the keg of mbufs into several secondary zones: each has caches of its own, and what one has
//! cached the others cannot use.

use anyhow::Result;
use tranship_mbuf::{Chain, Limits, MbufOptions};

use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Facts, Measured};

pub const SYSTEMS: [&str; 0] = [];

const ZONES: [usize; 5] = [0, 1, 2, 4, 8];
/// Mbufs of each wave; each wave goes to another zone.
const WAVE: usize = 4000;

pub fn bench(common: &Common, outcome: &mut Outcome) -> Result<()> {
    if !common.wants("tranship") {
        return Ok(());
    }
    for zones in ZONES {
        let cell = Cell {
            system: "tranship",
            key: Key {
                mode: "zones",
                buffers: Some(zones + 1),
                ..Key::default()
            },
            measure: Box::new(move |_| waves(zones)),
        };
        outcome.group(common.runs().min(3), vec![cell]);
    }
    Ok(())
}

/// Waves of mbufs, each out of the next zone over the keg, while never more than one wave is out.
fn waves(secondary: usize) -> Result<Vec<Measured>> {
    let mbufs = MbufOptions::new().limits(Limits::NONE).build()?;
    let zones: Vec<_> = (0..secondary)
        .map(|id| mbufs.tagged_zone(1, u16::try_from(id).unwrap_or(0), 8))
        .collect();
    let (mut held, mut peak): (Vec<Chain>, u64) = (Vec::with_capacity(WAVE), 0);
    let begun = clock::ticks();
    for wave in 0..4 * (secondary + 1) {
        for _ in 0..WAVE {
            held.push(match wave % (secondary + 1) {
                0 => mbufs.gethdr()?,
                zone => zones[zone - 1].gethdr()?,
            });
        }
        peak = peak.max(mbufs.stats().memory_bytes);
        held.clear();
    }
    let count = 4 * (secondary + 1) * WAVE;
    let ns = clock::ns(clock::ticks() - begun) / count as f64;
    let stats = mbufs.stats();
    let cached = stats.mbufs.cached + stats.more.iter().map(|zone| zone.cached).sum::<u64>();
    let needed = (WAVE * 256) as f64;
    let facts = Facts::from([
        ("peak_bytes", peak as f64),
        (
            "lost_percent",
            (peak as f64 - needed).max(0.0) * 100.0 / needed,
        ),
        ("cached_buffers", cached as f64),
    ]);
    Ok(vec![Measured {
        op: String::new(),
        median_ns: ns,
        p99_ns: ns,
        per_second: 1e9 / ns,
        facts,
        sampled: None,
    }])
}
