//! `roundtrip` and `stream`.

use anyhow::Result;

use crate::case::{Case, Pattern, Touch, Wait};
use crate::options::Common;
use crate::party::{self, Member};
use crate::peer::{Entry, Role};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::Measured;
use crate::systems;

/// Most bytes of one sender's buffers when all bytes are touched: they should fit into a last-level cache.
const TOUCHED_BYTES: usize = 16 << 20;

pub fn roundtrip(common: &Common, modes: &[Wait], payloads: &[usize], buffers: usize) -> Outcome {
    roundtrip_of(&systems::all(), common, modes, payloads, buffers)
}

/// The round trip of these systems.
pub fn roundtrip_of(
    systems: &[Entry],
    common: &Common,
    modes: &[Wait],
    payloads: &[usize],
    buffers: usize,
) -> Outcome {
    let modes = if modes.is_empty() {
        &[Wait::Spin, Wait::Block]
    } else {
        modes
    };
    let mut outcome = Outcome::default();
    for wait in modes {
        for payload in common.some_of(payloads) {
            let cores = if *wait == Wait::Spin {
                common.cores()
            } else {
                common.blocking_cores()
            };
            let case = Case {
                pattern: Pattern::RoundTrip,
                wait: *wait,
                touch: Touch::Word,
                payload,
                buffers: buffers.next_power_of_two().max(2),
                loans: 1,
                cores,
                helper: true,
                budget: common.budget(),
            };
            outcome.group(common.runs(), cells_of(systems, common, &case, true));
        }
    }
    outcome
}

pub fn stream(common: &Common, modes: &[String], payloads: &[usize], buffers: usize) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, touch) in [("untouched", Touch::Untouched), ("touched", Touch::Touched)] {
        if !(modes.is_empty() || modes.iter().any(|m| m == name)) {
            continue;
        }
        for payload in common.some_of(payloads) {
            let fit = if touch == Touch::Touched {
                (TOUCHED_BYTES / payload).max(8)
            } else {
                usize::MAX
            };
            let buffers = buffers
                .next_power_of_two()
                .max(2)
                .min(fit.checked_next_power_of_two().unwrap_or(fit));
            let case = Case {
                pattern: Pattern::Stream,
                wait: Wait::Spin,
                touch,
                payload,
                buffers,
                loans: 1,
                cores: common.cores(),
                helper: true,
                budget: common.budget(),
            };
            group(&mut outcome, common, &case);
        }
    }
    outcome
}

fn group(outcome: &mut Outcome, common: &Common, case: &Case) {
    let cells = cells_of(&systems::all(), common, case, true);
    outcome.group(common.runs(), cells);
}

/// A cell for each system that is wanted and can do it; placements are not told apart.
pub fn cells(common: &Common, case: &Case) -> Vec<Cell<'static>> {
    cells_of(&systems::all(), common, case, false)
}

fn cells_of(systems: &[Entry], common: &Common, case: &Case, looks: bool) -> Vec<Cell<'static>> {
    let mut cells = Vec::new();
    for entry in systems.iter().copied().filter(|e| common.wants(e.name)) {
        if let Some(why) = (entry.refuses)(case) {
            eprintln!(
                "skipped: {} {} of {} bytes: {why}",
                entry.name,
                case.mode(),
                case.payload
            );
            continue;
        }
        let key = Key {
            mode: case.mode(),
            payload_bytes: Some(case.payload),
            buffers: Some(case.buffers),
            cores: Some(case.cores_used()),
            ..Key::default()
        };
        let case = case.clone();
        let measure = Box::new(move |number| once(&entry, &case, number, looks));
        cells.push(Cell {
            system: entry.name,
            key,
            measure,
        });
    }
    cells
}

/// One run of one system; `looks`: a measurement for each placement of the cores.
pub fn once(entry: &Entry, case: &Case, number: u64, looks: bool) -> Result<Vec<Measured>> {
    let mut roles = vec![(Role::Ping, case.cores[0]), (Role::Pong, case.cores[1])];
    if entry.third {
        roles.push((Role::Third, case.cores[1]));
    }
    let serve = entry.serve;
    let members = roles.into_iter().map(|(role, core)| Member {
        core,
        body: Box::new(move |party: &party::Party| serve(case, role, party, looks)),
    });
    let done = party::run(number, members.collect());
    (entry.clean)(number);
    Ok(done?.into_iter().flatten().collect())
}
