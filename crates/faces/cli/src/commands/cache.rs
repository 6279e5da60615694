//! `tranship cache`: memcached's protocol, and values by reference.

mod get;
mod serve;
mod successor;

use crate::args::cache::{CacheAction, CacheArgs};
use crate::exit::Answer;
use anyhow::Result;

pub(super) fn run(args: &CacheArgs) -> Result<Answer> {
    match &args.action {
        Some(CacheAction::Get(get)) => get::run(get),
        None => serve::run(&args.serve),
    }
}
