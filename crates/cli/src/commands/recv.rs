//! `tranship recv`: writes what comes, message by message.

use super::connect;
use crate::args::RecvArgs;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use tranship::{Domain, Kind, LinkOptions, Receiver, TimedOut};

pub(crate) fn run(args: &RecvArgs) -> Result<Answer> {
    let domain = connect::stay(&args.connect, "tranship-recv")?;
    let Some(mut receiver) = open(&domain, args)? else {
        return Ok(Answer::No);
    };
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
                message.write_to(&mut to)?;
            }
            // Its own word that this was all.
            Err(error) if error == Kind::PeerGone => break,
            Err(error) if error == Kind::NotConnected => match open(&domain, args)? {
                Some(again) => {
                    receiver = again;
                    continue;
                }
                None => return Ok(Answer::No),
            },
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

/// Waits for a sender; `None`, with a word about it, if none has come in time.
fn open(domain: &Domain, args: &RecvArgs) -> Result<Option<Receiver>> {
    let options = args
        .wait
        .map_or_else(LinkOptions::new, |time| LinkOptions::new().timeout(time));
    match domain.open_receiver_with(&args.name, options) {
        Ok(receiver) => Ok(Some(receiver)),
        Err(error) => match error.find() {
            Some(TimedOut { waited_ms, .. }) => {
                eprintln!(
                    "tranship: nobody sent under `{}` within {waited_ms} ms",
                    args.name
                );
                Ok(None)
            }
            None => Err(error).with_context(|| format!("receiving under `{}`", args.name)),
        },
    }
}
