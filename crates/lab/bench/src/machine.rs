//! The machine on which the numbers were measured.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// The `machine` of a report.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    pub logical_cores: usize,
    pub kernel: String,
    /// Transparent huge pages of shared memory: the setting in force.
    pub thp_shmem: String,
    pub virtual_machine: bool,
    /// Cores of the two sides, runs, and time sampled per run: how the rows were measured.
    pub cores: [usize; 2],
    pub runs: usize,
    pub sample_ms: u64,
    /// Round trip of one cache line between the two cores, nothing else: the floor below every floor. Virtual
    /// cores move between real ones, and this moves with them.
    pub cache_line_ns: f64,
    /// Share of all cores' time that the host gave to others while we measured, as far as it says so.
    pub stolen_percent: f64,
    /// Versions of the peers, as far as known.
    pub peers: BTreeMap<String, String>,
}

/// Ticks of all cores so far: stolen, and in all.
fn ticks() -> (u64, u64) {
    let stat = line("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; what follows is counted among them already.
    let fields: Vec<u64> = first
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|f| f.parse().ok())
        .collect();
    (fields.get(7).copied().unwrap_or(0), fields.iter().sum())
}

static BEGUN: std::sync::OnceLock<(u64, u64)> = std::sync::OnceLock::new();

/// The measuring begins.
pub fn begin() {
    BEGUN.get_or_init(ticks);
}

fn stolen_percent() -> f64 {
    let (before, now) = (BEGUN.get_or_init(ticks), ticks());
    let all = now.1.saturating_sub(before.1).max(1) as f64;
    (now.0.saturating_sub(before.0) as f64 / all * 1000.0).round() / 10.0
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The word in brackets of a kernel's list of choices.
fn chosen(list: &str) -> String {
    let inner = list
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or_else(|| "unknown".to_owned(), |(word, _)| word.to_owned())
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Machine {
    pub fn look(cores: [usize; 2], runs: usize, sample_ms: u64) -> Self {
        let cpu = line("/proc/cpuinfo").unwrap_or_default();
        let huge = line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let mut peers = BTreeMap::new();
        if cfg!(feature = "iceoryx2") {
            peers.insert("iceoryx2".to_owned(), "0.10.0".to_owned());
        }
        Self {
            cpu: field(&cpu, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            logical_cores: cpu.lines().filter(|l| l.starts_with("processor")).count(),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            thp_shmem: chosen(&huge.unwrap_or_default()),
            virtual_machine: field(&cpu, "flags")
                .is_some_and(|f| f.split(' ').any(|w| w == "hypervisor")),
            cores,
            runs,
            sample_ms,
            cache_line_ns: 0.0,
            stolen_percent: stolen_percent(),
            peers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_texts() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "unknown");
        let cpu = "processor\t: 0\nmodel name\t: Some CPU: fast\n";
        assert_eq!(field(cpu, "model name").as_deref(), Some("Some CPU: fast"));
        assert_eq!(field(cpu, "absent"), None);
    }
}
