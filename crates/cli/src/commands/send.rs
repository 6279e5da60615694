//! `tranship send`: reads into buffers and sends them; the reading is the only copy. It ends well when all was taken.

use super::connect;
use crate::args::SendArgs;
use crate::exit::Answer;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use tranship::{CbufMut, Pool, PoolOptions, Role, Sender, TimedOut, TooLarge};

pub(crate) fn run(args: &SendArgs) -> Result<Answer> {
    let mut from: Box<dyn Read> = match &args.file {
        Some(path) => Box::new(open(path).with_context(|| format!("opening {}", path.display()))?),
        None => Box::new(std::io::stdin().lock()),
    };
    let frame = usize::try_from(args.frame).context("the frame size")?;
    let domain = connect::stay(&args.connect, "tranship-send")?;
    let pool = domain.create_pool(PoolOptions::new(args.pool.max(args.frame)).name(&args.name))?;
    // Not where a policy moves quotas: there a frame is worth waiting for.
    if let Err(error) = pool.try_alloc(frame)
        && let Some(TooLarge { quota_bytes, .. }) = error.find()
    {
        bail!(
            "a frame of {frame} bytes is larger than the {quota_bytes} bytes that the manager grants"
        );
    }
    let listener = domain.listen(&args.name, Role::Source)?;
    let mut sender = loop {
        let sender = listener.accept_sender_within(args.wait);
        let taken = sender.and_then(|mut sender| match sender.assign(&pool) {
            // Who came may be gone again, or know nothing of it, as its manager died before it could say so.
            Err(_) if sender.is_peer_gone() => Ok(None),
            assigned => assigned.map(|()| Some(sender)),
        });
        match taken {
            Ok(Some(sender)) => break sender,
            Ok(None) => {}
            Err(error) => {
                let Some(TimedOut { waited_ms, .. }) = error.find() else {
                    return Err(error).with_context(|| format!("sending under `{}`", args.name));
                };
                eprintln!(
                    "tranship: nobody received under `{}` within {waited_ms} ms",
                    args.name
                );
                return Ok(Answer::No);
            }
        }
    };
    let sent = send_all(from.as_mut(), &pool, frame, &mut sender)
        .with_context(|| format!("sending under `{}`, before the input ended", args.name));
    let taken = sent.and_then(|()| {
        let taken = sender.wait_taken(None);
        taken.with_context(|| format!("all was sent under `{}`", args.name))
    });
    if taken.is_err() {
        // Dropped it would close in order, and the receiver believe that it has all.
        sender.abandon();
    }
    taken.map(|()| Answer::Yes)
}

fn send_all(from: &mut dyn Read, pool: &Pool, frame: usize, sender: &mut Sender) -> Result<()> {
    loop {
        let mut buffer = pool.alloc(frame)?;
        let len = fill(from, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        buffer.truncate(len);
        sender.send(buffer.freeze()).map_err(|e| e.error)?;
    }
}

/// A folder can be opened but not read; that is better said before anybody waits for it.
fn open(path: &Path) -> std::io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// Reads until the buffer is full or the input ends.
fn fill(from: &mut dyn Read, buffer: &mut CbufMut) -> Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("reading the input"),
        }
    }
    Ok(len)
}
