//! The interferer, in the paper's rhythm: every 10 ms it allocates and frees, again and again as many pages at once as it
//! is told, until it has used a tenth of the processor's time, as the paper's does, or the 10 ms are over.

use super::super::lines::{Progress, now_ns, say};
use super::super::plan::PAGE;
use super::told::Told;
use anyhow::Result;
use std::time::{Duration, Instant};
use tranship::{Domain, ErrorKind, PoolOptions};

const PERIOD: Duration = Duration::from_millis(10);
/// Processor time of a period's operations. The paper has 100,000 operations, which take "around 10% cpu time" there.
const BUSY: Duration = Duration::from_millis(1);
/// How often the parent hears how far it is.
const REPORT: Duration = Duration::from_millis(50);

pub(super) fn run(domain: &Domain, told: &Told) -> Result<()> {
    let options = PoolOptions::new(PAGE * 1024)
        .chunk_bytes(PAGE)
        .name("interferer");
    let pool = domain.create_pool(options)?;
    let page = usize::try_from(PAGE)?;
    let mut progress = Progress::default();
    let mut held = Vec::new();
    let mut begin = Instant::now();
    let mut said: Option<Instant> = None;
    loop {
        let enough = processor_time() + BUSY;
        while begin.elapsed() < PERIOD {
            if held.len() as u64 >= told.callers() {
                if held.is_empty() || processor_time() >= enough {
                    break;
                }
                held.clear();
                continue;
            }
            match pool.alloc_timeout(page, PERIOD) {
                Ok(mut new) => {
                    new[0] = 1;
                    held.push(new);
                    progress.done += 1;
                }
                // It begins anew: memory that it holds without the rest is of no use.
                Err(e) if e == ErrorKind::TimedOut || e == ErrorKind::OutOfMemory => {
                    held.clear();
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if said.is_none_or(|said| said.elapsed() >= REPORT) {
            said = Some(Instant::now());
            progress.at_ns = now_ns();
            if !say(&progress) {
                return Ok(());
            }
        }
        begin += PERIOD;
        let now = Instant::now();
        // A period that was missed is not made up for.
        match begin.checked_duration_since(now) {
            Some(left) => std::thread::sleep(left),
            None => begin = now,
        }
    }
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}
