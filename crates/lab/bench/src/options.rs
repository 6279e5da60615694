//! Options of all benches on the command line.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;

/// Options of all benches.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Runs of each system, alternating [default: 11; with --quick 3].
    #[arg(long)]
    runs: Option<usize>,
    /// Fewer and shorter runs: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Milliseconds to sample in each run [default: 50; with --quick 5].
    #[arg(long)]
    sample_ms: Option<u64>,
    /// Only these systems (can be repeated, or separated by commas).
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',')]
    only: Vec<String>,
    /// Cores of the two sides [default: the first two that this program may use, or the only one]. Blocking round trips use the
    /// first for both, unless this is given.
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "A,B")]
    cores: Vec<usize>,
}

impl Common {
    pub fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 3 } else { 11 }).max(1)
    }

    /// Whether it only shows that it works.
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    /// Returns the values to measure: all, or with `--quick` the first and the last.
    pub fn some_of<T: Copy>(&self, all: &[T]) -> Vec<T> {
        match all {
            [first, .., last] if self.quick => vec![*first, *last],
            _ => all.to_vec(),
        }
    }

    /// For benches whose runs are long.
    pub fn runs_or(&self, default: usize) -> usize {
        self.runs.unwrap_or(default).max(1)
    }

    pub fn sample_ms(&self) -> u64 {
        self.sample_ms
            .unwrap_or(if self.quick { 5 } else { 50 })
            .max(1)
    }

    pub fn budget(&self) -> Duration {
        Duration::from_millis(self.sample_ms())
    }

    /// The two cores; one given means both sides on it.
    pub fn cores(&self) -> [usize; 2] {
        match self.cores[..] {
            [] => look(),
            [one] => [one, one],
            [a, b, ..] => [a, b],
        }
    }

    /// All cores that this program may use, or those that are named.
    pub fn processors(&self) -> Vec<usize> {
        match &self.cores[..] {
            [] => allowed(),
            named => named.to_vec(),
        }
    }

    /// The two cores for sides that block.
    pub fn blocking_cores(&self) -> [usize; 2] {
        let [one, two] = self.cores();
        if self.cores.is_empty() {
            [one, one]
        } else {
            [one, two]
        }
    }

    pub fn wants(&self, system: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|s| s == system)
    }

    /// Returns whether `name` is among the given names, or no name is given.
    pub fn is_named(&self, given: &[String], name: &str) -> bool {
        given.is_empty() || given.iter().any(|one| one == name)
    }

    /// Refuses names in `--only` that are not among `known`.
    pub fn check(&self, known: &[&str]) -> anyhow::Result<()> {
        match self.only.iter().find(|s| !known.contains(&s.as_str())) {
            None => Ok(()),
            Some(name) => anyhow::bail!("no system {name} here; there are: {}", known.join(", ")),
        }
    }
}

/// The cores that sides get if none are named. The first caller must not be pinned yet: see `main`.
pub fn look() -> [usize; 2] {
    static FOUND: OnceLock<[usize; 2]> = OnceLock::new();
    *FOUND.get_or_init(|| match allowed()[..] {
        [one, two, ..] => [one, two],
        [one] => [one, one],
        [] => [0, 1],
    })
}

/// The cores that the calling thread may use.
fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    all.filter(|&core| set.is_set(core)).collect()
}

/// A number of bytes such as 64, 4K, 1M.
pub fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1 << 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let n: usize = digits.parse().map_err(|_| format!("not a size: {text}"))?;
    match n.checked_mul(unit) {
        Some(n) if (8..=1 << 30).contains(&n) && n.is_multiple_of(8) => Ok(n),
        _ => Err(format!("{text}: a size is a multiple of 8 from 8 to 1024M")),
    }
}

/// A [`size`] that is a multiple of the page.
pub fn pages(text: &str) -> Result<usize, String> {
    let page = rustix::param::page_size();
    match size(text) {
        Ok(n) if !n.is_multiple_of(page) => Err(format!("{text}: not a multiple of {page} bytes")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("1M"), Ok(1 << 20));
        for bad in ["", "K", "7", "12x", "2048M", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
