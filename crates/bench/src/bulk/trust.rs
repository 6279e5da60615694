//! `trust`: what a level of trust costs. A buffer is moved and passed back over shared memory, one in flight, with none or
//! all of its bytes written by the one side and read by the other; next to ways that copy.

use anyhow::{Result, bail, ensure};
use tranship_bulk::{Buffer, Domain, Event, Trust};

use super::join;
use super::trip::{STOP, Stream, sample};
use crate::case::Wait;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row, bytes};
use crate::stats::Measured;
use crate::touch;

/// `none` as it is, always by copying out of the sender's memory, and always by sealing each buffer; the other levels;
/// what copies.
pub const SYSTEMS: [&str; 8] = [
    "none",
    "none-snapshot",
    "none-sealed",
    "producer",
    "half",
    "full",
    "copy",
    "stream",
];

/// So that the allocator is in the path, and no more memory than that.
const BUFFERS: usize = 2;

/// One cell.
#[derive(Debug, Clone, Copy)]
struct Case {
    system: &'static str,
    /// All bytes are written and read.
    touched: bool,
    payload: usize,
    cores: [usize; 2],
    budget: std::time::Duration,
}

impl Case {
    fn trust(&self) -> Trust {
        match self.system {
            "full" => Trust::Full,
            "half" => Trust::Half,
            "producer" => Trust::Producer,
            _ => Trust::None,
        }
    }

    fn address(&self, run: u64) -> String {
        let scheme = if self.system == "copy" { "copy" } else { "shm" };
        join::address(scheme, run, 0)
    }

    fn domain(&self, me: usize, party: &Party) -> Result<Domain> {
        let domain = join::domain(me, party)?;
        match self.system {
            "none-sealed" => domain.seal_from(0),
            "none-snapshot" => domain.seal_from(u64::MAX),
            _ => {}
        }
        Ok(domain)
    }

    fn stream(&self) -> Stream {
        Stream {
            wait: Wait::Spin,
            touched: self.touched,
            payload: self.payload,
            budget: self.budget,
        }
    }
}

pub fn bench(common: &Common, touches: &[String], payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for (touched, mode) in [(false, "untouched"), (true, "touched")] {
        if !(touches.is_empty() || touches.iter().any(|t| t == mode)) {
            continue;
        }
        for payload in common.some_of(payloads) {
            let wanted = SYSTEMS.into_iter().filter(|name| common.wants(name));
            let cells = wanted.map(|system| {
                let case = Case {
                    system,
                    touched,
                    payload,
                    cores: common.cores(),
                    budget: common.budget(),
                };
                let key = Key {
                    mode,
                    payload_bytes: Some(payload),
                    ..Key::default()
                };
                Cell {
                    system,
                    key,
                    measure: Box::new(move |number| once(case, number)),
                }
            });
            outcome.group(common.runs(), cells.collect());
        }
    }
    outcome.verdicts = verdicts(&outcome.rows);
    outcome
}

/// What level `none` promises: faster than a socket from some size on, never much slower than the backend that copies.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let mut out = Vec::new();
    for mode in ["untouched", "touched"] {
        let of = |system: &str| -> Vec<(usize, f64)> {
            let own = rows
                .iter()
                .filter(|row| row.system == system && row.key.mode == mode);
            own.filter_map(|row| Some((row.key.payload_bytes?, row.median_ns)))
                .collect()
        };
        let against = |reference: &str| -> Vec<(usize, f64)> {
            let reference = of(reference);
            let pairs = of("none").into_iter().filter_map(|(bytes, own)| {
                let other = reference.iter().find(|(other, _)| *other == bytes)?;
                Some((bytes, own / other.1))
            });
            pairs.collect()
        };
        let socket = against("stream");
        if let Some((largest, _)) = socket.last() {
            let slower = socket.iter().rposition(|(_, ratio)| *ratio >= 1.0);
            let from = socket.get(slower.map_or(0, |at| at + 1));
            out.push(match from {
                Some((from, _)) => format!(
                    "{mode}: none is faster than a Unix stream from {} on",
                    bytes(*from)
                ),
                None => format!(
                    "{mode}: none is not faster than a Unix stream at {}",
                    bytes(*largest)
                ),
            });
        }
        let worst = against("copy");
        if let Some((at, ratio)) = worst.iter().max_by(|a, b| a.1.total_cmp(&b.1)) {
            let kept = if *ratio <= 1.1 { "kept" } else { "MISSED" };
            out.push(format!(
                "{mode}: none is at most {ratio:.2} times the copy backend, at {} (the aim is 1.10: {kept})",
                bytes(*at)
            ));
        }
    }
    out
}

