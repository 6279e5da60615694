//! The processes of an experiment.
//!
//! ```text
//!  client ──► stage 1 ══► stage 2 ══► ... ══► stage 6 ══╗     interferer: a pool of its own
//!     ▲        a pool      a pool              a pool   ║
//!     ╚═════════════════════ answers ═══════════════════╝
//! ```

mod client;
mod interferer;
mod pages;
mod stage;
mod told;
mod work_queue;

use crate::args::{PartArgs, PartRole};
use anyhow::Result;
use std::time::Duration;
use tranship::Domain;

/// Grace at the end of a run: all leave at once, and some find others gone before they are told themselves.
const FAREWELL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &PartArgs) -> Result<()> {
    let done = work(args);
    if done.is_err() {
        std::thread::sleep(FAREWELL); // told to leave meanwhile, this process ends
    }
    done
}

fn work(args: &PartArgs) -> Result<()> {
    let name = match args.role {
        PartRole::Stage | PartRole::Reader => format!("{} {}", args.role.name(), args.number),
        role => role.name().to_owned(),
    };
    let told = told::listen()?;
    let domain = Domain::builder()
        .name(&name)
        .socket(&args.socket)
        .autostart(false)
        .helper_thread(true)
        .connect()?;
    match args.role {
        PartRole::Client => client::run(&domain, &told),
        PartRole::Stage => stage::run(&domain, args.number, args.amount),
        PartRole::Interferer => interferer::run(&domain, &told, args.amount),
        PartRole::Writer => pages::write(&domain, args.number, args.amount),
        PartRole::Reader => pages::read(&domain, args.number),
    }
}
