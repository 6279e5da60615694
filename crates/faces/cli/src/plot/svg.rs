//! The picture as SVG: readable on a light and on a dark page.

use super::Plot;
use std::fmt::Write;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 44.0;
/// Colours that the colour-blind can distinguish, too.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];

/// The whole file.
pub(crate) fn svg(plot: &Plot) -> String {
    let (end, top) = (plot.end(), plot.top());
    let x = |time: f64| LEFT + time / end * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let mut out = String::new();
    let mut put = |text: std::fmt::Arguments<'_>| {
        // Writing to a string does not fail.
        let _ = out.write_fmt(text);
        out.push('\n');
    };
    put(format_args!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"##
    ));
    put(format_args!(
        r##"<rect width="100%" height="100%" fill="#fff"/>"##
    ));
    put(format_args!(
        r##"<text x="{LEFT}" y="24" font-size="16">{}</text>"##,
        escape(&plot.title)
    ));
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let at = y(value);
        put(format_args!(
            r##"<path d="M{LEFT} {at:.1}H{:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            number(value, top)
        ));
    }
    for (place, name) in places(plot) {
        put(format_args!(
            r##"<path d="M{0:.1} {1}v4" stroke="#888"/><text x="{0:.1}" y="{2:.1}" text-anchor="middle">{3}</text>"##,
            x(place),
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 18.0,
            escape(&name)
        ));
    }
    put(format_args!(
        r##"<text x="{LEFT}" y="{:.1}">{}</text>"##,
        TOP - 8.0,
        escape(plot.unit)
    ));
    put(format_args!(
        r##"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
        WIDTH - RIGHT,
        HEIGHT - 6.0,
        "seconds"
    ));
    for (time, _) in &plot.marks {
        put(format_args!(
            r##"<path d="M{0:.1} {TOP}V{1:.1}" stroke="#888" stroke-dasharray="4 3"/>"##,
            x(*time),
            HEIGHT - BOTTOM
        ));
    }
    for (number, curve) in plot.curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let mut path = String::new();
        for (time, value) in &curve.points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", x(*time), y(*value));
        }
        if path.is_empty() {
            continue;
        }
        put(format_args!(
            r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"##
        ));
        let line = TOP + 16.0 * f64::from(u8::try_from(number).unwrap_or(u8::MAX));
        put(format_args!(
            r##"<text x="{:.1}" y="{line:.1}" fill="{colour}">{}</text>"##,
            WIDTH - RIGHT + 10.0,
            escape(&curve.name)
        ));
    }
    // Above the curves, each with a rim.
    for (number, (time, what)) in plot.marks.iter().enumerate() {
        // Neighbours alternate in height, so that their texts do not cover each other.
        let height = TOP + 12.0 + f64::from(u8::try_from(number % 3).unwrap_or(0)) * 14.0;
        put(format_args!(
            r##"<text x="{:.1}" y="{height:.1}" fill="#555" stroke="#fff" stroke-width="3" paint-order="stroke">{}</text>"##,
            x(*time) + 4.0,
            escape(what)
        ));
    }
    put(format_args!("</svg>"));
    out
}

/// Returns the places below the axis where a number is written: at most ten, at round numbers.
fn places(plot: &Plot) -> Vec<(f64, String)> {
    let end = plot.end();
    let step = super::round_up(end / 10.0);
    let digits = usize::from(step < 1.0) + usize::from(step < 0.1);
    (0u32..=10)
        .map(|n| step * f64::from(n))
        .take_while(|at| *at <= end * 1.001)
        .map(|at| (at, format!("{at:.digits$}")))
        .collect()
}

/// With as many places as the axis needs.
fn number(value: f64, top: f64) -> String {
    let places = if top < 0.4 {
        3
    } else if top < 8.0 {
        1
    } else {
        0
    };
    format!("{value:.places$}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn curves_marks_and_escaped_texts() {
        let svg = svg(&sample());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        for part in ["a &lt;b&gt; &amp; c", ">hash<", ">lz4<", "lz4 stopped"] {
            assert!(svg.contains(part), "{part}");
        }
        assert_eq!(svg.matches(r#"stroke-width="2""#).count(), 2);
        // The largest value touches the top of the axis.
        assert!(svg.contains(&format!(" {TOP:.1}\"")), "{svg}");
    }

    #[test]
    fn an_empty_plot_is_a_picture_too() {
        assert!(svg(&Plot::default()).ends_with("</svg>\n"));
    }
}
