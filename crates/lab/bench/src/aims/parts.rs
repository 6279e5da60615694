//! The rows of the design's table: what is measured for each, and what must hold.

use anyhow::Result;

use super::claim::{Bound, Found};
use super::compare::{mean, middle, numbers, p99, place, rate, ratios, two};
use super::done::Done;
use super::{fast, growth};
use crate::case::{Case, Pattern, Touch, Wait};
use crate::channels::{Level, carriers};
use crate::options::Common;
use crate::plan::Outcome;
use crate::report::bytes;
use crate::systems::{self, allocators};
use crate::{alloc, collect, mbuf, messages, siege, spike, zcopy};
use Bound::{AtLeast, AtMost};

/// One part.
#[derive(Debug)]
pub struct Part {
    pub name: &'static str,
    pub measure: fn(&Common) -> Result<Done>,
}

/// In this order: who leaves threads in this process comes after everybody who forks it.
pub const ALL: [Part; 15] = [
    part("spin", fast::spin),
    part("tail", fast::tail),
    part("instructions", fast::instructions),
    part("block", fast::block),
    part("forwarded", fast::forwarded),
    part("stream", fast::stream),
    part("move", moved),
    part("alloc", allocs),
    part("collect", collecting),
    part("growth", grown),
    part("answer", answered),
    part("zc-send", cold_gets),
    part("spike", spiked),
    part("mbuf", mbufs),
    part("kills", kills),
];

const fn part(name: &'static str, measure: fn(&Common) -> Result<Done>) -> Part {
    Part { name, measure }
}

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|part| part.name).collect()
}

const BUFFERS: usize = 256;
/// Loads under a spike of so many packets.
const STEADY: [usize; 2] = [16384, 1024];
const PACKETS: usize = 65536;
/// Attacking processes.
const HOSTILE: usize = 8;

const LEVELS: [(&str, &str); 2] = [
    ("full", "tranship-moved-full"),
    ("producer", "tranship-moved-producer"),
];

/// Moves next to sends of the same size, in turn; `none` and the socket for the README.
fn moved(common: &Common) -> Result<Done> {
    let mut outcome = Outcome::default();
    for payload in [4 << 10, 64 << 10, 1 << 20] {
        let case = Case {
            pattern: Pattern::RoundTrip,
            wait: Wait::Spin,
            touch: Touch::Word,
            payload,
            buffers: BUFFERS,
            loans: 1,
            cores: common.cores(),
            helper: true,
            budget: common.budget(),
        };
        let mut cells = messages::cells(&common.of(&["tranship"]), &case);
        for (level, system) in LEVELS {
            let mut moves = messages::cells(&common.of(&[system]), &case);
            moves
                .iter_mut()
                .for_each(|cell| cell.key.trust = Some(level));
            cells.extend(moves);
        }
        // Not to be taken for those of another part.
        cells.iter_mut().for_each(|cell| cell.key.mode = "send");
        let others = common.of(&["shm", "stream"]);
        cells.extend(carriers::touched(&others, &[Level::None], payload));
        outcome.group(common.runs(), cells);
    }
    let mut done = Done::of(outcome);
    for (level, number) in [
        ("full", "`full` over `send`"),
        ("producer", "`producer` over `send`"),
    ] {
        let moved = done.rows.iter().filter(|row| row.key.trust == Some(level));
        let found: Vec<Found> = moved
            .filter_map(|row| {
                let sent = done.rows.iter().find(|other| {
                    other.system == "tranship" && other.key.payload_bytes == row.key.payload_bytes
                })?;
                Some(two(place(row), [row, sent], middle, |a, b| a / b))
            })
            .collect();
        done.claim("`move_buffer` and back", number, "x", AtMost(1.15), found);
    }
    Ok(done)
}

fn allocs(common: &Common) -> Result<Done> {
    const PEERS: [&str; 4] = ["glibc", "jemalloc", "tcmalloc", "mimalloc"];
    let systems = [&["tranship"][..], &PEERS].concat();
    let outcome = alloc::bench(&common.of(&systems), &allocators::all(), &[]);
    let mut done = Done::of(outcome);
    let ours = done.rows.iter().filter(|row| row.system == "tranship");
    let found: Vec<(usize, Found)> = ours
        .filter_map(|row| {
            let peers = done
                .rows
                .iter()
                .filter(|other| PEERS.contains(&&*other.system) && other.key.is_like(&row.key));
            let fastest = peers.min_by(|a, b| a.median_ns.total_cmp(&b.median_ns))?;
            let at = format!("{}, {}", place(row), fastest.system);
            let found = two(at, [row, fastest], middle, |a, b| a / b);
            Some((row.key.payload_bytes?, found))
        })
        .collect();
    let (small, large): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(bytes, _)| *bytes <= 1 << 10);
    for (number, found) in [
        ("64 B to 1 KiB, over the fastest allocator", small),
        ("4 KiB to 1 MiB, over the fastest allocator", large),
    ] {
        let found = found.into_iter().map(|(_, found)| found);
        done.claim("alloc and free, cached", number, "x", AtMost(1.0), found);
    }
    Ok(done)
}

