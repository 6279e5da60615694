//! `tranship policy run`.

use super::super::connect;
use crate::args::policy::RunArgs;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tranship::sandbox::Sandbox;
use tranship_policy::{Config, Governor};

pub(super) fn run(args: &RunArgs) -> Result<()> {
    let config = config(args)?;
    let name = config.policy.clone();
    let mut governor = Governor::new(config)?;
    // A command that divides memory among others starts no manager.
    let domain = connect::visit(&args.connect, "tranship-policy")?;
    let steering = domain.admin().steer().context("setting quotas")?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("hearing signals")?;
    }
    if !args.no_sandbox {
        // From here on the process needs only the manager's socket and a clock.
        let sandbox = Sandbox::new().reconnects().lock_down();
        sandbox.context("locking this process down (--no-sandbox goes without)")?;
    }
    let every = args.every.max(Duration::from_millis(1));
    eprintln!("quotas are set by `{name}`, every {every:?}; when this ends they stay");
    let begun = Instant::now();
    let goes_on = |_| {
        let over = args.duration.is_some_and(|most| begun.elapsed() >= most);
        !over && !stop.load(Ordering::Relaxed)
    };
    Ok(steering.run(&mut governor, every, goes_on)?)
}

/// Returns the configuration of the file; the command names the policy.
fn config(args: &RunArgs) -> Result<Config> {
    let mut config = match &args.config {
        None => Config::default(),
        Some(path) => {
            let shown = path.display();
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
            toml::from_str(&text).with_context(|| format!("in {shown}"))?
        }
    };
    if let Some(policy) = &args.policy {
        config.policy.clone_from(policy);
    }
    Ok(config)
}
