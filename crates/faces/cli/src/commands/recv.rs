//! `tranship recv`: writes the messages that come, one by one.

use super::connect;
use crate::args::RecvArgs;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use tranship::{ChannelOptions, Domain, ErrorKind, Receiver};

pub(crate) fn run(args: &RecvArgs) -> Result<Answer> {
    if let Some(path) = &args.file {
        check(path).with_context(|| format!("opening {}", path.display()))?;
    }
    let domain = connect::travel(&args.connect, "tranship-recv", &args.name)?;
    let mut receiver = open(&domain, args)?;
    // Only now: a receiver that never got a sender must not empty a file.
    let mut to: Box<dyn Write> = match &args.file {
        Some(path) => {
            Box::new(File::create(path).with_context(|| format!("opening {}", path.display()))?)
        }
        None => Box::new(output::stdout()),
    };
    let (mut messages, mut bytes) = (0u64, 0);
    while args.count != Some(messages) {
        match receiver.recv() {
            // Piece by piece: a sender can claim more than there is memory for.
            Ok(message) => {
                bytes += message.len();
                let written = message.write_to(&mut to);
                match &args.file {
                    Some(path) => written.with_context(|| format!("writing {}", path.display()))?,
                    // The error describes itself.
                    None => written?,
                }
                // Standard output keeps text that ends in no line.
                to.flush()?;
            }
            // The sender itself has said that this was all.
            Err(error) if error == ErrorKind::PeerGone => break,
            Err(error) if error == ErrorKind::NotConnected => {
                receiver = open(&domain, args)?;
                continue;
            }
            Err(error) => {
                to.flush()?;
                return Err(error).with_context(|| {
                    format!(
                        "received {messages} messages ({bytes} bytes) under `{}`",
                        args.name
                    )
                });
            }
        }
        messages += 1;
    }
    to.flush()?;
    Ok(Answer::Yes)
}

/// Checks the path: an obstacle is reported before the command waits for anything.
fn check(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(()),
        Err(_) => {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            match std::fs::metadata(folder.unwrap_or(Path::new(".")))?.is_dir() {
                true => Ok(()),
                false => Err(io::ErrorKind::NotADirectory.into()),
            }
        }
    }
}

/// Waits for a sender.
fn open(domain: &Domain, args: &RecvArgs) -> Result<Receiver> {
    let options = args.wait.map_or_else(ChannelOptions::new, |time| {
        ChannelOptions::new().timeout(time)
    });
    let receiver = domain.open_with::<Receiver>(&args.name, options);
    receiver.with_context(|| format!("receiving under `{}`", args.name))
}
