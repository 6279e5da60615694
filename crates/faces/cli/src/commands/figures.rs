//! Figures as text, by their units in the table of figures.

use super::words::{share, time};
use crate::output::size;
use tranship_proto::{Figure, Kind, Record, Unit, Value, shown};

/// Sign for a figure that is absent or zero.
pub(super) const NONE: &str = "-";

/// Returns a figure's text for people. Domains and pools go by their numbers.
#[allow(clippy::cast_precision_loss)] // for people
pub(super) fn text(figure: &Figure, value: Value<'_>) -> String {
    match value {
        Value::Absent => NONE.to_owned(),
        Value::Number(0) if figure.kind != Kind::Fact => NONE.to_owned(),
        Value::Flag(flag) => if flag { "yes" } else { "no" }.to_owned(),
        Value::Number(number) => match figure.unit() {
            Unit::Count => number.to_string(),
            Unit::Bytes => size(number),
            Unit::Time(second) => time(number.saturating_mul(1_000_000_000 / second)),
            Unit::Ppm => share(number as f64 / 1e6),
        },
        Value::Text(text) => shown(text).into_owned(),
        Value::Domain(id) => id.to_string(),
        Value::Pool(id) => id.to_string(),
        Value::Pools(ids) => ids
            .iter()
            .map(|id| format!("#{id}"))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Record(record) => lines(record).join(", "),
    }
}

/// Returns a line for each figure that is there.
pub(super) fn lines(record: &dyn Record) -> Vec<String> {
    let all = record
        .each()
        .map(|(figure, value)| (figure.title(), text(figure, value)));
    let all = all.filter(|(_, text)| text != NONE && !text.is_empty());
    all.map(|(title, text)| format!("{title} {text}")).collect()
}
