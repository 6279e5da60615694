//! In words: how the cores lay while a bench measured, and what that leaves out.

use crate::placement::Placement;
use crate::report::{Key, Row};

/// Lines for the end of a report; none of benches that do not look.
pub fn said(rows: &[Row]) -> Vec<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.samples.is_some()).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let looked: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|row| row.key.placement.is_some())
        .collect();
    if looked.is_empty() {
        let why = "both sides were on one core: there is no near or far to tell apart";
        return vec![why.to_owned()];
    }
    let mut out = Vec::new();
    let mut unmet = Vec::new();
    for placement in [Placement::Near, Placement::Far] {
        match line(&looked, placement) {
            Some(line) => out.push(line),
            None => unmet.push(placement.name()),
        }
    }
    match unmet[..] {
        [] => {}
        [one] => out.push(format!(
            "cores {one}: not met, so nothing is said about it; measure again, or for longer (--runs)"
        )),
        _ => out.push(
            "neither near nor far was met for as long as a sample takes; what is said is of both, mixed".to_owned(),
        ),
    }
    out.push(discarded(&looked));
    out
}

/// The span of a cache line's way there and back.
fn line(rows: &[&Row], placement: Placement) -> Option<String> {
    let of = rows
        .iter()
        .filter(|row| row.key.placement == Some(placement.name()));
    let runs = of.flat_map(|row| &row.runs);
    let (mut samples, mut least, mut most) = (0, f64::MAX, 0.0f64);
    for one in runs {
        samples += one.samples;
        (least, most) = (least.min(one.line_ns), most.max(one.line_ns));
    }
    let name = placement.name();
    (samples > 0).then(|| {
        format!("cores {name}: {samples} samples; a cache line there and back took {least:.0} to {most:.0} ns meanwhile")
    })
}

/// Samples whose placement is not known.
fn discarded(rows: &[&Row]) -> String {
    // A cell's rows, one for each placement, all say the same number.
    let mut cells: Vec<(String, u64)> = Vec::new();
    for row in rows {
        let key = Key {
            placement: None,
            ..row.key.clone()
        };
        let cell = (
            format!("{} {key:?}", row.system),
            row.discarded_samples.unwrap_or(0),
        );
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    let sum: u64 = cells.iter().map(|(_, n)| n).sum();
    format!(
        "discarded, as the cache line said near before and far after, far before and near after, or was disturbed: {sum} samples"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Key;
    use crate::stats::Measured;

    fn row(system: &str, placement: Option<Placement>, line_ns: f64, discarded: u64) -> Row {
        let run = Measured {
            samples: 10,
            placement,
            p999_ns: 1.0,
            line_ns,
            ..Measured::rate(1.0)
        };
        let key = Key {
            mode: "spin",
            payload_bytes: Some(64),
            placement: placement.map(Placement::name),
            ..Key::default()
        };
        Row {
            discarded_samples: Some(discarded),
            ..Row::of(system, key, &[run])
        }
    }

    #[test]
    fn what_was_met_and_what_was_not() {
        let near = Some(Placement::Near);
        let far = Some(Placement::Far);
        let text = said(&[row("a", near, 80.0, 3), row("b", near, 110.0, 0)]).join("\n");
        assert!(
            text.contains("cores near: 20 samples; a cache line there and back took 80 to 110 ns"),
            "{text}"
        );
        assert!(text.contains("cores far: not met"), "{text}");
        assert!(text.contains("disturbed: 3 samples"), "{text}");
        let text = said(&[row("a", near, 80.0, 3), row("a", far, 450.0, 3)]).join("\n");
        assert!(
            !text.contains("not met") && text.contains("disturbed: 3 samples"),
            "{text}"
        );
        let text = said(&[row("a", Some(Placement::Unclear), 250.0, 10)]).join("\n");
        assert!(text.contains("neither near nor far"), "{text}");
        assert!(said(&[row("a", None, 0.0, 0)])[0].contains("one core"));
        assert!(said(&[]).is_empty());
    }
}
