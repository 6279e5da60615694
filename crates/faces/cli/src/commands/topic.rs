//! `tranship topic`: topics as they are seen by the manager, by a subscriber, and by a publisher.

mod echo;
mod publish;
mod rate;
mod subscribed;

use super::connect;
use super::readers::{self, Named};
use super::view::SCHEMA;
use crate::args::ConnectArgs;
use crate::args::topic::{NamesArgs, TopicAction};
use crate::exit::Answer;
use crate::output;
use anyhow::Result;
use serde_json::json;
use tranship_proto::NameKind;

pub(crate) fn run(action: &TopicAction) -> Result<Answer> {
    match action {
        TopicAction::Ls(args) => ls(args),
        TopicAction::Info {
            topic,
            json,
            connect,
        } => info(&topic.name, *json, connect),
        TopicAction::Hz(args) => rate::run(args, rate::Shown::Messages),
        TopicAction::Bw(args) => rate::run(args, rate::Shown::Bytes),
        TopicAction::Echo(args) => echo::run(args),
        TopicAction::Pub(args) => publish::run(args),
    }
}

fn ls(args: &NamesArgs) -> Result<Answer> {
    let records = connect::look(&args.connect)?.admin().stat()?;
    let all = readers::named(&records, NameKind::Topic);
    let table = readers::table(&all, ["topic", "publishers", "subscribers"]);
    let names = all.iter().map(|topic| topic.name.as_str());
    readers::list(args, ("topics", &json!(all)), names, &table)
}

fn info(name: &str, as_json: bool, args: &ConnectArgs) -> Result<Answer> {
    let records = connect::look(args)?.admin().stat()?;
    let mut all = readers::named(&records, NameKind::Topic);
    let Some(at) = all.iter().position(|topic| topic.name == name) else {
        return Err(readers::no_topic(&records, name).into());
    };
    let topic: Named = all.swap_remove(at);
    match as_json {
        true => output::json(&json!({ "schema": SCHEMA, "topic": topic }))?,
        false => readers::members(&topic, ["publisher", "subscriber"]).print()?,
    }
    Ok(Answer::Yes)
}
