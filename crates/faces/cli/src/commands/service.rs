//! `tranship service`: services that are there, and a call from a shell.

use super::connect;
use super::messages::{MOST, given, whole};
use super::readers::{self, Member, Named};
use crate::args::topic::{CallArgs, NamesArgs, ServiceAction};
use crate::exit::Answer;
use crate::output::{self, Table};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};
use tranship::service::{Client, ServiceOptions, Services as _};
use tranship::{Domain, Error, ErrorKind, INLINE_BYTES, Message, PoolOptions};
use tranship_proto::{NameKind, StatRecord};

/// The end of the name by which a service's answers go, after the service's own name. If processes share the service,
/// the number of a domain follows.
const REPLIES: &str = "/replies";

/// A service, as the manager sees it.
#[derive(Debug, Serialize)]
struct Served {
    name: String,
    workers: Vec<Member>,
    /// Domains that call it.
    clients: usize,
    /// Domains that wait for it.
    waiting: usize,
}

pub(crate) fn run(action: &ServiceAction) -> Result<Answer> {
    match action {
        ServiceAction::Ls(args) => ls(args),
        ServiceAction::Call(args) => call(args),
    }
}

fn ls(args: &NamesArgs) -> Result<Answer> {
    let records = connect::look(&args.connect)?.admin().stat()?;
    let all = served(&records);
    let mut table = Table::new(&["service", "domain", ">process", ">clients", ">waiting"]);
    for one in &all {
        for worker in &one.workers {
            let (clients, waiting) = (one.clients.to_string(), one.waiting.to_string());
            let (label, pid) = (worker.label.clone(), worker.pid.to_string());
            table.row(vec![one.name.clone(), label, pid, clients, waiting]);
        }
    }
    let names = all.iter().map(|service| service.name.as_str());
    readers::list(args, ("services", &json!(all)), names, &table)
}

/// Says whether answers of a service go by that other name.
fn is_of_replies(name: &str, other: &str) -> bool {
    let rest = other.strip_prefix(name);
    match rest.and_then(|rest| rest.strip_prefix(REPLIES)) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('/')
            .is_some_and(|domain| domain.parse::<u64>().is_ok()),
        None => false,
    }
}

/// Finds the names whose answers go by a second name of the same domain.
fn served(records: &[StatRecord]) -> Vec<Served> {
    let names = readers::named(records, NameKind::Channel);
    let service = |one: &Named| {
        let replies = names
            .iter()
            .filter(|other| is_of_replies(&one.name, &other.name));
        let answer: Vec<&Member> = replies.flat_map(|other| &other.offered_by).collect();
        let mut workers = one.offered_by.clone();
        workers.retain(|worker| answer.contains(&worker));
        (!workers.is_empty()).then(|| Served {
            name: one.name.clone(),
            workers,
            clients: one.readers.len(),
            waiting: one.waiting.len(),
        })
    };
    names.iter().filter_map(service).collect()
}

fn call(args: &CallArgs) -> Result<Answer> {
    let request = match given(args.text.as_deref(), args.file.as_deref())? {
        Some(request) => request,
        None => {
            output::check_stdin()?;
            whole(std::io::stdin().lock()).context("reading standard input")?
        }
    };
    let (begun, name) = (Instant::now(), &args.name);
    let domain = connect::take_part(&args.connect, "tranship-service")?;
    let calling = || format!("calling service `{name}`");
    let pool = PoolOptions::new(MOST).slots(16).name(name);
    let options = ServiceOptions::new().timeout(args.timeout).pool(pool);
    let client = domain.client_with(name, options);
    let client = client
        .map_err(|error| explained(&domain, name, error))
        .with_context(calling)?;
    let left = args.timeout.saturating_sub(begun.elapsed());
    let answer = send(&client, &request, left).with_context(calling)?;
    let mut out = output::stdout();
    answer.write_to(&mut out)?;
    out.flush()?;
    Ok(Answer::Yes)
}

fn send(client: &Client, request: &[u8], left: Duration) -> Result<Message, Error> {
    if request.len() <= INLINE_BYTES {
        return Ok(client.call_timeout(request, left)?);
    }
    let mut buffer = client.alloc(request.len())?;
    buffer.copy_from_slice(request);
    Ok(client.call_timeout(buffer, left)?)
}

/// Adds to a time-out whether the service is there.
fn explained(domain: &Domain, name: &str, error: Error) -> Error {
    if error != ErrorKind::TimedOut {
        return error;
    }
    let Ok(records) = domain.admin().stat() else {
        return error;
    };
    let all = served(&records);
    let text = match all.iter().find(|service| service.name == name) {
        None => format!("no domain serves `{name}`: `tranship service ls` shows the services"),
        Some(Served { workers, .. }) => {
            let places = workers
                .iter()
                .map(|w| format!("{} (process {})", w.label, w.pid));
            let places: Vec<String> = places.collect();
            format!(
                "service `{name}` of {} has not taken this client: no worker of it waits for requests",
                places.join(", ")
            )
        }
    };
    error.context(text)
}
