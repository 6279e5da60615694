//! `tranship top`: the present figures, from the manager's statistics page, which can be read also while the manager
//! hangs.

mod app;
mod batch;
mod detail;
mod draw;
mod grid;
mod keys;
mod screen;
mod source;
mod view;

#[cfg(test)]
mod sample;

use crate::args::top::TopArgs;
use crate::exit::Answer;
use anyhow::{Result, bail};
use source::Source;
use std::io::{self, IsTerminal};

/// Runs `tranship top`.
pub(crate) fn run(args: &TopArgs) -> Result<Answer> {
    if args.is_plain() {
        return batch::run(args, Source::find(&args.connect)?);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        bail!(
            "top wants a terminal to draw on: with --batch it writes lines, with --once it does so once"
        );
    }
    screen::run(args, Source::find(&args.connect)?)
}
