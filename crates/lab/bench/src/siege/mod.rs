//! `siege`: a manager under hostile clients of two users, and what an honest user sees of it.
//!
//! Manager, honest clients and attackers are processes of four users, so that this needs root. The attackers are the testkit's:
//! everything that is known to have stopped a manager, and everything malformed, in random order. The honest client speaks the
//! protocol by hand, so that what is measured is the manager and nothing of the library.

mod cast;
mod channels;
mod clients;
mod groups;
mod pair;
mod stage;
mod watch;

use anyhow::Result;
use tranship_testkit::hostile::Load;
use tranship_testkit::is_root;

use crate::bench::Bench;
use crate::options::Common;
use crate::plan::Outcome;

/// Subject of the measurement.
const MODES: [&str; 2] = ["clients", "channels"];

#[derive(Debug, clap::Args)]
pub struct Siege {
    /// Attacking processes, of two users.
    #[arg(long, default_value_t = 8)]
    attackers: usize,
    /// Subject of the measurement [default: all].
    #[arg(long, value_delimiter = ',', value_parser = MODES)]
    mode: Vec<String>,
}

impl Bench for Siege {
    /// The product alone.
    fn systems(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Nothing without root, after saying so.
    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        if !is_root() {
            eprintln!("SKIPPED: siege: needs root, to be four users");
            return Ok(outcome);
        }
        if let Err(why) = Load::whole() {
            eprintln!("SKIPPED: of siege, files that nobody answers for: {why}");
        }
        if common.is_named(&self.mode, "clients") {
            clients::measure(common, self.attackers, &mut outcome)?;
        }
        if common.is_named(&self.mode, "channels") {
            channels::measure(common, self.attackers, &mut outcome)?;
        }
        Ok(outcome)
    }
}
