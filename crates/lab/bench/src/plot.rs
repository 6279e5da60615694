//! Lines as SVG: cost over size, or over a small count.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::report::Row;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 44.0;
/// Told apart by the colour-blind as well, with the dashes.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
const DASHES: [&str; 3] = ["none", "7 4", "2 3"];

/// What runs along the bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Sizes in bytes, each the double of the one before.
    Bytes,
    /// Whole numbers from 0, and what they count.
    #[allow(dead_code, reason = "the next bench counts")]
    Count(&'static str),
    /// Shares of all, from 0 to 1: the closer to all of them, the wider.
    Share,
}

/// One line and its name; points by rising x.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// The lines of rows: those that `name` calls alike are one, at the `point` of each. None leaves the row out.
pub fn lines(
    rows: &[Row],
    name: impl Fn(&Row) -> Option<String>,
    point: impl Fn(&Row) -> Option<(f64, f64)>,
) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    for row in rows {
        let (Some(name), Some(point)) = (name(row), point(row)) else {
            continue;
        };
        match out.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => out.push(Line {
                name,
                points: vec![point],
            }),
        }
    }
    for line in &mut out {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    out
}

/// A row's payload and its median.
pub fn median_over_payload(row: &Row) -> Option<(f64, f64)> {
    Some((row.key.payload_bytes? as f64, row.median_ns))
}

/// Draws into a file.
pub fn save(path: &std::path::Path, title: &str, along: Along, lines: &[Line]) -> Result<()> {
    std::fs::write(path, draw(title, along, lines))
        .with_context(|| format!("writing {}", path.display()))
}

/// The whole file. Values are nanoseconds; the height is logarithmic if they span more than a decade.
pub fn draw(title: &str, along: Along, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| &line.points);
    let across = |x: f64| match along {
        Along::Bytes => x.max(1.0).log2(),
        Along::Count(_) => x,
        // All of them stand one further than the last that can be told apart.
        Along::Share => -(1.0 - x).max(1e-6).log10(),
    };
    let (low, high) = all().fold((f64::MAX, f64::MIN), |(low, high), (_, y)| {
        (low.min(*y), high.max(*y))
    });
    let logarithmic = high > 10.0 * low && low > 0.0;
    let (bottom, top) = match logarithmic {
        true => (low.log10().floor(), high.log10().ceil()),
        false => (0.0, high.max(f64::MIN_POSITIVE) * 1.1),
    };
    let (first, last) = all().fold((f64::MAX, f64::MIN), |(first, last), (x, _)| {
        (first.min(across(*x)), last.max(across(*x)))
    });
    let x = |v: f64| {
        let part = (across(v) - first) / (last - first).max(f64::MIN_POSITIVE);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    };
    let y = |v: f64| {
        let v = if logarithmic { v.log10() } else { v };
        HEIGHT - BOTTOM - (v - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM)
    };
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="24" font-size="16">{title}</text>
"##
    );
    for mark in marks(logarithmic, bottom, top) {
        let at = y(mark);
        let _ = writeln!(
            out,
            r##"<path d="M{LEFT} {at:.1}H{:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            time(mark)
        );
    }
    let mut places: Vec<f64> = all().map(|(x, _)| *x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    for place in places {
        let _ = writeln!(
            out,
            r##"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
            x(place),
            HEIGHT - BOTTOM + 18.0,
            match along {
                Along::Bytes => size(place),
                Along::Count(_) => format!("{place}"),
                Along::Share if place >= 1.0 => "all".to_owned(),
                Along::Share => format!("{} %", (place * 1e6).round() / 1e4),
            }
        );
    }
    let under = match along {
        Along::Bytes => "size of a buffer",
        Along::Count(what) => what,
        Along::Share => "so many of the operations take at most",
    };
    let _ = writeln!(
        out,
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end">{under}</text>"##,
        WIDTH - RIGHT,
        HEIGHT - 6.0
    );
    // Names stand where their lines end, apart from each other.
    let mut ends: Vec<(usize, f64)> = lines
        .iter()
        .enumerate()
        .filter_map(|(number, line)| Some((number, y(line.points.last()?.1) + 4.0)))
        .collect();
    ends.sort_by(|a, b| b.1.total_cmp(&a.1));
    for i in 1..ends.len() {
        ends[i].1 = ends[i].1.min(ends[i - 1].1 - 13.0);
    }
    for (number, at) in ends {
        let line = &lines[number];
        let colour = COLOURS[number % COLOURS.len()];
        let dash = DASHES[number / COLOURS.len() % DASHES.len()];
        let mut path = String::new();
        for (v, cost) in &line.points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(*v), y(*cost));
        }
        let _ = writeln!(
            out,
            r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/><text x="{:.1}" y="{at:.1}" fill="{colour}">{}</text>"##,
            WIDTH - RIGHT + 6.0,
            line.name
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Where lines across go: at each decade, or at quarters of the height.
fn marks(logarithmic: bool, bottom: f64, top: f64) -> Vec<f64> {
    let mut out = Vec::new();
    if logarithmic {
        let mut decade = bottom;
        while decade <= top {
            out.push(10f64.powf(decade));
            decade += 1.0;
        }
    } else {
        out.extend((0..=4).map(|quarter| top * f64::from(quarter) / 4.0));
    }
    out
}

fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns => (ns / 1e6, "ms"),
    };
    match value {
        value if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0} {unit}"),
        value => format!("{value:.1} {unit}"),
    }
}

fn size(bytes: f64) -> String {
    match bytes {
        n if n >= 1048576.0 => format!("{} MiB", n / 1048576.0),
        n if n >= 1024.0 => format!("{} KiB", n / 1024.0),
        n => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_spans_are_logarithmic_and_names_do_not_overlap() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let close = [
            line("flat", &[(4096.0, 500.0), (1048576.0, 510.0)]),
            line("also", &[(4096.0, 505.0), (1048576.0, 511.0)]),
        ];
        let svg = draw("t", Along::Bytes, &close);
        assert!(svg.contains(">4 KiB<") && svg.contains(">1 MiB<") && svg.contains(">0 ns<"));
        let at = |name: &str| -> f64 {
            let text = svg.lines().find(|l| l.contains(name)).unwrap();
            let rest = text.split_once("<text").unwrap().1;
            let y = rest.split_once("y=\"").unwrap().1;
            y.split_once('"').unwrap().0.parse().unwrap()
        };
        assert!((at(">flat<") - at(">also<")).abs() >= 13.0);
        let wide = [line("copy", &[(0.0, 500.0), (2.0, 90_000.0)])];
        let svg = draw("t", Along::Count("hops"), &wide);
        assert!(svg.contains(">100 us<") && svg.contains(">100 ns<") && !svg.contains(">0 ns<"));
        let tail = [line("send", &[(0.5, 30.0), (0.999, 90.0), (1.0, 9e4)])];
        let svg = draw("t", Along::Share, &tail);
        assert!(svg.contains(">50 %<") && svg.contains(">99.9 %<") && svg.contains(">all<"));
    }
}
