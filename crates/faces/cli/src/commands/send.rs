//! `tranship send`: reads into buffers and sends them; the reading is the only copy. It ends well when all was taken.

use super::connect;
use crate::args::{SendArgs, name_of};
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use tranship::admin::StatRecord;
use tranship::{BufferMut, Domain, Pool, PoolOptions, Sender};

pub(crate) fn run(args: &SendArgs) -> Result<Answer> {
    let mut from = match &args.file {
        Some(path) => open(path).with_context(|| format!("opening {}", path.display()))?,
        None => {
            output::check_stdin()?;
            let given = std::io::stdin().as_fd().try_clone_to_owned();
            File::from(given.context("opening standard input")?)
        }
    };
    // Input that comes by and by is sent as it comes.
    let whole = from.metadata().context("looking at the input")?.is_file();
    let frame = usize::try_from(args.frame).context("the frame size")?;
    let domain = connect::travel(&args.connect, "tranship-send", &args.name)?;
    let pool = domain
        .create_pool(PoolOptions::new(args.pool.max(args.frame)).name(name_of(&args.name)))?;
    let quota_bytes = pool.stats().quota_bytes;
    let total_bytes = || {
        let records = domain.admin().stat().ok()?;
        records.iter().find_map(|record| match record {
            StatRecord::Manager(manager) => Some(manager.total_bytes),
            _ => None,
        })
    };
    // The quota may be raised, so that a frame is worth waiting for; the manager's total may not.
    if quota_bytes < args.frame
        && let Some(total_bytes) = total_bytes().filter(|total| *total < args.frame)
    {
        bail!(
            "a frame of {frame} bytes is larger than the {total_bytes} bytes that the manager has for all: take a smaller --frame"
        );
    }
    if quota_bytes < args.frame {
        eprintln!(
            "tranship: waiting for memory: a frame has {frame} bytes, and the quota of pool {} is {quota_bytes} bytes (`tranship quota set`, or a smaller --frame)",
            pool.id()
        );
    }
    let under = || format!("sending under `{}`", args.name);
    let mut sender = meet(&domain, args, &pool).with_context(under)?;
    let sent = send_all(&mut from, whole, &pool, frame, &mut sender)
        .with_context(|| format!("{}, before the input ended", under()));
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

/// Waits for a receiver that takes the pool.
fn meet(domain: &Domain, args: &SendArgs, pool: &Pool) -> Result<Sender, tranship::Error> {
    let listener = domain.listen::<Sender>(&args.name)?;
    loop {
        let mut sender = listener.accept_timeout(args.wait)?;
        match sender.assign(pool) {
            // The receiver may be gone again, or may not know of the meeting because its manager died before it could
            // report it.
            Err(_) if sender.status().peer_gone => {}
            assigned => return assigned.map(|()| sender),
        }
    }
}

fn send_all(
    from: &mut File,
    whole: bool,
    pool: &Pool,
    frame: usize,
    sender: &mut Sender,
) -> Result<()> {
    loop {
        let mut buffer = pool.alloc(frame)?;
        let len = fill(from, whole, &mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        buffer.truncate(len);
        sender.send(buffer.freeze()).map_err(|e| e.error)?;
    }
}

/// Opens a file. A folder can be opened but not read; this is reported before the command waits for a receiver.
fn open(path: &Path) -> std::io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

/// Reads the bytes that are there; with `whole` until the buffer is full or the input ends.
fn fill(from: &mut File, whole: bool, buffer: &mut BufferMut) -> Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("reading the input"),
        }
        if !whole {
            break;
        }
    }
    Ok(len)
}
