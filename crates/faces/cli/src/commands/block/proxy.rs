//! `tranship block proxy`.

use super::setup::{Shared, endpoint, export, signals, until_signalled};
use crate::args::block::ProxyArgs;
use crate::exit::Answer;
use crate::output::say;
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use tranship_block::Cache;
use tranship_block::front::{Forwarding, Front};

pub(super) fn run(args: &ProxyArgs) -> Result<Answer> {
    if args.listen.is_none() && args.nbd.nbd.is_none() {
        bail!("no client could connect: give --listen or --nbd");
    }
    let signals = signals()?;
    // One domain on both sides: what comes by the one goes on by the other without a copy.
    let shared = Shared::default();
    let mut server = endpoint(&args.server, &args.channels, &shared)?;
    if let Some(limit) = args.give_up {
        server = server.give_up_after(limit);
    }
    let cache = (args.cache > 0).then(|| Cache::new(args.cache));
    let behind = Arc::new(Forwarding::new(&server, cache.as_ref()));
    let at = args
        .listen
        .as_ref()
        .map(|at| endpoint(at, &args.channels, &shared));
    let at = at.transpose()?;
    let front = at
        .as_ref()
        .map(|at| Front::start(at, Arc::clone(&behind) as _));
    let _front = front
        .transpose()
        .with_context(|| format!("serving at {}", args.listen.as_deref().unwrap_or_default()))?;
    let _export = export(&args.nbd, || behind.store())?;
    say(&match &at {
        Some(at) => format!("forwarding {at} to {server}"),
        None => format!("forwarding to {server}"),
    })?;
    until_signalled(signals);
    if let Some(cache) = cache {
        let (hits, misses) = cache.hits_and_misses();
        tracing::info!("{hits} reads from the cache, {misses} from the server");
    }
    Ok(Answer::Yes)
}
