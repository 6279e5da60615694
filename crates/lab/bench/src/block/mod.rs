//! `block`: the block service against `nbdkit` (its file plugin) and `qemu-nbd`: the same image, the same requests, over
//! loopback.
//!
//! `tranship`, `nbdkit` and `qemu-nbd` are exports of the image to NBD clients; `tranship-proxy` and `tranship-net-proxy`
//! the same with a proxy without a cache between, whose server is reached over shared memory, or over TCP. `channel` and
//! `channel-net-proxy` are programs that ask over channels, without NBD: the server, and such a proxy. Each cell
//! runs against servers that are there for the whole bench.

mod channel;
mod nbd;
mod servers;
mod work;

use std::path::Path;

use anyhow::{Context, Result};

use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row};
use servers::{Place, Servers};
use work::Work;
pub use work::{Access, SYSTEMS};

/// The ways of asking, in the order of [`Work::mode`].
pub const MODES: [&str; 4] = ["read", "random-read", "write", "random-write"];

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub access: &'a [Access],
    pub modes: &'a [String],
    pub payloads: &'a [usize],
    pub depths: &'a [usize],
}

pub fn bench(common: &Common, grid: &Grid<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let here = std::env::current_exe()?;
    let folder = here.parent().context("where is this program?")?.to_owned();
    let dir = folder.join(format!("block-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let all = [Access::Buffered, Access::Direct];
    let access = if grid.access.is_empty() {
        &all[..]
    } else {
        grid.access
    };
    let done = access
        .iter()
        .try_for_each(|access| groups(common, grid, *access, &dir, &mut outcome));
    let _ = std::fs::remove_dir_all(&dir);
    done.map(|()| outcome)
}

fn groups(
    common: &Common,
    grid: &Grid<'_>,
    access: Access,
    dir: &Path,
    outcome: &mut Outcome,
) -> Result<()> {
    let servers = Servers::start(common, access, dir)?;
    let modes = MODES.into_iter().enumerate().filter(|(_, mode)| {
        grid.modes.is_empty() || grid.modes.iter().any(|wanted| wanted == mode)
    });
    for (number, mode) in common.some_of(&modes.collect::<Vec<_>>()) {
        for bytes in common.some_of(grid.payloads) {
            for &depth in grid.depths {
                let work = Work::new(number, bytes, depth, common);
                let cells = servers.places().map(|(system, place)| Cell {
                    system,
                    key: Key {
                        mode,
                        op: if access == Access::Direct {
                            "direct".to_owned()
                        } else {
                            String::new()
                        },
                        payload_bytes: Some(work.bytes),
                        depth: Some(work.depth),
                        ..Key::default()
                    },
                    measure: Box::new(move |_| {
                        let mut measured = match place {
                            Place::Nbd(port) => nbd::measure(*port, work)?,
                            Place::Channel(endpoint) => channel::measure(endpoint, work)?,
                        };
                        let rate = measured.per_second * work.bytes as f64 / f64::from(1 << 20);
                        measured.facts.insert("mib_per_second", rate);
                        if access == Access::Direct {
                            measured.op = "direct".to_owned();
                        }
                        Ok(vec![measured])
                    }),
                });
                outcome.group(common.runs(), cells.collect());
            }
        }
    }
    Ok(())
}

/// Time per request over its size: one at a time, all systems, the mode that was measured first.
pub fn picture(rows: &[Row], path: &Path) -> Result<()> {
    let Some(first) = rows.first() else {
        return Ok(());
    };
    let (mode, depth) = (
        first.key.mode,
        rows.iter().filter_map(|r| r.key.depth).max(),
    );
    let name = |row: &Row| {
        let same = row.key.mode == mode && row.key.op == first.key.op && row.key.depth == depth;
        same.then(|| row.system.clone())
    };
    let point = |row: &Row| Some((row.key.payload_bytes? as f64, 1e9 / row.per_second));
    let lines = plot::lines(rows, name, point);
    let depth = depth.unwrap_or(1);
    let title = format!("Block service, {mode}, {depth} under way: time per request over its size");
    plot::save(path, &title, Along::Bytes, &lines)
}
