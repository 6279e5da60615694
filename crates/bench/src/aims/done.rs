//! What came of a part of the report.

use super::claim::{Bound, Claim, Found};
use crate::placement::Placement;
use crate::plan::Outcome;
use crate::report::Row;

#[derive(Debug, Default)]
pub struct Done {
    pub claims: Vec<Claim>,
    pub rows: Vec<Row>,
    pub failures: usize,
}

impl Done {
    pub fn of(outcome: Outcome) -> Done {
        Done {
            rows: outcome.rows,
            failures: outcome.failures,
            ..Done::default()
        }
    }

    pub fn claim(
        &mut self,
        what: &'static str,
        number: impl Into<String>,
        unit: &'static str,
        bound: Bound,
        found: impl IntoIterator<Item = Found>,
    ) {
        self.claims.push(Claim {
            what,
            number: number.into(),
            unit,
            bound,
            found: found.into_iter().collect(),
            missing: None,
        });
    }

    /// Claims about cores that lie near and about cores that lie far: each of the rows that were measured so.
    pub fn claim_apart(
        &mut self,
        what: &'static str,
        number: &str,
        unit: &'static str,
        bounds: [(Placement, Bound); 2],
        found: impl Fn(&[Row]) -> Vec<Found>,
    ) {
        for (placement, bound) in bounds {
            let rows = self.rows.iter();
            let rows = rows.filter(|row| row.key.placement == Some(placement.name()));
            let rows: Vec<Row> = rows.cloned().collect();
            let number = format!("{number}, cores {}", placement.name());
            self.claim(what, number, unit, bound, found(&rows));
            if let (true, Some(last)) = (rows.is_empty(), self.claims.last_mut()) {
                last.missing = Some("the cores did not lie so meanwhile");
            }
        }
    }

    /// Rows of one mode.
    pub fn mode(&self, mode: &str) -> Vec<Row> {
        let rows = self.rows.iter().filter(|row| row.key.mode == mode);
        rows.cloned().collect()
    }
}

/// The same bound wherever the cores lie.
pub fn both(bound: Bound) -> [(Placement, Bound); 2] {
    [Placement::Near, Placement::Far].map(|placement| (placement, bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Key;

    #[test]
    fn each_placement_is_judged_by_its_own_rows_and_bound() {
        let key = Key {
            placement: Some("far"),
            ..Key::default()
        };
        let mut done = Done {
            rows: vec![Row::of("ours", key, &[])],
            ..Done::default()
        };
        let bounds = [
            (Placement::Near, Bound::AtMost(1.0)),
            (Placement::Far, Bound::AtMost(2.0)),
        ];
        done.claim_apart("what", "number", "x", bounds, |rows| {
            let found = |row: &Row| Found {
                at: row.system.clone(),
                value: 1.5,
                least: 1.5,
                most: 1.5,
            };
            rows.iter().map(found).collect()
        });
        let verdicts: Vec<_> = done
            .claims
            .iter()
            .map(|c| (c.number.as_str(), c.verdict()))
            .collect();
        let unmet = "not measured: the cores did not lie so meanwhile";
        assert_eq!(
            verdicts,
            [
                ("number, cores near", unmet.to_owned()),
                ("number, cores far", "reached".to_owned()),
            ]
        );
    }
}
