//! Pictures: lines over one quantity, as SVG in the page itself.

use super::rows::{self, Row, Where};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
/// Room for the numbers beside the axes.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 450.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 250.0;
const COLORS: [&str; 8] = [
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f",
];

/// A picture of a figure: its axes, and the columns that make its lines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    x: String,
    y: String,
    /// Fields whose values tell lines apart.
    lines: Vec<String>,
    /// Fields that all rows of the picture have.
    #[serde(default, rename = "where")]
    wanted: Where,
    /// Whether the axes are logarithmic.
    #[serde(default)]
    log: bool,
}

struct Axis {
    from: f64,
    to: f64,
    log: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, log: bool) -> Axis {
        let least = values.clone().fold(f64::MAX, f64::min);
        let most = values.fold(f64::MIN, f64::max);
        let from = if log { least } else { least.min(0.0) };
        // A single value has room around it, too.
        let to = if most > from {
            most
        } else {
            from.abs() * 2.0 + 1.0
        };
        Axis { from, to, log }
    }

    /// 0 to 1.
    fn at(&self, value: f64) -> f64 {
        match self.log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    fn marks(&self) -> [f64; 5] {
        [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| match self.log {
            true => self.from * (self.to / self.from).powf(part),
            false => self.from + part * (self.to - self.from),
        })
    }
}

impl Picture {
    /// The picture, or nothing if there are no two points.
    pub(super) fn draw(&self, rows: &[Row]) -> String {
        let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows.iter().filter(|row| rows::is_like(row, &self.wanted)) {
            let value = |name: &str| row.get(name).and_then(Value::as_f64);
            let (Some(x), Some(y)) = (value(&self.x), value(&self.y)) else {
                continue;
            };
            if self.log && (x <= 0.0 || y <= 0.0) {
                continue;
            }
            let name = |field: &String| match row.get(field)? {
                Value::String(text) => Some(text.clone()),
                other => Some(format!("{field} {other}")),
            };
            let names: Vec<String> = self.lines.iter().filter_map(name).collect();
            lines.entry(names.join(", ")).or_default().push((x, y));
        }
        let points = lines.values().flatten();
        if points.clone().count() < 2 {
            return String::new();
        }
        let across = Axis::of(points.clone().map(|point| point.0), self.log);
        let up = Axis::of(points.map(|point| point.1), self.log);
        let x = |value: f64| LEFT + across.at(value) * (RIGHT - LEFT);
        let y = |value: f64| BOTTOM - up.at(value) * (BOTTOM - TOP);
        let mut out = format!("<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>");
        // Writing to a string does not fail.
        for mark in up.marks() {
            let (at, text) = (y(mark), rows::number(mark));
            let _ = write!(
                out,
                "<path d='M{LEFT} {at:.1}H{RIGHT}' stroke='#ddd'/><text x='{:.1}' y='{:.1}' text-anchor='end'>{text}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        for mark in across.marks() {
            let (at, text) = (x(mark), rows::number(mark));
            let _ = write!(
                out,
                "<text x='{at:.1}' y='{:.1}' text-anchor='middle'>{text}</text>",
                BOTTOM + 16.0
            );
        }
        let _ = write!(
            out,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle'>{}: {}</text>",
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 38.0,
            escape(&self.y),
            escape(&self.x)
        );
        for (number, (name, points)) in lines.iter_mut().enumerate() {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let color = COLORS[number % COLORS.len()];
            let dash = if number < COLORS.len() {
                ""
            } else {
                " stroke-dasharray='5 3'"
            };
            let way: Vec<String> = points
                .iter()
                .map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)))
                .collect();
            let _ = write!(
                out,
                "<polyline fill='none' stroke='{color}' stroke-width='1.6'{dash} points='{}'/>",
                way.join(" ")
            );
            if points.len() <= 16 {
                for p in points.iter() {
                    let _ = write!(
                        out,
                        "<circle cx='{:.1}' cy='{:.1}' r='2.4' fill='{color}'/>",
                        x(p.0),
                        y(p.1)
                    );
                }
            }
            #[allow(clippy::cast_precision_loss)] // few
            let at = TOP + 8.0 + 15.0 * number as f64;
            let _ = write!(
                out,
                "<path d='M{:.1} {at:.1}h14' stroke='{color}' stroke-width='2'{dash}/><text x='{:.1}' y='{:.1}'>{}</text>",
                RIGHT + 14.0,
                RIGHT + 32.0,
                at + 4.0,
                escape(name)
            );
        }
        out + "</svg>"
    }
}

pub(super) fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_for_each_name_and_none_without_points() {
        let row = |system: &str, x: u32, y: u32| {
            json!({ "system": system, "x": x, "y": y })
                .as_object()
                .cloned()
        };
        let rows: Vec<Row> = [row("a", 1, 10), row("a", 100, 1000), row("b", 10, 50)]
            .into_iter()
            .flatten()
            .collect();
        let picture = Picture {
            x: "x".into(),
            y: "y".into(),
            lines: vec!["system".into()],
            wanted: Where::new(),
            log: true,
        };
        let svg = picture.draw(&rows);
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(svg.contains("80.0,250.0 450.0,14.0"), "{svg}");
        assert_eq!(picture.draw(&rows[..1]), "");
    }
}
