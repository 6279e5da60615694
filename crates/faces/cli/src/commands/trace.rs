//! `tranship trace`: events of buffers.

use super::connect;
use super::names::Names;
use super::view::SCHEMA;
use crate::args::TraceArgs;
use crate::exit::Answer;
use crate::output::{self, size};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::{Duration, Instant};
use tranship::admin::{Did, StatRecord, Trace, TraceEvent};
use tranship::{BufferId, Domain, DomainId, PoolId};

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &TraceArgs) -> Result<Answer> {
    let domain = connect::look(&args.view.connect)?;
    let names = names_of(&domain.admin().stat()?, &domain.admin().traces()?);
    let is_pool = args.on || args.off || args.follow;
    let target = match &args.target {
        Some(text) => names.target(text, is_pool)?,
        None => Target::All,
    };
    if is_pool {
        let Target::Pool(pool) = target else {
            bail!("a pool is traced, and what is done with all of its buffers: name a pool");
        };
        let on = domain
            .admin()
            .trace(pool, !args.off, args.follow)
            .with_context(|| format!("tracing pool {}", names.pool(pool)))?;
        if args.follow {
            follow(args, &domain, pool)?;
            return Ok(Answer::Yes);
        }
        return said(args, &names, pool, on);
    }
    match args.word {
        Some(word) => path(args, &domain, &names, target, word),
        None => show(args, &domain, &names, target),
    }
}

fn said(args: &TraceArgs, names: &Names, pool: PoolId, on: bool) -> Result<Answer> {
    if args.view.json {
        output::json(&json!({ "schema": SCHEMA, "pool": pool.0, "traced": on }))?;
        return Ok(Answer::Yes);
    }
    let mut out = output::stdout();
    let is = match (on, args.off) {
        (true, false) => "is traced",
        (true, true) => "is still traced: a program follows it",
        (false, _) => "is not traced",
    };
    writeln!(out, "pool {} {is}", names.pool(pool))?;
    out.flush()?;
    Ok(Answer::Yes)
}

/// Object that a user asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    All,
    Buffer(BufferId),
    Pool(PoolId),
    Domain(DomainId),
}

impl Target {
    fn has(self, by: DomainId, event: &TraceEvent) -> bool {
        match self {
            Target::All => true,
            Target::Buffer(id) => event.buffer == id,
            Target::Pool(pool) => event.buffer.pool() == pool,
            Target::Domain(domain) => by == domain,
        }
    }
}

fn show(args: &TraceArgs, domain: &Domain, names: &Names, target: Target) -> Result<Answer> {
    let traces = domain.admin().traces()?;
    let mut lives: BTreeMap<BufferId, Vec<(DomainId, TraceEvent)>> = BTreeMap::new();
    for t in &traces {
        for event in t.events.iter().filter(|e| target.has(t.domain, e)) {
            let life = lives.entry(event.buffer).or_default();
            life.push((t.domain, *event));
        }
    }
    for life in lives.values_mut() {
        life.sort_by_key(|(by, e)| (e.at_ns, by.0, e.number));
    }
    let mut lives: Vec<_> = lives.into_iter().collect();
    lives.sort_by_key(|(_, life)| life.first().map(|(_, e)| e.at_ns));
    let any = !lives.is_empty();
    if args.view.json {
        let buffers = lives.iter().map(|(id, life)| {
            let events = life.iter().map(|(by, e)| value(names, *by, e));
            json!({ "buffer": text_of(*id), "id": id.0, "events": events.collect::<Vec<_>>() })
        });
        let buffers: Vec<Value> = buffers.collect();
        let from: Vec<Value> = traces.iter().map(teller).collect();
        output::json(&json!({ "schema": SCHEMA, "buffers": buffers, "recorded_by": from }))?;
        return Ok(any.into());
    }
    let mut out = output::stdout();
    for (id, life) in &lives {
        let pool = names.pool(id.pool());
        let bytes = life.iter().map(|(_, e)| e.length).max().unwrap_or(0);
        writeln!(out, "{} of {pool}, {}", text_of(*id), size(bytes))?;
        let begun = life.first().map_or(0, |(_, e)| e.at_ns);
        for (by, e) in life {
            let after = ms(e.at_ns.saturating_sub(begun));
            writeln!(out, "  {after:>12} ms  {}", line(names, *by, e))?;
        }
    }
    if !any {
        writeln!(
            out,
            "nothing is recorded of it: `tranship trace --on POOL` has it recorded"
        )?;
    }
    for t in traces.iter().filter(|t| t.lost > 0 || t.torn > 0) {
        let (who, lost, torn) = (names.domain(t.domain), t.lost, t.torn);
        writeln!(
            out,
            "({who}: {lost} earlier events are lost, {torn} not whole)"
        )?;
    }
    out.flush()?;
    Ok(any.into())
}

