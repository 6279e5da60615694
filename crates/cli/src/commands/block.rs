//! `tranship block`: a disk's blocks over channels.

mod bench;
mod proxy;
mod serve;

use crate::args::block::{BlockAction, BlockArgs, ChannelArgs, NbdArgs, TrustArg};
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::sync::Arc;
use tranship::Trust;
use tranship_block::nbd::Export;
use tranship_block::{Endpoint, Store};

pub(super) fn run(args: &BlockArgs) -> Result<Answer> {
    match &args.action {
        BlockAction::Serve(args) => serve::run(args),
        BlockAction::Proxy(args) => proxy::run(args),
        BlockAction::Bench(args) => bench::run(args),
    }
}

fn endpoint(address: &str, channels: &ChannelArgs) -> Endpoint {
    let trust = match channels.trust {
        TrustArg::Full => Trust::Full,
        TrustArg::Half => Trust::Half,
        TrustArg::Producer => Trust::Producer,
        TrustArg::None => Trust::None,
    };
    Endpoint::new(address, trust)
}

fn export(args: &NbdArgs, store: impl FnOnce() -> Arc<dyn Store>) -> Result<Option<Export>> {
    let Some(at) = &args.nbd else {
        return Ok(None);
    };
    let export = Export::start(at, &args.export, store());
    let export = export.with_context(|| format!("serving NBD at {at}"))?;
    say(&format!("NBD at {}", export.address()))?;
    Ok(Some(export))
}

/// For people, and for scripts that wait for it.
fn say(line: &str) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits for SIGTERM or SIGINT.
fn until_signalled(mut signals: Signals) {
    signals.forever().next();
}

/// From now on, these signals wait to be taken.
fn signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT]).context("taking signals")
}
