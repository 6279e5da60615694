//! The fast path's promises: to and fro, one way, its operations one by one, and what they execute.

use anyhow::Result;

use super::claim::Bound::{AtLeast, AtMost};
use super::claim::Found;
use super::compare::{flatness, mean, middle, numbers, p99, place, rate, ratios};
use super::done::{Done, both};
use crate::case::Wait;
use crate::options::Common;
use crate::placement::Placement;
use crate::report::Row;
use crate::{instructions as steps, messages, systems, tail as single};

/// Sizes of messages.
const PAYLOADS: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
const BUFFERS: usize = 256;
/// Payloads below this are not promised to be as fast as raw when all bytes are touched.
const LARGE: usize = 4 << 10;

pub fn spin(common: &Common) -> Result<Done> {
    const WHAT: &str = "round trip, busy-polling";
    let systems = ["raw", "tranship", "iceoryx2", "pipe", "stream"];
    let outcome = messages::roundtrip(&common.of(&systems), &[Wait::Spin], &PAYLOADS, BUFFERS);
    let mut done = Done::of(outcome);
    let apart = [
        (Placement::Near, AtMost(1.35)),
        (Placement::Far, AtMost(1.15)),
    ];
    let over = |theirs: &'static str, of| move |rows: &[Row]| ratios(rows, "tranship", theirs, of);
    let quarter = both(AtMost(0.25));
    done.claim_apart(
        WHAT,
        "median over iceoryx2",
        "x",
        quarter,
        over("iceoryx2", middle),
    );
    done.claim_apart(WHAT, "median over raw", "x", apart, over("raw", middle));
    done.claim_apart(WHAT, "mean over raw", "x", apart, over("raw", mean));
    done.claim_apart(
        WHAT,
        "p99 over raw",
        "x",
        both(AtMost(2.0)),
        over("raw", p99),
    );
    Ok(done)
}

pub fn forwarded(common: &Common) -> Result<Done> {
    let systems = ["tranship", "tranship-forwarded"];
    let outcome = messages::roundtrip(&common.of(&systems), &[Wait::Spin], &PAYLOADS, BUFFERS);
    let mut done = Done::of(outcome);
    let found = |rows: &[Row]| ratios(rows, "tranship-forwarded", "tranship", middle);
    let (what, number) = ("round trip of forwarded buffers", "median over direct");
    done.claim_apart(what, number, "x", both(AtMost(1.3)), found);
    // The same system is in another part, too.
    for row in &mut done.rows {
        row.key.mode = "forwarded";
    }
    Ok(done)
}

pub fn block(common: &Common) -> Result<Done> {
    let systems = ["raw", "tranship", "iceoryx2", "pipe", "stream"];
    let outcome = messages::roundtrip(&common.of(&systems), &[Wait::Block], &PAYLOADS, BUFFERS);
    let mut done = Done::of(outcome);
    let found = ratios(&done.rows, "tranship", "raw", middle);
    let number = "median over a futex ping-pong";
    done.claim(
        "the waiter blocks, one core",
        number,
        "x",
        AtMost(1.15),
        found,
    );
    Ok(done)
}

pub fn stream(common: &Common) -> Result<Done> {
    const WHAT: &str = "stream, payload untouched";
    const TOUCHED: &str = "stream, all bytes written and read, 4 KiB and more";
    let systems = ["raw", "tranship", "iceoryx2", "pipe", "stream"];
    let outcome = messages::stream(&common.of(&systems), &[], &PAYLOADS, BUFFERS);
    let mut done = Done::of(outcome);
    let of = |mode: &'static str, theirs: &'static str| {
        move |rows: &[Row]| {
            let rows = rows.iter().filter(|row| row.key.mode == mode);
            let is_large = |row: &&Row| row.key.payload_bytes >= Some(LARGE) || mode != "touched";
            let rows: Vec<Row> = rows.filter(is_large).cloned().collect();
            ratios(&rows, "tranship", theirs, rate)
        }
    };
    let flat = |rows: &[Row]| {
        let rows = rows.iter().filter(|row| row.key.mode == "untouched");
        let rows: Vec<Row> = rows.cloned().collect();
        flatness(&rows, "tranship").into_iter().collect()
    };
    let (iceoryx2, raw) = (of("untouched", "iceoryx2"), of("untouched", "raw"));
    done.claim_apart(
        WHAT,
        "rate over iceoryx2",
        "x",
        both(AtLeast(5.0)),
        iceoryx2,
    );
    done.claim_apart(WHAT, "rate over raw", "x", both(AtLeast(0.4)), raw);
    done.claim_apart(
        WHAT,
        "slowest size over fastest",
        "x",
        both(AtMost(1.15)),
        flat,
    );
    let (iceoryx2, raw) = (of("touched", "iceoryx2"), of("touched", "raw"));
    done.claim_apart(TOUCHED, "rate over raw", "x", both(AtLeast(0.95)), raw);
    done.claim_apart(
        TOUCHED,
        "rate over iceoryx2",
        "x",
        both(AtLeast(1.0)),
        iceoryx2,
    );
    Ok(done)
}