fn collecting(common: &Common) -> Result<Done> {
    const WHAT: &str = "alloc including collection, 1 receiver";
    let common = &common.of(&["tranship"]);
    let outcome = collect::of(common, &systems::with_collect(), &[1], &[256, 1024, 4096]);
    let mut done = Done::of(outcome);
    let of = |op: &'static str| done.rows.iter().filter(move |row| row.key.op == op);
    let pairs = of(collect::COLLECTING).zip(of(collect::CACHED));
    let more: Vec<_> = pairs
        .map(|(with, without)| two(place(with), [with, without], mean, |a, b| a - b))
        .collect();
    let single = of(collect::SLOWEST)
        .map(|row| numbers(place(row), row.runs.iter().map(|run| middle(run) / 1e3)));
    let single: Vec<_> = single.collect();
    done.claim(WHAT, "mean, more than cached", "ns", AtMost(15.0), more);
    done.claim(WHAT, "slowest call of a turn", "us", AtMost(1.0), single);
    Ok(done)
}

fn grown(common: &Common) -> Result<Done> {
    let mut done = Done::of(growth::bench(common));
    let rows = done
        .rows
        .iter()
        .filter(|row| row.key.op == growth::EXCHANGES);
    let found: Vec<_> = rows
        .map(|row| {
            let at = format!("{} chunks", growth::CHUNKS);
            numbers(at, row.runs.iter().map(middle))
        })
        .collect();
    let (what, number) = ("growing a pool by n chunks", "messages to the manager");
    done.claim(what, number, "", AtMost(1.0), found);
    Ok(done)
}

fn answered(common: &Common) -> Result<Done> {
    let modes = ["clients".to_owned()];
    let mut done = Done::of(siege::bench(common, HOSTILE, &modes)?);
    // The first is what a real machine does, the others stand beside it.
    let modes = done.rows.iter().map(|row| row.key.mode);
    let real = modes.clone().find(|mode| mode.starts_with("besieged"));
    let rows = done.rows.iter().filter(|row| Some(row.key.mode) == real);
    let found: Vec<_> = rows
        .filter(|row| siege::PROMISED.contains(&&*row.key.op))
        .map(|row| {
            numbers(
                row.key.op.clone(),
                row.runs.iter().map(|run| p99(run) / 1e6),
            )
        })
        .collect();
    let what = "manager's answer beside 8 hostile clients";
    done.claim(what, "p99", "ms", AtMost(10.0), found);
    for claim in &mut done.claims {
        claim.missing = Some("needs root, to be four users");
    }
    Ok(done)
}

fn cold_gets(common: &Common) -> Result<Done> {
    const WHAT: &str = "GET, one server core, client drops";
    let gains = [
        (4 << 10, 1.13),
        (16 << 10, 1.32),
        (64 << 10, 1.72),
        (256 << 10, 2.14),
    ];
    let payloads = gains.map(|(payload, _)| payload);
    let grid = zcopy::Grid {
        sink: "loopback",
        modes: &[],
        clients: &["drop".to_owned()],
        payloads: &payloads,
        depths: &[1, 8],
        set: 512 << 20,
    };
    let runs = common.at_most(common.runs());
    let mut done = Done::of(zcopy::bench(&runs.of(&["tranship", "batched"]), &grid));
    let cold = done.mode("cold");
    for (payload, gain) in gains {
        let rows = cold
            .iter()
            .filter(|row| row.key.payload_bytes == Some(payload) && row.key.depth == Some(1));
        let rows: Vec<_> = rows.cloned().collect();
        if rows.is_empty() && common.is_quick() {
            continue; // left out
        }
        let found = ratios(&rows, "tranship", "batched", rate);
        let number = format!("cold, {}, rate over batched copies", bytes(payload));
        done.claim(WHAT, number, "x", AtLeast(gain), found);
    }
    let all = ratios(&done.rows, "tranship", "batched", rate);
    done.claim(WHAT, "any set and size, the same", "x", AtLeast(0.97), all);
    Ok(done)
}

fn spiked(common: &Common) -> Result<Done> {
    let steady = match common.is_quick() {
        true => &STEADY[1..],
        false => &STEADY,
    };
    let runs = common.at_most(common.runs());
    let (series, failures) = spike::measure(&runs.of(&["tranship"]), PACKETS, steady);
    let found = series.iter().map(|series| {
        let at = format!("{} packets steadily", series.steady);
        numbers(at, series.after_2s_ratios.iter().copied())
    });
    let mut done = Done {
        failures,
        ..Done::default()
    };
    let number = "2 s later, over before";
    done.claim("memory after a spike", number, "x", AtMost(1.05), found);
    Ok(done)
}

fn mbufs(common: &Common) -> Result<Done> {
    let systems = ["tranship", "dpdk", "dpdk-mempool"];
    let mut done = Done::of(mbuf::pairs(&common.of(&systems))?);
    let found = ratios(&done.mode("packet"), "tranship", "dpdk", middle);
    let number = "over DPDK's alloc and free";
    done.claim("`m_getcl` and `m_freem`", number, "x", AtMost(0.9), found);
    Ok(done)
}

/// For the sake of completeness: that takes hours.
fn kills(_: &Common) -> Result<Done> {
    let mut done = Done::default();
    let number = "leaked, reused early, or claimed for less than all";
    done.claim("10 000 kills of real programs", number, "", AtMost(0.0), []);
    for claim in &mut done.claims {
        claim.missing = Some("`make torture` does");
    }
    Ok(done)
}
