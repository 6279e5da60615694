//! The picture as lines of text: one block chart a curve, all to the same scale.

use super::{Curve, Plot};

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// As many columns as the terminal has.
pub(crate) fn text(plot: &Plot, columns: usize) -> Vec<String> {
    let names = plot
        .curves
        .iter()
        .map(|curve| curve.name.chars().count())
        .max()
        .unwrap_or(0);
    let width = columns.saturating_sub(names + 18).clamp(10, 200);
    let (end, top) = (plot.end(), plot.top());
    let mut lines = vec![plot.title.clone()];
    for curve in &plot.curves {
        let peak = curve
            .points
            .iter()
            .map(|(_, value)| *value)
            .fold(0.0, f64::max);
        let chart: String = buckets(curve, width, end)
            .into_iter()
            .map(|value| block(value, top))
            .collect();
        lines.push(format!(
            "{:names$} |{chart}| peak {peak:.0} {}",
            curve.name, plot.unit
        ));
    }
    for (time, what) in &plot.marks {
        let at = column(*time, width, end);
        lines.push(format!("{:names$}  {:at$}^ {time:.1} s: {what}", "", ""));
    }
    lines
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // clamped
fn column(time: f64, width: usize, end: f64) -> usize {
    ((time / end * width as f64).max(0.0) as usize).min(width - 1)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped
fn block(value: f64, top: f64) -> char {
    BLOCKS[((value / top * 8.0).round().max(0.0) as usize).min(8)]
}

/// The mean of the points that fall into each column; a column without one keeps the value before.
fn buckets(curve: &Curve, width: usize, end: f64) -> Vec<f64> {
    let mut sums = vec![(0.0, 0u32); width];
    for (time, value) in &curve.points {
        let (sum, count) = &mut sums[column(*time, width, end)];
        *sum += value;
        *count += 1;
    }
    let mut last = 0.0;
    let mut mean = |(sum, count): (f64, u32)| {
        if count > 0 {
            last = sum / f64::from(count);
        }
        last
    };
    sums.into_iter().map(&mut mean).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn one_line_a_curve_and_one_a_mark() {
        let lines = text(&sample(), 60);
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].starts_with("hash |") && lines[1].contains('█'),
            "{lines:?}"
        );
        assert!(lines[2].ends_with("peak 400 MiB/s"), "{lines:?}");
        assert!(lines[3].ends_with("^ 1.5 s: lz4 stopped"), "{lines:?}");
    }

    #[test]
    fn narrow_terminals_and_empty_plots_work() {
        assert_eq!(text(&Plot::default(), 0).len(), 1);
        assert!(!text(&sample(), 3).is_empty());
    }
}
