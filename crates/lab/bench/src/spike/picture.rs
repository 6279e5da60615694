//! The plot as SVG.

use std::fmt::Write as _;

use super::series::Series;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 44.0;
/// Told apart by the colour-blind as well.
const COLOURS: [&str; 4] = ["#d55e00", "#e69f00", "#009e73", "#0072b2"];
const DASHES: [&str; 4] = ["none", "8 4", "2 3", "none"];

/// The whole file.
pub(super) fn draw(rows: &[&Series]) -> String {
    let all = || rows.iter().flat_map(|row| &row.points);
    let end = all().fold(1.0, |most: f64, (ms, _)| most.max(*ms));
    let top = all().fold(1.0, |most: f64, (_, bytes)| most.max(mib(*bytes))) * 1.1;
    let x = |ms: f64| LEFT + ms / end * (WIDTH - LEFT - RIGHT);
    let y = |mib: f64| HEIGHT - BOTTOM - mib / top * (HEIGHT - TOP - BOTTOM);
    let mut out = String::new();
    let mut put = |text: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = out.write_fmt(text);
        out.push('\n');
    };
    put(format_args!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="24" font-size="16">Resident memory around a spike of network buffers</text>
<text x="{LEFT}" y="{:.1}">MiB</text>
<text x="{:.1}" y="{:.1}" text-anchor="end">seconds</text>"##,
        TOP - 8.0,
        WIDTH - RIGHT,
        HEIGHT - 6.0
    ));
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        put(format_args!(
            r##"<path d="M{LEFT} {at:.1}H{:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{value:.0}</text>"##,
            WIDTH - RIGHT,
            LEFT - 6.0,
            y(value) + 4.0,
            at = y(value)
        ));
    }
    for step in 0..=8 {
        let ms = end * f64::from(step) / 8.0;
        put(format_args!(
            r##"<text x="{:.1}" y="{:.1}" text-anchor="middle">{:.1}</text>"##,
            x(ms),
            HEIGHT - BOTTOM + 18.0,
            ms / 1e3
        ));
    }
    let freed: Vec<f64> = rows.iter().map(|row| row.freed_ms).collect();
    if let Some(last) = freed.iter().copied().reduce(f64::max) {
        put(format_args!(
            r##"<path d="M{0:.1} {TOP}V{1:.1}" stroke="#888" stroke-dasharray="4 3"/><text x="{2:.1}" y="{3:.1}" fill="#555">all freed</text>"##,
            x(last),
            HEIGHT - BOTTOM,
            x(last) + 4.0,
            TOP + 12.0
        ));
    }
    // Names that end at the same height are set one above the other.
    let mut taken: Vec<f64> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let (colour, dash) = (COLOURS[number % 4], DASHES[number % 4]);
        let mut path = String::new();
        for (ms, bytes) in &row.points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(*ms), y(mib(*bytes)));
        }
        let mut at = row.points.last().map_or(TOP, |(_, bytes)| y(mib(*bytes))) + 4.0;
        while taken.iter().any(|other| (other - at).abs() < 14.0) {
            at -= 14.0;
        }
        taken.push(at);
        put(format_args!(
            r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/><text x="{:.1}" y="{at:.1}" fill="{colour}">{}</text>"##,
            WIDTH - RIGHT + 6.0,
            row.system
        ));
    }
    out.push_str("</svg>\n");
    out
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
