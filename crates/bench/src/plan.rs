//! Runs cells in turn, several times over, so that what disturbs the machine disturbs all alike.

use anyhow::Result;

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

/// What came out, and what failed.
#[derive(Debug, Default)]
pub struct Outcome {
    pub rows: Vec<Row>,
    pub failures: usize,
    /// What the bench concludes, in words.
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
                self.rows.push(Row::of(cell.system, key, &of));
            }
        }
    }
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
                        facts: Default::default(),
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
