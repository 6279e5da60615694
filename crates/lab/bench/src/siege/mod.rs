//! `siege`: a manager under hostile clients of two users, and what an honest user sees of it.
//!
//! Manager, honest clients and attackers are processes of four users, so that this needs root. The attackers are the testkit's:
//! everything that is known to have stopped a manager, and everything malformed, in random order. The honest client speaks the
//! protocol by hand, so that what is measured is the manager and nothing of the library.

mod cast;
mod channels;
mod clients;
mod groups;
mod hoards;
mod pair;
mod stage;
mod watch;

use anyhow::Result;
use tranship_testkit::hostile::Load;
use tranship_testkit::is_root;

use crate::options::Common;
use crate::plan::Outcome;
pub use clients::PROMISED;

/// What is measured.
pub const MODES: [&str; 3] = ["clients", "channels", "hoards"];

/// Measures; nothing without root, after saying so.
pub fn bench(common: &Common, attackers: usize, modes: &[String]) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if !is_root() {
        eprintln!("SKIPPED: siege: needs root, to be four users");
        return Ok(outcome);
    }
    if let Err(why) = Load::whole() {
        eprintln!("SKIPPED: of siege, files that nobody answers for: {why}");
    }
    let wants = |mode: &str| modes.is_empty() || modes.iter().any(|m| m == mode);
    if wants("clients") {
        clients::measure(common, attackers, &mut outcome)?;
    }
    if wants("channels") {
        channels::measure(common, attackers, &mut outcome)?;
    }
    if wants("hoards") {
        hoards::measure(common, &mut outcome)?;
    }
    Ok(outcome)
}
