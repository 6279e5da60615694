//! `block`: the block service against `nbdkit` (its file plugin) and `qemu-nbd`: the same image, the same requests, over
//! loopback.
//!
//! `tranship`, `nbdkit` and `qemu-nbd` are exports of the image to NBD clients; `tranship-proxy` and `tranship-net-proxy`
//! the same with a proxy without a cache between, whose server is reached over shared memory, or over TCP. Programs that ask over
//! channels are measured by `tranship block bench`. Each cell runs against servers that are there for the whole bench.

mod nbd;
mod servers;
mod work;

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::bench::Bench;
use crate::options::{Common, pages};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use servers::Servers;
use work::Work;
use work::{Access, SYSTEMS};

/// The ways of asking, in the order of [`Work::mode`].
const MODES: [&str; 4] = ["read", "random-read", "write", "random-write"];

#[derive(Debug, clap::Args)]
pub struct Block {
    /// With the page cache, or without it [default: both].
    #[arg(long, value_enum, value_delimiter = ',')]
    access: Vec<Access>,
    /// What is asked [default: all].
    #[arg(long, value_delimiter = ',', value_parser = MODES)]
    mode: Vec<String>,
    /// Bytes of a request, multiples of the page.
    #[arg(long, value_delimiter = ',', value_parser = pages, default_values = ["4K", "64K", "1M"])]
    payload: Vec<usize>,
    /// Requests under way at a time.
    #[arg(long, value_delimiter = ',', default_values = ["1", "16"])]
    depth: Vec<usize>,
}

impl Bench for Block {
    const REFERENCES: &'static [&'static str] = &["nbdkit", "qemu-nbd"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let here = std::env::current_exe()?;
        let folder = here.parent().context("where is this program?")?;
        let dir = folder.join(format!("block-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let access = match &self.access[..] {
            [] => Access::value_variants(),
            some => some,
        };
        let mut each = access.iter();
        let done = each.try_for_each(|access| groups(common, self, *access, &dir, &mut outcome));
        let _ = std::fs::remove_dir_all(&dir);
        done.map(|()| outcome)
    }
}

fn groups(
    common: &Common,
    grid: &Block,
    access: Access,
    dir: &Path,
    outcome: &mut Outcome,
) -> Result<()> {
    let servers = Servers::start(common, access, dir)?;
    let modes = MODES
        .into_iter()
        .enumerate()
        .filter(|(_, mode)| common.is_named(&grid.mode, mode));
    for (number, mode) in common.some_of(&modes.collect::<Vec<_>>()) {
        for bytes in common.some_of(&grid.payload) {
            for &depth in &grid.depth {
                let work = Work::new(number, bytes, depth, common);
                let cells = servers.places.iter().map(|&(system, port)| Cell {
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
                        let mut measured = nbd::measure(port, work)?;
                        let rate = measured.per_second * work.bytes as f64 / f64::from(1 << 20);
                        measured.facts.insert("mib_per_second".into(), rate);
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