fn once(case: Case, number: u64) -> Result<Vec<Measured>> {
    type Side = fn(Case, &Party) -> Result<Vec<Measured>>;
    let sides: [Side; 2] = match case.system {
        "stream" => [
            |case, party| Ok(vec![case.stream().pour(party)?]),
            |case, party| case.stream().answer(party).map(|()| Vec::new()),
        ],
        _ => [source, sink],
    };
    let member = |at: usize| Member {
        core: case.cores[at],
        body: Box::new(move |party: &Party| {
            let measured = sides[at](case, party)?;
            party.barrier()?;
            Ok(measured)
        }),
    };
    let both = party::run(number, vec![member(0), member(1)])?;
    Ok(both.into_iter().flatten().collect())
}

fn source(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let domain = case.domain(0, party)?;
    let channel = join::create(&domain, &case.address(party.run), case.trust())?;
    let pool = join::pool(&domain, &channel, BUFFERS, case.payload)?;
    let trip = |stamp: u64| {
        let mut buffer = pool.alloc()?;
        let bytes = stamp.to_le_bytes();
        if case.touched {
            fill(&mut buffer, stamp)?;
        }
        channel.move_(buffer, &bytes).map_err(|e| e.error)?;
        match join::next(&channel, Wait::Spin)? {
            Event::Passed(_, back) => {
                ensure!(back[..] == bytes, "sent {stamp}, got {back:?} back");
                Ok(())
            }
            other => bail!("instead of a buffer: {other:?}"),
        }
    };
    let measured = sample(case.budget, trip)?;
    let last = pool.alloc()?;
    channel
        .move_(last, &STOP.to_le_bytes())
        .map_err(|e| e.error)?;
    // It comes back when the other side has seen it, which may also be gone by then.
    let _ = join::next(&channel, Wait::Block)?;
    Ok(vec![measured])
}

fn fill(buffer: &mut Buffer, stamp: u64) -> Result<()> {
    // From here on the buffer is ready to be written in place.
    buffer.write(0, &stamp.to_le_bytes())?;
    // SAFETY: a buffer that this side alone has and may write, all of it, whole pages.
    buffer.view(|view| unsafe { touch::fill(view.as_ptr().cast_mut(), view.len(), stamp) })?;
    Ok(())
}

fn sink(case: Case, party: &Party) -> Result<Vec<Measured>> {
    let domain = case.domain(1, party)?;
    let channel = join::bind(&domain, &case.address(party.run), case.trust())?;
    join::assigned(&channel)?;
    loop {
        let Event::Moved(buffer, meta) = join::next(&channel, Wait::Spin)? else {
            bail!("instead of a buffer something else");
        };
        let stamp = meta[..].try_into().map(u64::from_le_bytes)?;
        if case.touched && stamp != STOP {
            // SAFETY: all of a buffer, whole pages; the other side is ours too, and does not write what it sent.
            let sum = buffer.view(|view| unsafe { touch::sum(view.as_ptr(), view.len()) })?;
            ensure!(
                sum == touch::expected(case.payload, stamp),
                "bytes of buffer {stamp} changed"
            );
        }
        channel.pass(buffer, &meta).map_err(|e| e.error)?;
        if stamp == STOP {
            return Ok(Vec::new());
        }
    }
}

/// Latency over the size of the buffer, all bytes written and read.
pub fn picture(rows: &[Row], path: &std::path::Path) -> Result<()> {
    let name = |row: &Row| (row.key.mode == "touched").then(|| row.system.clone());
    let lines = plot::lines(rows, name, plot::median_over_payload);
    let title = "Written, moved, read, passed back: what trust costs, over the buffer's size";
    plot::save(path, title, Along::Bytes, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &str, payload: usize, ns: f64) -> Row {
        let key = Key {
            mode: "touched",
            payload_bytes: Some(payload),
            ..Key::default()
        };
        let run = Measured {
            op: String::new(),
            median_ns: ns,
            p99_ns: ns,
            per_second: 1e9 / ns,
            facts: Default::default(),
        };
        Row::of(system, key, &[run])
    }

    #[test]
    fn verdicts_name_the_size_and_the_worst_ratio() {
        let rows = [
            row("none", 4096, 10.0),
            row("stream", 4096, 5.0),
            row("copy", 4096, 20.0),
            row("none", 8192, 10.0),
            row("stream", 8192, 11.0),
            row("copy", 8192, 8.0),
        ];
        let said = verdicts(&rows);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].ends_with("from 8 KiB on"), "{said:?}");
        assert!(
            said[1].contains("1.25") && said[1].contains("MISSED"),
            "{said:?}"
        );
        assert!(verdicts(&rows[..3])[0].contains("is not faster"));
    }
}
