//! Common start of the subcommands: endpoints, exports, signals.

use crate::args::block::{ChannelArgs, NbdArgs, TrustArg};
use crate::commands::connect::check_address;
use crate::output::say;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::{Arc, Mutex, PoisonError};
use tranship::{Domain, Error, Trust};
use tranship_block::nbd::Export;
use tranship_block::{Endpoint, Store};

/// A domain that several endpoints have. The first user that needs it makes it.
pub(super) type Shared = Arc<Mutex<Option<Domain>>>;

fn member(here: bool) -> Result<Domain, Error> {
    let member = Domain::builder().name("block");
    let domain = match here {
        true => member.embedded()?,
        false => member.connect()?,
    };
    tranship::net::add_to(&domain)?;
    Ok(domain)
}

/// Makes an endpoint. An error in the address is reported at once, not tried again. Endpoints of other managers than this
/// process's own have the `shared` domain.
pub(super) fn endpoint(address: &str, channels: &ChannelArgs, shared: &Shared) -> Result<Endpoint> {
    check_address(address).with_context(|| address.to_owned())?;
    let trust = match channels.trust {
        TrustArg::Full => Trust::Full,
        TrustArg::Half => Trust::Half,
        TrustArg::Producer => Trust::Producer,
        TrustArg::None => Trust::None,
    };
    let here = address.starts_with("local:");
    let shared = Arc::clone(shared);
    Ok(Endpoint::new(address, trust).with_domains(move || {
        if here {
            return member(here);
        }
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let domain = shared.clone().map_or_else(|| member(here), Ok)?;
        Ok(shared.insert(domain).clone())
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
