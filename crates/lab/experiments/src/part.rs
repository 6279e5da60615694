//! The processes of an experiment.
//!
//! ```text
//!  client ══ connections ══ web server     interferer: a pool of its own     writer ══ pages ══► readers
//! ```

mod client;
mod interferer;
mod pages;
mod told;

use crate::args::{PartArgs, PartRole};
use crate::pinned;
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
        PartRole::Reader => format!("{} {}", args.role.name(), args.number),
        role => role.name().to_owned(),
    };
    if let Some(core) = args.core {
        pinned::stay(core)?;
    }
    let told = told::listen()?;
    let domain = Domain::builder()
        .name(&name)
        .socket(&args.socket)
        .autostart(false)
        .helper_thread(true)
        .connect()?;
    match args.role {
        PartRole::Client => client::run(&told, u16::try_from(args.amount)?),
        PartRole::Interferer => interferer::run(&domain, &told),
        PartRole::Writer => pages::write(&domain, args.number, args.amount),
        PartRole::Reader => pages::read(&domain, args.number),
    }
}