/// Shows what went along with a word, in the order of time: the path of a request.
fn path(
    args: &TraceArgs,
    domain: &Domain,
    names: &Names,
    target: Target,
    word: u32,
) -> Result<Answer> {
    let traces = domain.admin().traces()?;
    let mut events: Vec<(DomainId, TraceEvent)> = Vec::new();
    for t in &traces {
        let on_it = t.events.iter().filter(|e| {
            let went = matches!(e.did, Did::Sent { .. } | Did::Received { .. });
            went && e.word == word && target.has(t.domain, e)
        });
        events.extend(on_it.map(|e| (t.domain, *e)));
    }
    events.sort_by_key(|(by, e)| (e.at_ns, by.0, e.number));
    let answer = Answer::from(!events.is_empty());
    let values = events.iter().map(|(by, e)| {
        let mut value = value(names, *by, e);
        value["buffer"] = json!(text_of(e.buffer));
        value
    });
    if args.view.json {
        let values: Vec<Value> = values.collect();
        output::json(&json!({ "schema": SCHEMA, "word": word, "events": values }))?;
        return Ok(answer);
    }
    let mut out = output::stdout();
    let begun = events.first().map_or(0, |(_, e)| e.at_ns);
    for (by, e) in &events {
        let after = ms(e.at_ns.saturating_sub(begun));
        let (id, bytes) = (text_of(e.buffer), size(e.length));
        writeln!(
            out,
            "{after:>12} ms  {}  {id}, {bytes}",
            line(names, *by, e)
        )?;
    }
    if events.is_empty() {
        writeln!(
            out,
            "nothing is recorded with word {word}: `tranship trace --on POOL` has each pool on the path recorded"
        )?;
    }
    out.flush()?;
    Ok(answer)
}

