//! `carriers`: a buffer is moved and given back, one in flight, by each way that bytes travel; next to a socket that carries them.

use anyhow::Result;
use clap::ValueEnum;

use super::Level;
use super::meet::Credentials;
use super::way::{STREAM, Way};
use crate::bench::Bench;
use crate::case::Touch;
use crate::options::{Common, pages};
use crate::plan::{Cell, Outcome};
use crate::report::Key;

const SYSTEMS: [&str; 6] = ["shm", "local", "copy", "tcp+plain", "tcp", STREAM];

#[derive(Debug, clap::Args)]
pub struct Carriers {
    /// Whether 8 bytes of the buffer are written and read, or travel as metadata [default: untouched, then touched].
    #[arg(long, value_parser = ["untouched", "touched"])]
    mode: Vec<String>,
    /// Levels of trust [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    trust: Vec<Level>,
    /// Buffer sizes, multiples of the page.
    #[arg(long, value_delimiter = ',', value_parser = pages, default_values = ["4K", "16K", "64K", "256K", "1M", "4M"])]
    payload: Vec<usize>,
}

impl Bench for Carriers {
    const REFERENCES: &'static [&'static str] = &["copy", STREAM];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let _credentials = Credentials::make()?;
        let mut outcome = Outcome::default();
        for (mode, touch) in [("untouched", Touch::Untouched), ("touched", Touch::Word)] {
            if !common.is_named(&self.mode, mode) {
                continue;
            }
            // All sizes in turn: whether they are alike is what is asked.
            let mut cells = Vec::new();
            for payload in common.some_of(&self.payload) {
                cells.extend(self.cells(common, mode, touch, payload));
            }
            outcome.group(common.runs(), cells);
        }
        Ok(outcome)
    }
}

impl Carriers {
    fn cells(
        &self,
        common: &Common,
        mode: &'static str,
        touch: Touch,
        payload: usize,
    ) -> Vec<Cell<'static>> {
        let mut out = Vec::new();
        for system in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
            // Inside a process handles travel, and carriers carry bytes: both cost the same at every level.
            let has_levels = system == "shm";
            let levels = match &self.trust[..] {
                _ if !has_levels => &[Level::Producer],
                [] => Level::value_variants(),
                some => some,
            };
            for level in levels {
                let way = Way {
                    scheme: system,
                    level: *level,
                    touch,
                    payload,
                    cores: common.cores(),
                    budget: common.budget(),
                };
                let key = Key {
                    mode,
                    payload_bytes: Some(payload),
                    cores: Some(1 + usize::from(way.cores[0] != way.cores[1])),
                    trust: has_levels.then(|| level.name()),
                    ..Key::default()
                };
                out.push(Cell {
                    system,
                    key,
                    measure: Box::new(move |number| way.measure(number)),
                });
            }
        }
        out
    }
}
