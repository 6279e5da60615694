//! `tranship block`: a disk's blocks over channels.

mod bench;
mod proxy;
mod serve;
mod setup;

use crate::args::block::{BlockAction, BlockArgs};
use crate::exit::Answer;
use anyhow::Result;

pub(super) fn run(args: &BlockArgs) -> Result<Answer> {
    match &args.action {
        BlockAction::Serve(args) => serve::run(args),
        BlockAction::Proxy(args) => proxy::run(args),
        BlockAction::Bench(args) => bench::run(args),
    }
}
