//! `carriers`: a buffer is moved and given back, one in flight, by each way that bytes travel and at each level of
//! trust; beside a socket that carries them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tranship_core::Trust;
use tranship_transport::net::{CREDENTIALS_VARIABLE, certificate};

use crate::bench::Bench;
use crate::case::{Case, Touch, Wait};
use crate::messages::{self, once};
use crate::options::{Common, pages};
use crate::party;
use crate::peer::{Entry, ROLES, entry};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::systems::kernel::{Answered, Bytes};
use crate::systems::tranship::Moved;

/// A Unix socket that carries the bytes there, and eight back.
const STREAM: &str = "stream";
const SYSTEMS: [&str; 6] = ["shm", "local", "copy", "tcp+plain", "tcp", STREAM];
const LEVELS: [Trust; 4] = [Trust::Full, Trust::Half, Trust::Producer, Trust::None];
/// So that the allocator is in the path, and not much memory.
const BUFFERS: usize = 4;

#[derive(Debug, clap::Args)]
pub struct Carriers {
    /// Whether 8 bytes of the buffer are written and read, or travel as metadata [default: untouched, then touched].
    #[arg(long, value_parser = ["untouched", "touched"])]
    mode: Vec<String>,
    /// Levels of trust [default: all].
    #[arg(long, value_delimiter = ',', value_parser = LEVELS.map(Trust::name))]
    trust: Vec<String>,
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
                let case = Case {
                    touch,
                    payload,
                    buffers: BUFFERS,
                    ..messages::trip(common, Wait::Spin)
                };
                cells.extend(self.cells(common, mode, &case));
            }
            outcome.group(common.runs(), cells);
        }
        Ok(outcome)
    }
}

impl Carriers {
    fn cells(&self, common: &Common, mode: &'static str, case: &Case) -> Vec<Cell<'static>> {
        let mut out = Vec::new();
        for system in SYSTEMS.into_iter().filter(|name| common.wants(name)) {
            // Inside a process handles travel, and carriers carry bytes: both cost the same at every level.
            let has_levels = system == "shm";
            for level in LEVELS {
                let is_wanted = match has_levels {
                    true => common.is_named(&self.trust, level.name()),
                    false => level == Trust::Producer,
                };
                if !is_wanted {
                    continue;
                }
                let case = Case {
                    way: (system, level),
                    ..case.clone()
                };
                let key = Key {
                    trust: has_levels.then(|| level.name()),
                    ..Key::of(mode).payload(case.payload)
                };
                let key = key.with("cores", case.cores_used());
                out.push(Cell::of(system, key, move |number| match system {
                    "local" => party::threads(number, &case.cores, |me, party| {
                        (MOVED.serve)(&case, ROLES[me], party, true)
                    }),
                    STREAM => once(&entry::<Bytes<Answered>>(), &case, number, true),
                    _ => once(&MOVED, &case, number, true),
                }));
            }
        }
        out
    }
}

const MOVED: Entry = entry::<Moved>();

/// Certificates for the time of a bench, where `tcp:` finds them.
#[derive(Debug)]
struct Credentials(PathBuf);

impl Credentials {
    /// Makes them. The program must not have started any thread yet.
    fn make() -> Result<Credentials> {
        let place = std::env::temp_dir().join(format!("tranship-bench-{}", std::process::id()));
        let (made, life) = (Credentials(place), Duration::from_secs(3600));
        let (authority, own) = (made.0.join("authority"), made.0.join("own"));
        let names = ["127.0.0.1".to_owned()];
        let issued = certificate::init(&authority, "bench", life)
            .and_then(|()| certificate::issue_into(&authority, "bench", &names, life, &own));
        issued.map_err(anyhow::Error::msg)?;
        // SAFETY: nobody else reads the environment meanwhile: there is no other thread.
        unsafe { std::env::set_var(CREDENTIALS_VARIABLE, own) };
        Ok(made)
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        // At worst a few files stay.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
