//! Counters that do not fall: the count of an object that ended stays in its series, as long as the series is there.
//!
//! Series go by names, and several objects may have one name. If their counters were just added up, the sum would fall
//! when one of them ends. A program that computes a rate would take that for a start from nothing, and count all of it
//! again.

use std::collections::BTreeMap;

/// Names and values, in a family's order.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Counts of objects before. For a single look: an empty one.
#[derive(Debug, Default)]
pub struct Tally {
    /// Last count of each object, by metric and number. The manager that it belongs to comes first: another one counts
    /// its own.
    last: BTreeMap<(&'static str, u64), f64>,
    sums: BTreeMap<(&'static str, Labels), f64>,
    instance: u64,
    next_last: BTreeMap<(&'static str, u64), f64>,
    next_sums: BTreeMap<(&'static str, Labels), f64>,
}

impl Tally {
    /// Begins a look; for a manager that is started anew all begins anew.
    pub(crate) fn begin(&mut self, instance: u64) {
        if self.instance != instance {
            *self = Tally {
                instance,
                ..Tally::default()
            };
        }
        self.next_last.clear();
        self.next_sums.clear();
    }

    /// Adds an object's count so far.
    pub(crate) fn add(&mut self, metric: &'static str, object: u64, labels: &Labels, value: f64) {
        let before = self.last.get(&(metric, object)).copied().unwrap_or(0.0);
        // The object began anew, or its writer lies.
        let more = if value >= before {
            value - before
        } else {
            value
        };
        // A number may come twice, in channels that domains register: the later one adds the difference.
        self.next_last.insert((metric, object), value);
        let key = (metric, labels.clone());
        let sums = &self.sums;
        let sum =
            (self.next_sums.entry(key)).or_insert_with_key(|k| sums.get(k).copied().unwrap_or(0.0));
        *sum += more;
    }

    /// Ends a look; returns all its sums. A series without objects is gone.
    pub(crate) fn end(&mut self) -> &BTreeMap<(&'static str, Labels), f64> {
        self.last = std::mem::take(&mut self.next_last);
        self.sums = std::mem::take(&mut self.next_sums);
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: &str = "m";

    fn look(tally: &mut Tally, instance: u64, objects: &[(u64, &str, f64)]) -> Vec<(String, f64)> {
        tally.begin(instance);
        for (id, name, value) in objects {
            tally.add(M, *id, &vec![("name", (*name).to_owned())], *value);
        }
        let sums = tally.end().iter();
        sums.map(|((_, l), v)| (l[0].1.clone(), *v)).collect()
    }

    #[test]
    fn who_ends_takes_nothing_with_it() {
        let mut t = Tally::default();
        let one = |v| vec![("a".to_owned(), v)];
        assert_eq!(look(&mut t, 1, &[(1, "a", 10.0), (2, "a", 5.0)]), one(15.0));
        assert_eq!(look(&mut t, 1, &[(2, "a", 6.0)]), one(16.0));
        assert_eq!(look(&mut t, 1, &[(2, "a", 6.0), (3, "a", 1.0)]), one(17.0));
        // A writer that counts backwards begins anew.
        assert_eq!(look(&mut t, 1, &[(2, "a", 2.0), (3, "a", 1.0)]), one(19.0));
        // Another series continues from the object's present count.
        assert_eq!(
            look(&mut t, 1, &[(2, "(others)", 4.0)]),
            [("(others)".to_owned(), 2.0)]
        );
        assert_eq!(look(&mut t, 2, &[(2, "a", 4.0)]), one(4.0));
        assert!(look(&mut t, 2, &[]).is_empty() && t.last.is_empty() && t.sums.is_empty());
    }
}
