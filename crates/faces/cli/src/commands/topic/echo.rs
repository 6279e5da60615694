//! `tranship topic echo`: messages as they come.

use super::subscribed::Subscribed;
use crate::args::topic::EchoArgs;
use crate::commands::messages::{first, hex, line};
use crate::commands::view::SCHEMA;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Write;
use tranship::{ErrorKind, Message};

pub(super) fn run(args: &EchoArgs) -> Result<Answer> {
    let mut from = Subscribed::new(&args.subscribe)?;
    let (mut next, mut count, mut missed) = (from.join(args.subscribe.wait)?, 0, 0);
    while args.count != Some(count) {
        let message = match next.take() {
            Some(message) => message,
            None => match from.next(None) {
                Ok(Some(message)) => message,
                Ok(None) => continue,
                Err(error) if error == ErrorKind::PeerGone => break,
                Err(error) => return Err(error).with_context(|| from.under()),
            },
        };
        let lost = from.missed() - missed;
        missed += lost;
        print(args, &message, lost)?;
        count += 1;
    }
    Ok(Answer::Yes)
}

fn print(args: &EchoArgs, message: &Message, missed: u64) -> Result<()> {
    let mut out = output::stdout();
    if args.raw {
        message.write_to(&mut out)?;
        return Ok(out.flush()?);
    }
    let most = usize::try_from(args.bytes).unwrap_or(usize::MAX);
    let bytes = first(message, most);
    if args.subscribe.json {
        let value = json!({
            "schema": SCHEMA,
            "topic": args.subscribe.topic.name,
            "word": message.word,
            "length": message.len(),
            "first_bytes": hex(&bytes),
            "missed": missed,
        });
        writeln!(out, "{value}")?;
    } else {
        if missed > 0 {
            writeln!(out, "({missed} missed)")?;
        }
        writeln!(out, "{}", line(message.word, message.len(), &bytes))?;
    }
    Ok(out.flush()?)
}
