//! A picture of something over time, as SVG and as text.

mod svg;
mod text;

pub(crate) use svg::svg;
pub(crate) use text::text;

/// Curves over one time axis, with marks where something happened.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Plot {
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// Seconds and values, times rising.
    pub curves: Vec<Curve>,
    /// Seconds and what happened.
    pub marks: Vec<(f64, String)>,
}

/// One line of the picture.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The last time in it.
    fn end(&self) -> f64 {
        let times = self
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(time, _)| *time));
        times
            .chain(self.marks.iter().map(|(time, _)| *time))
            .fold(0.0, f64::max)
            .max(1e-3)
    }

    /// The end of the value axis: a round number not below the largest value.
    fn top(&self) -> f64 {
        let values = self
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(_, value)| *value));
        above(values.fold(0.0, f64::max), &QUARTERED)
    }
}

/// Numbers of which a quarter is a round number.
const QUARTERED: [f64; 10] = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];

/// 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    above(value, &[1.0, 2.0, 5.0, 10.0])
}

/// The first of these, times a power of ten, that is not below a value.
fn above(value: f64, steps: &[f64]) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let found = steps.iter().map(|step| step * power);
    // What is a rounding error above is not above.
    found
        .clone()
        .find(|round| *round >= value * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
fn sample() -> Plot {
    let curve = |name: &str, values: &[f64]| Curve {
        name: name.to_owned(),
        points: values
            .iter()
            .zip(0u8..)
            .map(|(value, time)| (f64::from(time), *value))
            .collect(),
    };
    Plot {
        title: "a <b> & c".to_owned(),
        unit: "MiB/s",
        curves: vec![
            curve("hash", &[0.0, 900.0, 1000.0]),
            curve("lz4", &[0.0, 400.0, 0.0]),
        ],
        marks: vec![(1.5, "lz4 stopped".to_owned())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert!((round_up(1000.0) - 1000.0).abs() < 1e-9);
        assert!((round_up(1001.0) - 2000.0).abs() < 1e-9);
        assert!((round_up(0.3) - 0.5).abs() < 1e-9);
        assert!((round_up(0.0) - 1.0).abs() < 1e-9);
        assert!((above(299.0, &QUARTERED) - 320.0).abs() < 1e-9);
        assert!((above(1.6000000000001, &QUARTERED) - 1.6).abs() < 1e-9);
        assert!((sample().end() - 2.0).abs() < 1e-9);
    }
}
