//! The picture: how long operations take at most, over how many of them; one for each placement that was met.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::log::TIMER;
use crate::plot::{self, Along, Line};
use crate::report::{Row, bytes};

/// Shares of all operations, below which a time lies.
const SHARES: [f64; 8] = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0];

/// Draws PREFIX-near.svg and PREFIX-far.svg, or PREFIX.svg where there are no placements. The largest payload alone.
pub fn save(rows: &[Row], prefix: &Path) -> Result<()> {
    let payload = rows.iter().filter_map(|row| row.key.payload_bytes).max();
    let mut places: Vec<Option<&str>> = rows.iter().map(|row| row.key.placement).collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        let of = rows
            .iter()
            .filter(|row| row.key.placement == place && row.key.payload_bytes == payload);
        let mut lines: Vec<Line> = of.map(line).collect();
        // The timer is everybody's.
        let timers = lines.iter_mut().filter(|line| line.name.ends_with(TIMER));
        timers.for_each(|line| TIMER.clone_into(&mut line.name));
        let mut seen = false;
        lines.retain(|line| line.name != TIMER || !std::mem::replace(&mut seen, true));
        let cores = place.map_or("both sides on one core".to_owned(), |place| {
            format!("cores {place}")
        });
        let size = payload.map(bytes).unwrap_or_default();
        let title = format!("Single operations at worst, {size}, {cores}");
        plot::save(&file(prefix, place), &title, Along::Share, &lines)?;
    }
    Ok(())
}

fn file(prefix: &Path, place: Option<&str>) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    if let Some(place) = place {
        name.push(format!("-{place}"));
    }
    name.push(".svg");
    name.into()
}

fn line(row: &Row) -> Line {
    let all: u64 = row.histogram.iter().map(|(_, n)| n).sum();
    let at = |share: f64| {
        let mut seen = 0;
        let wanted = share * all as f64;
        let found = row.histogram.iter().find(|(_, n)| {
            seen += n;
            seen as f64 >= wanted
        });
        found.or(row.histogram.last()).map(|(ns, _)| *ns)
    };
    // A share that so few samples cannot tell from all of them is left out.
    let told = SHARES
        .iter()
        .enumerate()
        .filter(|(_, share)| **share == 1.0 || (1.0 - **share) * all as f64 >= 1.0);
    Line {
        name: format!("{} {}", row.system, row.key.op),
        points: told
            .filter_map(|(_, share)| Some((*share, at(*share)?.max(1.0))))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_of_quantiles_that_the_samples_can_tell() {
        let key = crate::report::Key {
            op: "send".to_owned(),
            ..Default::default()
        };
        let row = Row {
            histogram: vec![(10.0, 900), (20.0, 99), (500.0, 1)],
            ..Row::of("a", key, &[])
        };
        let line = line(&row);
        assert_eq!(line.name, "a send");
        let want = [
            (0.0, 10.0),
            (0.5, 10.0),
            (0.9, 10.0),
            (0.99, 20.0),
            (0.999, 20.0),
            (1.0, 500.0),
        ];
        assert_eq!(line.points, want);
    }
}
