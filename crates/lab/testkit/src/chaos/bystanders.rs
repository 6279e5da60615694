//! Load of the machine by other programs.

use super::Party;
use crate::Peer;
use std::time::Instant;

/// Processor time up to some moment, seconds.
#[derive(Debug)]
pub(super) struct Bystanders {
    at: Instant,
    all: f64,
    ours: f64,
}

impl Bystanders {
    pub fn now(parties: &[Party]) -> Self {
        let living = parties.iter().filter_map(Party::peer).map(Peer::pid);
        Self {
            at: Instant::now(),
            all: busy().unwrap_or(0.0),
            ours: own() + living.filter_map(of).sum::<f64>(),
        }
    }

    /// Processors that others have kept busy since then, on average.
    pub fn used(&self, parties: &[Party]) -> f64 {
        let now = Self::now(parties);
        let time = now.at.duration_since(self.at).as_secs_f64();
        (((now.all - self.all) - (now.ours - self.ours)) / time.max(0.01)).max(0.0)
    }
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the time of all processors: user, nice, system; irq, softirq, steal (proc(5)).
fn busy() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let fields = stat.lines().next()?.split_whitespace().skip(1);
    let fields: Vec<u64> = fields.map_while(|f| f.parse().ok()).collect();
    let idle = |at: &usize| matches!(at, 3 | 4);
    let busy = (0..fields.len().min(8)).filter(|at| !idle(at));
    Some(seconds(busy.map(|at| fields[at]).sum()))
}

/// Returns the time of a living process.
fn of(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have blanks in it; the rest begins with the state, field 3.
    let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| rest.get(number - 3)?.parse::<u64>().ok();
    Some(seconds(field(14)? + field(15)?))
}

/// Returns the processor time of this process and of its ended children.
fn own() -> f64 {
    let of = |who| {
        // SAFETY: all-zero is a valid `rusage`, into which the kernel writes.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_where_it_goes() {
        let before = (busy().expect("/proc"), own());
        let me = of(std::process::id()).expect("/proc");
        // Work until the kernel's ticks show it.
        while of(std::process::id()).expect("/proc") < me + 0.1 {
            std::hint::black_box((0..10_000u64).sum::<u64>());
        }
        assert!(own() - before.1 > 0.05);
        assert!(busy().expect("/proc") - before.0 > 0.05);
    }
}
