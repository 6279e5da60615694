//! The interferer: as many callers as it is told, each of which takes a page, holds it, lets it go, and takes another.

use super::super::plan::PAGE;
use super::desk::Desk;
use super::told::Told;
use anyhow::Result;
use tranship::{Domain, PoolOptions};

pub(super) fn run(domain: &Domain, told: &Told, hold_ms: u64) -> Result<()> {
    let options = PoolOptions::new(PAGE * 1024)
        .chunk_bytes(PAGE)
        .name("interferer");
    let mut desk = Desk::new(domain.create_pool(options)?, hold_ms, 77);
    while desk.report() {
        desk.serve()?;
        while let Some((_, page)) = desk.done() {
            drop(page);
        }
        let wanted = usize::try_from(told.callers())?;
        desk.leave(desk.callers().saturating_sub(wanted));
        for _ in desk.callers()..wanted {
            desk.come(0)?;
        }
        std::thread::sleep(desk.pause());
    }
    Ok(())
}
