//! Common start of the subcommands: endpoints, exports, signals.

use crate::args::block::{ChannelArgs, NbdArgs, TrustArg};
use crate::commands::connect::check_address;
use crate::output::say;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use tranship::{Domain, Trust};
use tranship_block::nbd::Export;
use tranship_block::{Endpoint, Store};

/// Makes an endpoint. An error in the address is reported at once, not tried again.
pub(super) fn endpoint(address: &str, channels: &ChannelArgs) -> Result<Endpoint> {
    check_address(address).with_context(|| address.to_owned())?;
    let trust = match channels.trust {
        TrustArg::Full => Trust::Full,
        TrustArg::Half => Trust::Half,
        TrustArg::Producer => Trust::Producer,
        TrustArg::None => Trust::None,
    };
    let here = address.starts_with("local:");
    Ok(Endpoint::new(address, trust).with_domains(move || {
        let member = Domain::builder().name("block");
        let domain = match here {
            true => member.embedded()?,
            false => member.connect()?,
        };
        tranship::net::add_to(&domain)?;
        Ok(domain)
    }))
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

/// Waits for SIGTERM or SIGINT.
pub(super) fn until_signalled(mut signals: Signals) {
    signals.forever().next();
}

/// Makes these signals wait to be taken, from now on.
pub(super) fn signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT]).context("taking signals")
}
