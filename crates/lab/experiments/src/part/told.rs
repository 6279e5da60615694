//! Messages of the parent to a process.

use super::super::lines::Want;
use anyhow::{Context, Result};
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many callers there are to be; rises and falls while the process works.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(Arc<AtomicU64>);

impl Told {
    pub fn callers(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Listens to the parent from now on. When the parent says nothing more, because it is gone or has seen enough, this
/// process ends at once.
pub(super) fn listen() -> Result<Told> {
    let told = Told::default();
    let hears = told.clone();
    std::thread::Builder::new()
        .name("hear-parent".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if let Ok(want) = serde_json::from_str::<Want>(&line) {
                    hears.0.store(want.callers, Ordering::Relaxed);
                }
            }
            std::process::exit(0);
        })
        .context("starting a thread")?;
    Ok(told)
}
