//! Runs cells in turn, several times over, so that what disturbs the machine disturbs all alike.

use anyhow::Result;

use crate::placement::Placement;
use crate::report::{Key, Row};
use crate::stats::Measured;

type Measure<'a> = Box<dyn FnMut(u64) -> Result<Vec<Measured>> + 'a>;

/// One system measured on one thing.
pub struct Cell<'a> {
    pub system: &'static str,
    pub key: Key,
    /// Does one run. Its argument is a number that no other run has.
    pub measure: Measure<'a>,
}

impl<'a> Cell<'a> {
    pub fn of(
        system: &'static str,
        key: Key,
        measure: impl FnMut(u64) -> Result<Vec<Measured>> + 'a,
    ) -> Cell<'a> {
        let measure = Box::new(measure);
        Cell {
            system,
            key,
            measure,
        }
    }
}

/// Results and failures.
#[derive(Debug, Default)]
pub struct Outcome {
    pub rows: Vec<Row>,
    pub failures: usize,
    /// Conclusions of the bench, in words.
    pub verdicts: Vec<String>,
    /// Versions of peers that are known only at run time.
    pub peers: std::collections::BTreeMap<String, String>,
}

impl Outcome {
    /// Runs the cells of one group `runs` times, alternating, and adds their rows.
    pub fn group(&mut self, runs: usize, mut cells: Vec<Cell<'_>>) {
        let mut seen: Vec<Vec<Measured>> = cells.iter().map(|_| Vec::new()).collect();
        let mut failed = vec![false; cells.len()];
        for _ in 0..runs {
            for (i, cell) in cells.iter_mut().enumerate() {
                if failed[i] {
                    continue;
                }
                match (cell.measure)(number()) {
                    Ok(measured) => seen[i].extend(measured),
                    Err(error) => {
                        failed[i] = true;
                        self.failures += 1;
                        eprintln!("FAILED: {} {:?}: {error:#}", cell.system, cell.key);
                    }
                }
            }
        }
        for ((cell, seen), failed) in cells.iter().zip(&seen).zip(failed) {
            if failed {
                continue;
            }
            let mut ops: Vec<&str> = Vec::new();
            for m in seen {
                if !ops.contains(&m.op.as_str()) {
                    ops.push(&m.op);
                }
            }
            for op in ops {
                let of: Vec<Measured> = seen.iter().filter(|m| m.op == op).cloned().collect();
                let key = Key {
                    op: op.to_owned(),
                    ..cell.key.clone()
                };
                self.rows.extend(rows(cell.system, &key, &of));
            }
        }
    }
}

/// A row for each placement that was met. What was taken while nobody knew which it was is counted, and no more, unless there is
/// nothing else.
fn rows(system: &str, key: &Key, seen: &[Measured]) -> Vec<Row> {
    let mut met: Vec<Option<Placement>> = seen.iter().map(|m| m.placement).collect();
    met.sort();
    met.dedup();
    let unclear = |m: &&Measured| m.placement == Some(Placement::Unclear);
    let discarded = seen.iter().filter(unclear).map(|m| m.samples).sum();
    if met.len() > 1 {
        met.retain(|placement| *placement != Some(Placement::Unclear));
    }
    let row = |placement: Option<Placement>| {
        let of: Vec<Measured> = seen
            .iter()
            .filter(|m| m.placement == placement)
            .cloned()
            .collect();
        let key = Key {
            placement: placement.map(Placement::name),
            ..key.clone()
        };
        Row {
            discarded_samples: placement.map(|_| discarded),
            ..Row::of(system, key, &of)
        }
    };
    met.into_iter().map(row).collect()
}

/// A number that no other run of this program, nor of another running one, has.
pub fn number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_have_rows_of_their_own_and_unclear_samples_are_counted() {
        let run = |placement, ns: f64, samples| Measured {
            samples,
            placement: Some(placement),
            p999_ns: ns,
            line_ns: 80.0,
            ..Measured::rate(1e9 / ns)
        };
        let mut runs = vec![
            run(Placement::Far, 900.0, 5),
            run(Placement::Near, 200.0, 30),
            run(Placement::Unclear, 1.0, 7),
            run(Placement::Near, 300.0, 10),
        ];
        let brief = |rows: Vec<Row>| -> Vec<_> {
            let one = |r: Row| (r.key.placement, r.median_ns, r.samples, r.discarded_samples);
            rows.into_iter().map(one).collect()
        };
        assert_eq!(
            brief(rows("a", &Key::default(), &runs)),
            [
                (Some("near"), 250.0, Some(40), Some(7)),
                (Some("far"), 900.0, Some(5), Some(7)),
            ]
        );
        runs.retain(|m| m.median_ns == 1.0);
        let only = brief(rows("a", &Key::default(), &runs));
        assert_eq!(only, [(Some("unclear"), 1.0, Some(7), Some(7))]);
    }

    #[test]
    fn runs_alternate_and_a_failing_cell_loses_its_row() {
        let order = std::cell::RefCell::new(String::new());
        let cell = |name: &'static str, fails: bool| {
            let order = &order;
            Cell {
                system: name,
                key: Key {
                    mode: "spin",
                    ..Key::default()
                },
                measure: Box::new(move |_| {
                    order.borrow_mut().push_str(name);
                    anyhow::ensure!(!fails, "broken");
                    let one = |op: &str| Measured {
                        op: op.to_owned(),
                        median_ns: 1.0,
                        p99_ns: 1.0,
                        per_second: 1.0,
                        ..Measured::default()
                    };
                    Ok(vec![one("send"), one("receive")])
                }),
            }
        };
        let mut outcome = Outcome::default();
        outcome.group(3, vec![cell("a", false), cell("b", true), cell("c", false)]);
        assert_eq!(order.borrow().as_str(), "abcacac");
        assert_eq!(outcome.failures, 1);
        let rows: Vec<_> = outcome
            .rows
            .iter()
            .map(|r| (r.system.as_str(), r.key.op.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                ("a", "send"),
                ("a", "receive"),
                ("c", "send"),
                ("c", "receive")
            ]
        );
    }
}
