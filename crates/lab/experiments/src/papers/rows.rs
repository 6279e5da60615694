//! Rows of a report, and orderings between them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One measurement: its fields by name.
pub(super) type Row = Map<String, Value>;
/// Fields that a row must have.
pub(super) type Where = BTreeMap<String, Value>;

/// An ordering of the paper's, and what was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    pub what: String,
    pub measured: String,
    /// None if a side was not measured.
    pub held: Option<bool>,
    /// Whether it holds on every machine.
    #[serde(default)]
    pub always: bool,
}

/// An ordering between rows: the value of `less` is at most `factor` times that of `more`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    what: String,
    /// The field that is compared.
    value: String,
    less: Where,
    /// None: of 1, so that `factor` is the limit.
    more: Option<Where>,
    #[serde(default = "one")]
    factor: f64,
    /// Whether it holds on every machine, in every build and at every scale.
    #[serde(default)]
    always: bool,
}

fn one() -> f64 {
    1.0
}

impl Rule {
    pub(super) fn look(&self, rows: &[Row]) -> Found {
        let less = mean(rows, &self.less, &self.value);
        let more = match &self.more {
            Some(more) => mean(rows, more, &self.value),
            None => Some(1.0),
        };
        let (measured, held) = match (less, more) {
            (Some(less), Some(more)) => (
                format!("{} and {}", number(less), number(more)),
                Some(less <= self.factor * more),
            ),
            _ => ("a side was not measured".to_owned(), None),
        };
        Found {
            what: self.what.clone(),
            measured,
            held,
            always: self.always,
        }
    }
}

pub(super) fn is_like(row: &Row, wanted: &Where) -> bool {
    wanted
        .iter()
        .all(|(name, value)| match (row.get(name), value) {
            (Some(Value::Number(a)), Value::Number(b)) => a.as_f64() == b.as_f64(),
            (there, value) => there == Some(value),
        })
}

/// The geometric mean over the rows that are like it: they may be of several sizes.
fn mean(rows: &[Row], wanted: &Where, value: &str) -> Option<f64> {
    let like = rows.iter().filter(|row| is_like(row, wanted));
    let values: Vec<f64> = like.filter_map(|row| row.get(value)?.as_f64()).collect();
    #[allow(clippy::cast_precision_loss)] // few
    let count = values.len() as f64;
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (count > 0.0).then(|| (logs / count).exp())
}

/// The rows of a bench's report, or of an experiment's. Those of an experiment under policies are its runs, with what
/// both programs reached at the peak, and each period.
pub(super) fn of(report: &Value) -> Vec<Row> {
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let mut rows: Vec<Value> = [list("rows"), list("points")].concat();
    for run in list("runs") {
        let both = |programs: &Value, more: Value| {
            let mut row = more;
            row["run"] = run["name"].clone();
            for (at, who) in ["server", "interferer"].iter().enumerate() {
                row[format!("{who}_per_second")] = programs[at]["per_second"].clone();
                let share = programs[at]["share"].as_f64().unwrap_or(0.0);
                row[format!("{who}_waits_percent")] = json!(100.0 * share);
            }
            row
        };
        rows.push(both(
            &run["peak"]["programs"],
            json!({ "limit_pages": run["limit_pages"] }),
        ));
        for frame in run["frames"].as_array().into_iter().flatten() {
            rows.push(both(&frame["apps"], json!({ "at_ms": frame["at_ms"] })));
        }
    }
    rows.into_iter()
        .filter_map(|row| row.as_object().cloned())
        .collect()
}

/// A report of lines of `name: value`; what follows a value is for people.
pub(super) fn report_of_lines(text: &str) -> Value {
    let rows = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        Some(json!({ "name": name.trim(), "value": value }))
    });
    json!({ "rows": rows.collect::<Vec<_>>() })
}

/// A value, for people.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1e4 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        of(&json!({ "rows": [
            { "system": "a", "size": 1, "ns": 10.0 }, { "system": "a", "size": 2, "ns": 40.0 },
            { "system": "b", "size": 1, "ns": 30.0 }, { "system": "b", "size": 2, "ns": 30.0 },
        ]}))
    }

    fn rule(less: &str, more: &str, factor: f64) -> Found {
        let of = |system: &str| Where::from([("system".to_owned(), json!(system))]);
        let rule = Rule {
            what: "an ordering".to_owned(),
            value: "ns".to_owned(),
            less: of(less),
            more: Some(of(more)),
            factor,
            always: false,
        };
        rule.look(&rows())
    }

    #[test]
    fn an_ordering_holds_or_not_or_was_not_measured() {
        assert_eq!(rule("a", "b", 1.0).held, Some(true));
        assert_eq!(rule("b", "a", 1.0).held, Some(false));
        assert_eq!(rule("b", "a", 2.0).held, Some(true));
        assert_eq!(rule("a", "c", 1.0).held, None);
        assert_eq!(rule("a", "b", 1.0).measured, "20.0 and 30.0");
    }

    #[test]
    fn lines_become_rows() {
        let report = report_of_lines(
            "pair  one process\ntime:   1.0049 (of 9 pairs)\npictures: the same pixels\n",
        );
        let rows = of(&report);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0]["name"], "time");
        let rule = |factor| Rule {
            what: String::new(),
            value: "value".to_owned(),
            less: Where::from([("name".to_owned(), json!("time"))]),
            more: None,
            factor,
            always: false,
        };
        assert_eq!(rule(1.011).look(&rows).held, Some(true));
        assert_eq!(rule(1.0).look(&rows).held, Some(false));
    }

    #[test]
    fn runs_become_rows() {
        let programs =
            json!([{ "per_second": 5, "share": 0.5 }, { "per_second": 7, "share": 0.1 }]);
        let run = json!({ "name": "qos", "limit_pages": 9, "peak": { "programs": programs },
            "frames": [{ "at_ms": 250, "apps": programs }] });
        let rows = of(&json!({ "runs": [run] }));
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (&rows[0]["run"], &rows[0]["limit_pages"]),
            (&json!("qos"), &json!(9))
        );
        assert_eq!(
            (&rows[1]["at_ms"], &rows[1]["server_waits_percent"]),
            (&json!(250), &json!(50.0))
        );
    }
}