/// Only near: what a line's way takes is not ours where the cores lie far.
pub fn tail(common: &Common) -> Result<Done> {
    let common = common.of(&["raw", "tranship"]);
    let outcome = single::bench(&common, &systems::with_tail(), &[4 << 10]);
    let mut done = Done::of(outcome);
    let p999 = |row: &Row| -> Found {
        let each = row.runs.iter().filter_map(|run| run.sampled.as_ref());
        let range = numbers(String::new(), each.map(|sampled| sampled.p999_ns / 1e3));
        Found {
            at: format!("{}, {}", row.key.op, place(row)),
            value: row.p999_ns / 1e3,
            ..range
        }
    };
    let near = |row: &&Row| row.key.placement == Some(Placement::Near.name());
    let ours = |row: &&Row| row.system == "tranship" && row.key.op != single::TIMER;
    let rows = done.rows.iter().filter(near).filter(ours);
    let found: Vec<Found> = rows.map(p999).collect();
    let (what, number) = ("one alloc, send, receive or release", "p99.9, cores near");
    done.claim(what, number, "us", AtMost(single::LIMIT_NS / 1e3), found);
    for claim in &mut done.claims {
        claim.missing = Some("the cores did not lie so meanwhile");
    }
    // Its key would be that of a round trip.
    for row in &mut done.rows {
        row.key.mode = "tail";
    }
    Ok(done)
}

pub fn instructions(common: &Common) -> Result<Done> {
    const WHAT: &str = "a message of 4 KiB, stepped through";
    let common = common.of(&["raw", "tranship"]);
    let outcome = steps::bench(&common, &systems::with_steps(), None)?;
    let mut done = Done::of(outcome);
    // What several operations execute together, if it was counted.
    let sum = |at: &str, ops: &[&str], fact: &str| -> Option<Found> {
        let rows = done.rows.iter().filter(|row| row.system == "tranship");
        let rows = rows.filter(|row| ops.contains(&&*row.key.op));
        let each: Vec<f64> = rows
            .filter_map(|row| row.facts.get(fact).copied())
            .collect();
        (!each.is_empty()).then(|| numbers(at.to_owned(), [each.iter().sum::<f64>()]))
    };
    let (writer, reader) = (["alloc", "send"], ["receive", "release"]);
    let sides = |fact| {
        let both = [("writer", writer), ("reader", reader)];
        let found = both.iter().filter_map(|(at, ops)| sum(at, ops, fact));
        found.collect::<Vec<_>>()
    };
    let (all, calls) = (sides("own_instructions"), sides("system_calls"));
    let receipt = sum("receive", &["receive"], "locked");
    // Collection is bounded by its time, elsewhere: how many it executes is only said.
    let collecting = sum("", &["send"], "locked_in_collection").map_or(0.0, |found| found.value);
    let at = format!("send, beside {collecting:.2} of collection");
    let publishing = sum(&at, &["send"], "locked_outside_collection");
    done.claim(WHAT, "instructions of a side", "", AtMost(300.0), all);
    done.claim(WHAT, "locked ones on receipt", "", AtMost(0.0), receipt);
    let number = "locked ones on publishing to a spinning peer";
    done.claim(WHAT, number, "", AtMost(0.0), publishing);
    done.claim(WHAT, "system calls of a side", "", AtMost(0.0), calls);
    for claim in &mut done.claims {
        claim.missing = Some("nothing may be traced here, or not this kind of processor");
    }
    Ok(done)
}
