//! `tranship queue`: queues that are there, and what waits in one.

use super::connect;
use super::messages::{first, hex, line};
use super::readers::{self, Named};
use super::view::SCHEMA;
use super::words::count;
use crate::args::ConnectArgs;
use crate::args::topic::{NamesArgs, PeekArgs, PurgeArgs, QueueAction};
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Write;
use std::time::Duration;
use tranship::queue::{Consumer, ConsumerOptions, Item, Queues as _};
use tranship::{Domain, Error, ErrorKind, Wait};
use tranship_proto::NameKind;

pub(crate) fn run(action: &QueueAction) -> Result<Answer> {
    match action {
        QueueAction::Ls(args) => ls(args),
        QueueAction::Peek(args) => peek(args),
        QueueAction::Purge(args) => purge(args),
    }
}

fn ls(args: &NamesArgs) -> Result<Answer> {
    let all = queues(&connect::look(&args.connect)?)?;
    let table = readers::table(&all, ["queue", "producers", "connections"]);
    let names = all.iter().map(|queue| queue.name.as_str());
    readers::list(args, ("queues", &json!(all)), names, &table)
}

fn queues(domain: &Domain) -> Result<Vec<Named>, Error> {
    let records = domain.admin().stat()?;
    Ok(readers::named(&records, NameKind::Queue))
}

/// Joins a queue that has a producer.
fn consumer(args: &ConnectArgs, name: &str) -> Result<(Domain, Consumer)> {
    let domain = connect::take_part(args, "tranship-queue")?;
    let all = queues(&domain)?;
    let mut offered = all.iter().filter(|queue| !queue.offered_by.is_empty());
    if !offered.any(|queue| queue.name == name) {
        let text =
            format!("no domain produces for queue `{name}`: `tranship queue ls` shows the queues");
        return Err(Error::new(ErrorKind::NoSuchName, text).into());
    }
    let options = ConsumerOptions::new().unacknowledged(64).wait(Wait::Sleep);
    let consumer = domain.consume_with(name, options)?;
    Ok((domain, consumer))
}

/// Takes the next item, if one comes in that time.
fn next(consumer: &mut Consumer, wait: Duration) -> Result<Option<Item>> {
    match consumer.recv_timeout(wait) {
        Ok(item) => Ok(Some(item)),
        Err(error) if error == ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error).context("taking items"),
    }
}

fn peek(args: &PeekArgs) -> Result<Answer> {
    let (_domain, mut consumer) = consumer(&args.connect, &args.name)?;
    // Kept until all are there: an item that went back at once could come again.
    let mut items = Vec::new();
    while (items.len() as u64) < args.count
        && let Some(item) = next(&mut consumer, args.wait)?
    {
        items.push(item);
    }
    let mut out = output::stdout();
    for item in &items {
        let most = usize::try_from(args.bytes).unwrap_or(usize::MAX);
        let bytes = first(item, most);
        if args.json {
            let value = json!({
                "schema": SCHEMA,
                "queue": args.name,
                "word": item.word,
                "length": item.len(),
                "first_bytes": hex(&bytes),
                "redelivered": item.redelivered(),
                "producer": item.producer(),
            });
            writeln!(out, "{value}")?;
        } else {
            let again = if item.redelivered() {
                ", redelivered"
            } else {
                ""
            };
            writeln!(out, "{}{again}", line(item.word, item.len(), &bytes))?;
        }
    }
    out.flush()?;
    items.into_iter().for_each(Item::requeue);
    Ok(Answer::Yes)
}

fn purge(args: &PurgeArgs) -> Result<Answer> {
    let (_domain, mut consumer) = consumer(&args.connect, &args.name)?;
    let mut gone = 0u64;
    while let Some(item) = next(&mut consumer, args.wait)? {
        // A producer that has ended has no items any more.
        let _ = item.ack();
        gone += 1;
    }
    output::say(&format!("{} thrown away", count(gone, "item")))?;
    Ok(Answer::Yes)
}