/// Prints events as they come, in the order of their times within a look.
fn follow(args: &TraceArgs, domain: &Domain, pool: PoolId) -> Result<()> {
    let begun = Instant::now();
    let mut seen: HashMap<(DomainId, u32), u64> = HashMap::new();
    // Events from before are not news.
    for t in domain.admin().traces()? {
        let last = t.events.iter().map(|e| e.number).max().unwrap_or(0);
        seen.insert((t.domain, t.pid), last);
    }
    loop {
        let over = args.duration.is_some_and(|most| begun.elapsed() >= most);
        let traces = domain.admin().traces()?;
        let names = names_of(&domain.admin().stat()?, &traces);
        let mut news = Vec::new();
        for t in &traces {
            let last = seen.entry((t.domain, t.pid)).or_default();
            let fresh = t.events.iter().filter(|e| e.number > *last);
            let fresh: Vec<_> = fresh.map(|e| (t.domain, *e)).collect();
            *last = t.events.iter().map(|e| e.number).max().unwrap_or(*last);
            news.extend(fresh);
        }
        news.retain(|(_, e)| e.buffer.pool() == pool);
        news.sort_by_key(|(by, e)| (e.at_ns, by.0, e.number));
        let mut out = output::stdout();
        for (by, e) in &news {
            if args.view.json {
                let mut value = value(&names, *by, e);
                value["buffer"] = json!(text_of(e.buffer));
                serde_json::to_writer(&mut out, &value).map_err(std::io::Error::from)?;
                writeln!(out)?;
            } else {
                let at = ms(e.at_ns);
                writeln!(
                    out,
                    "{at} ms  {}  {}",
                    text_of(e.buffer),
                    line(&names, *by, e)
                )?;
            }
        }
        out.flush()?;
        if over {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}

/// Returns milliseconds with their fraction.
fn ms(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000, ns % 1_000_000)
}

/// Returns the text by which a person names it on the command line.
fn text_of(id: BufferId) -> String {
    format!("{}:{}:{}", id.pool().0, id.slot(), id.generation())
}

fn line(names: &Names, by: DomainId, e: &TraceEvent) -> String {
    let did = e.did.name();
    let who = names.domain(by);
    match e.did {
        Did::Sent { channel, to, .. } => {
            format!(
                "{who} {did} to {} over channel {}",
                names.domain(to),
                channel.0
            )
        }
        Did::Received { channel, from, .. } => {
            format!(
                "{who} {did} from {} over channel {}",
                names.domain(from),
                channel.0
            )
        }
        Did::Allocated | Did::Released => format!("{who} {did}"),
    }
}

fn value(names: &Names, by: DomainId, e: &TraceEvent) -> Value {
    let mut value = json!({
        "at_ns": e.at_ns,
        "domain": by.0,
        "domain_name": names.domains.get(&by),
        "did": e.did.name(),
        "length": e.length,
        "number": e.number,
    });
    if let Did::Sent {
        channel, to: peer, ..
    }
    | Did::Received {
        channel,
        from: peer,
        ..
    } = e.did
    {
        value["channel"] = json!(channel.0);
        value["word"] = json!(e.word);
        value["peer"] = json!(peer.0);
    }
    value
}

fn teller(t: &Trace) -> Value {
    json!({
        "domain": t.domain.0,
        "domain_name": t.name,
        "pid": t.pid,
        "alive": t.alive,
        "events": t.events.len(),
        "lost": t.lost,
        "torn": t.torn,
    })
}

/// Names of domains, also of those that are gone, and of pools.
fn names_of(records: &[StatRecord], traces: &[Trace]) -> Names {
    let mut names = Names::of(records);
    for told in traces {
        let name = names.domains.entry(told.domain);
        name.or_insert_with(|| told.name.clone());
    }
    names
}

impl Names {
    /// Returns the object of a name. `is_pool`: of a pool and a domain with that name, it is the pool.
    fn target(&self, text: &str, is_pool: bool) -> Result<Target> {
        let parts: Vec<Option<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
        if let [Some(pool), Some(slot), Some(generation)] = parts[..] {
            return Ok(Target::Buffer(BufferId::new(
                PoolId(pool),
                slot,
                generation,
            )));
        }
        let pools = self.pools.iter().filter(|(id, (name, _))| {
            name.as_str() == text || parts[..] == [Some(id.0)] || self.pool(**id) == text
        });
        let domains = self.domains.iter().filter(|(id, name)| {
            name.as_str() == text || parts[..] == [Some(id.0)] || self.domain(**id) == text
        });
        let mut found: Vec<Target> = pools.map(|(id, _)| Target::Pool(*id)).collect();
        if !is_pool || found.is_empty() {
            found.extend(domains.map(|(id, _)| Target::Domain(*id)));
        }
        match found[..] {
            [one] => Ok(one),
            [] => bail!(
                "there is no pool or domain `{text}`, and a buffer is POOL:SLOT:GENERATION, such as 3:17:2"
            ),
            _ => bail!(
                "{} pools and domains are called `{text}`: name one by its number, or as name#number",
                found.len()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_buffer_a_pool_or_a_domain() {
        let names = Names {
            domains: [
                (DomainId(7), "camera".into()),
                (DomainId(8), "twice".into()),
            ]
            .into(),
            pools: [
                (PoolId(3), ("frames".into(), DomainId(7))),
                (PoolId(4), ("twice".into(), DomainId(8))),
            ]
            .into(),
        };
        let buffer = Target::Buffer(BufferId::new(PoolId(3), 17, 2));
        for (text, expected) in [
            ("3:17:2", buffer),
            ("frames", Target::Pool(PoolId(3))),
            ("4", Target::Pool(PoolId(4))),
            ("twice#4", Target::Pool(PoolId(4))),
            ("camera", Target::Domain(DomainId(7))),
            ("8", Target::Domain(DomainId(8))),
        ] {
            assert_eq!(names.target(text, false).expect(text), expected);
        }
        for (text, expected) in [
            ("twice", Target::Pool(PoolId(4))),
            ("camera", Target::Domain(DomainId(7))),
        ] {
            assert_eq!(names.target(text, true).expect(text), expected);
        }
        for (text, why) in [("twice", "2 pools and domains"), ("none", "3:17:2")] {
            let error = names.target(text, false).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
