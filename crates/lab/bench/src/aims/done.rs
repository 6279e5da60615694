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
        let each = bounds.map(|(placement, bound)| {
            let rows = self.rows.iter();
            let rows = rows.filter(|row| row.key.placement == Some(placement.name()));
            let rows: Vec<Row> = rows.cloned().collect();
            (placement, bound, found(&rows), rows.is_empty())
        });
        // What was found of cores that lie otherwise had all its peers.
        let is_found = each.iter().any(|(_, _, found, _)| !found.is_empty());
        for (placement, bound, found, has_no_rows) in each {
            let number = format!("{number}, cores {}", placement.name());
            let is_missing = found.is_empty() && (has_no_rows || is_found);
            self.claim(what, number, unit, bound, found);
            if let (true, Some(last)) = (is_missing, self.claims.last_mut()) {
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

    /// Near only one of two was met: that is no missing peer.
    #[test]
    fn a_placement_that_one_of_two_did_not_meet_was_not_met() {
        let row = |system: &str, placement| {
            let placement = Some(placement);
            Row::of(
                system,
                Key {
                    placement,
                    ..Key::default()
                },
                &[],
            )
        };
        let both_there = |rows: &[Row]| {
            let found = |at: String| Found {
                at,
                value: 1.0,
                least: 1.0,
                most: 1.0,
            };
            let both = ["ours", "theirs"].map(|name| rows.iter().any(|row| row.system == name));
            both.iter()
                .all(|is_there| *is_there)
                .then(|| found("both".to_owned()))
                .into_iter()
                .collect()
        };
        let verdicts = |rows| {
            let mut done = Done {
                rows,
                ..Done::default()
            };
            done.claim_apart("what", "number", "x", both(Bound::AtMost(1.0)), both_there);
            done.claims.iter().map(Claim::verdict).collect::<Vec<_>>()
        };
        let unmet = "not measured: the cores did not lie so meanwhile";
        let far = [row("ours", "far"), row("theirs", "far")];
        let near = row("ours", "near");
        assert_eq!(
            verdicts([vec![near.clone()], far.to_vec()].concat()),
            [unmet, "reached"]
        );
        let missing = "not measured: its peer is missing";
        assert_eq!(verdicts(vec![near]), [missing, unmet]);
    }
}
