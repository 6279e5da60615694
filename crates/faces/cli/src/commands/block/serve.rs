//! `tranship block serve`.

use super::setup::{Shared, endpoint, export, signals, until_signalled};
use crate::args::block::{AccessArg, ServeArgs};
use crate::exit::Answer;
use crate::output::{say, size};
use anyhow::{Context, Result};
use std::sync::Arc;
use tranship_block::front::{Direct, Front};
use tranship_block::{Access, Disk, DiskOptions, Store as _};

pub(super) fn run(args: &ServeArgs) -> Result<Answer> {
    let signals = signals()?;
    let options = DiskOptions {
        size: args.size,
        read_only: args.read_only,
        access: match args.access {
            AccessArg::Auto => Access::Auto,
            AccessArg::Direct => Access::Direct,
            AccessArg::Buffered => Access::Buffered,
        },
        threads: args.threads,
    };
    let disk = Disk::open(&args.file, &options)?;
    let info = disk.info()?;
    let at = endpoint(&args.address, &args.channels, &Shared::default())?;
    let direct = Direct::new(Arc::clone(&disk) as _).context("starting")?;
    let direct = Arc::new(direct);
    let front = Front::start(&at, Arc::clone(&direct) as _);
    let _front = front.with_context(|| format!("serving at {at}"))?;
    let _export = export(&args.nbd, || direct.store())?;
    let read_only = if info.read_only { ", read-only" } else { "" };
    say(&format!(
        "serving {} at {at}: {}, {}{read_only}",
        args.file.display(),
        size(info.size),
        disk.describe()
    ))?;
    until_signalled(signals);
    Ok(Answer::Yes)
}
