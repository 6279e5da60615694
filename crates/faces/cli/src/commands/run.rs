//! `tranship run`: a program of components, or one program with our allocator under it.

mod components;
mod library;
mod view;

pub(super) use components::component;

use super::{connect, sockets};
use crate::args::RunArgs;
use crate::exit::Answer;
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tranship_session::places::SOCKET_ENV;

/// Variable as `tranship-malloc` reads it.
const HEAP_MAX_ENV: &str = "TRANSHIP_HEAP_MAX";

pub(super) fn run(args: &RunArgs) -> Result<Answer> {
    match &args.file {
        Some(file) => components::run(file, args),
        None => become_program(args),
    }
}

/// Becomes the program; returns only if that fails.
fn become_program(args: &RunArgs) -> Result<Answer> {
    let library = library::find(args.library.as_deref())?;
    // Starts a manager if there is none. The program joins it by name before it would leave again.
    let domain = connect::join(&args.connect, "tranship-run")?;
    let socket = socket(args.connect.socket.as_deref()).context("where is the manager?")?;
    drop(domain);
    let (program, arguments) = args.command.split_first().context("no program")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(
            "LD_PRELOAD",
            preload(&library, std::env::var_os("LD_PRELOAD")),
        )
        .env(SOCKET_ENV, socket);
    if let Some(quota) = args.quota {
        command.env(HEAP_MAX_ENV, quota.to_string());
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Returns the manager's socket for the allocator, which looks for none.
fn socket(given: Option<&Path>) -> Option<PathBuf> {
    let mut places = sockets::candidates(given).into_iter();
    let place = places.find(|place| sockets::probe(&place.path) == sockets::Listening::Yes)?;
    std::path::absolute(place.path).ok()
}

/// Returns the value of the preload variable; other preloaded libraries stay.
fn preload(library: &Path, others: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_comes_after() {
        let ours = Path::new("/l/ours.so");
        assert_eq!(preload(ours, None), "/l/ours.so");
        assert_eq!(preload(ours, Some("".into())), "/l/ours.so");
        assert_eq!(preload(ours, Some("/a.so".into())), "/l/ours.so:/a.so");
    }
}
