//! What the subcommands begin with: endpoints, exports, signals.

use crate::args::block::{ChannelArgs, NbdArgs, TrustArg};
use crate::output;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::sync::Arc;
use tranship::Trust;
use tranship_block::nbd::Export;
use tranship_block::{Endpoint, Store};

pub(super) fn endpoint(address: &str, channels: &ChannelArgs) -> Endpoint {
    let trust = match channels.trust {
        TrustArg::Full => Trust::Full,
        TrustArg::Half => Trust::Half,
        TrustArg::Producer => Trust::Producer,
        TrustArg::None => Trust::None,
    };
    Endpoint::new(address, trust)
}

pub(super) fn export(
    args: &NbdArgs,
    store: impl FnOnce() -> Arc<dyn Store>,
) -> Result<Option<Export>> {
    let Some(at) = &args.nbd else {
        return Ok(None);
    };
    let export = Export::start(at, &args.export, store());
    let export = export.with_context(|| format!("serving NBD at {at}"))?;
    say(&format!("NBD at {}", export.address()))?;
    Ok(Some(export))
}

/// For people, and for scripts that wait for it.
pub(super) fn say(line: &str) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits for SIGTERM or SIGINT.
pub(super) fn until_signalled(mut signals: Signals) {
    signals.forever().next();
}

/// From now on, these signals wait to be taken.
pub(super) fn signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT]).context("taking signals")
}
