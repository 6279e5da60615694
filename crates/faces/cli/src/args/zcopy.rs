//! `tranship zcopy`.

use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum ZcopyAction {
    /// Shows by which way each program sent how much, to which kind of socket, and why.
    ///
    /// Programs are those that use ZCopy: tranship::zcopy, libtranship_zcopy.so, tranship cache. A running one is
    /// looked at from outside and notices nothing. One that runs with TRANSHIP_ZCOPY_EXPLAIN=FOLDER keeps its counts in
    /// a file there, which is still there when it has ended, however it did.
    Explain(ExplainArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ExplainArgs {
    /// A process's number, a file that a program left, or a folder of them; default: all programs that run and may be
    /// looked at.
    #[arg(value_name = "PID|FILE|FOLDER")]
    pub what: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}
