//! `tranship cache`: memcached's protocol.

use crate::args::cache::CacheArgs;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use tranship_cache::{Options, Server};

/// Below that a handful of pageblocks is all there is.
const LEAST: u64 = 8 << 20;

pub(super) fn run(args: &CacheArgs) -> Result<Answer> {
    ensure!(
        args.memory >= LEAST,
        "{} bytes of memory are too few for a cache: at least {LEAST} are needed",
        args.memory
    );
    ensure!(
        args.max_value <= args.memory / 2,
        "values of {} bytes do not go with {} bytes of memory: at most half of it",
        args.max_value,
        args.memory
    );
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("taking signals")?;
    let defaults = Options::default();
    let server = Server::start(Options {
        listen: args.listen,
        udp: args.udp,
        memory: args.memory,
        threads: args.threads.unwrap_or(defaults.threads),
        connections: args.connections,
        longest: usize::try_from(args.max_value)?,
        patience: args.patience,
        take_over: args.take_over.clone(),
        sending: defaults.sending,
    })
    .with_context(|| format!("serving at {}", args.listen))?;
    let mut out = output::stdout();
    writeln!(out, "memcached protocol at {}", server.address())?;
    if let Some(udp) = server.udp() {
        writeln!(out, "and by UDP at {udp}")?;
    }
    match (server.taken(), &args.take_over) {
        (Some(taken), _) => writeln!(
            out,
            "took over {} values ({}) and {} connections from process {}; {} values could not be read",
            taken.store.values,
            output::size(taken.store.bytes),
            taken.connections,
            taken.from,
            taken.store.refused
        )?,
        (None, Some(at)) => writeln!(out, "nobody serves at {}: begins empty", at.display())?,
        (None, None) => {}
    }
    out.flush()?;
    let handle = signals.handle();
    server.when_gone(move || handle.close());
    signals.forever().next();
    if server.is_gone() {
        writeln!(out, "handed over")?;
        out.flush()?;
    }
    server.stop();
    Ok(Answer::Yes)
}
