//! The interferer: as many callers as it is told, each of which takes a page, holds it, lets it go, and takes another.

use super::super::plan::PAGE;
use super::told::Told;
use super::work_queue::WorkQueue;
use anyhow::Result;
use tranship::{Domain, PoolOptions};

pub(super) fn run(domain: &Domain, told: &Told, hold_ms: u64) -> Result<()> {
    let options = PoolOptions::new(PAGE * 1024)
        .chunk_bytes(PAGE)
        .name("interferer");
    let mut queue = WorkQueue::new(domain.create_pool(options)?, hold_ms, 77);
    while queue.report() {
        queue.serve()?;
        while let Some((_, page)) = queue.done() {
            drop(page);
        }
        let wanted = usize::try_from(told.callers())?;
        queue.leave(queue.callers().saturating_sub(wanted));
        for _ in queue.callers()..wanted {
            queue.come(0)?;
        }
        std::thread::sleep(queue.pause());
    }
    Ok(())
}
