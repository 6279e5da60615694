//! A value that changes over time.

/// Points in milliseconds, rising, with straight lines between; constant before the first and after the last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Curve(pub Vec<(u64, f64)>);

impl Curve {
    /// Always the same.
    pub fn flat(value: f64) -> Curve {
        Curve(vec![(0, value)])
    }

    /// Makes a curve of these values, each from its time on.
    pub fn steps(steps: &[(u64, f64)]) -> Curve {
        let mut points = Vec::new();
        for (at, value) in steps {
            if let Some((_, before)) = points.last().copied() {
                points.push((at.saturating_sub(1), before));
            }
            points.push((*at, *value));
        }
        Curve(points)
    }

    /// Returns the value at a time.
    pub fn at(&self, ms: u64) -> f64 {
        let next = self.0.partition_point(|(at, _)| *at <= ms);
        match (
            next.checked_sub(1).and_then(|i| self.0.get(i)),
            self.0.get(next),
        ) {
            (Some((t0, v0)), Some((t1, v1))) => {
                let part = super::num::real(ms - t0) / super::num::real((t1 - t0).max(1));
                v0 + (v1 - v0) * part
            }
            (Some((_, v)), None) | (None, Some((_, v))) => *v,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Curve;

    #[test]
    fn lines_and_steps() {
        let ramp = Curve(vec![(10, 5.0), (20, 15.0)]);
        assert_eq!(
            [0, 10, 15, 20, 99].map(|t| ramp.at(t)),
            [5.0, 5.0, 10.0, 15.0, 15.0]
        );
        let steps = Curve::steps(&[(0, 1.0), (10, 7.0)]);
        assert_eq!([0, 9, 10, 50].map(|t| steps.at(t)), [1.0, 1.0, 7.0, 7.0]);
        assert_eq!((Curve::flat(3.0).at(7), Curve::default().at(7)), (3.0, 0.0));
    }
}
