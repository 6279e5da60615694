//! Channels, topics, queues and services, and the components' ends of them.

use super::finder::{Finder, check_name, index, unknown};
use crate::file::{self, File, Full};
use crate::program::{Component, Kind, Wire};
use crate::units::parse_size;
use std::collections::BTreeMap;
use toml::{Spanned, Table, Value};
use tranship::component::{Part, WhenDown};
use tranship_manager::{Config, ConfigError};

const LEVELS: [&str; 4] = ["none", "producer", "half", "full"];
/// The policy of a manager whose file names none, where a pool has a priority, a target or a quota.
const POLICY: &str = "priority";

pub(super) fn wires(
    find: &mut Finder<'_>,
    file: &File,
    names: &[&str],
    components: &[Component],
) -> Vec<Wire> {
    let mut wires: Vec<Wire> = Vec::new();
    for (kind, all) in kinds(file) {
        for (name, raw) in all {
            check_name(find, name);
            let mut wire = wire(find, kind, name, raw, names);
            wire.copies = check_numbers(find, &wire, raw, components);
            let taken = wires.iter().find_map(|other| {
                Some((
                    other.names().find(|it| wire.names().any(|n| n == *it))?,
                    other,
                ))
            });
            if let Some((taken, other)) = taken {
                let text = format!(
                    "`{taken}` is the name of a {} already, in line {}",
                    other.kind.word(),
                    other.line
                );
                find.fault(name, text);
            }
            wires.push(wire);
        }
    }
    wires
}

fn kinds(file: &File) -> [(Kind, &file::Wires); 4] {
    [
        (Kind::Channel, &file.channel),
        (Kind::Topic, &file.topic),
        (Kind::Queue, &file.queue),
        (Kind::Service, &file.service),
    ]
}

fn wire(
    find: &mut Finder<'_>,
    kind: Kind,
    name: &Spanned<String>,
    raw: &file::Wire,
    names: &[&str],
) -> Wire {
    let mut side = |of: &Spanned<file::Names>, key: &str| {
        let mut side = Vec::new();
        for name in &of.get_ref().0 {
            match index(names, name) {
                Some(at) if side.contains(&at) => {
                    find.fault(of, format!("`{name}` is there twice"))
                }
                Some(at) => side.push(at),
                None => unknown(find, of, name, names),
            }
        }
        if of.get_ref().0.is_empty() {
            find.fault(
                of,
                format!("`{key}` is empty: it names at least one component"),
            );
        }
        side
    };
    let (from, to) = (side(&raw.from, "from"), side(&raw.to, "to"));
    if let Some(trust) = raw
        .trust
        .as_ref()
        .filter(|trust| !LEVELS.contains(&trust.get_ref().as_str()))
    {
        let text = format!(
            "trust is {:?}, it must be {}",
            trust.get_ref(),
            LEVELS.join(", ")
        );
        find.fault(trust, text);
    }
    if let Some(depth) = raw.depth.as_ref().filter(|depth| *depth.get_ref() == 0) {
        find.fault(depth, "depth is 0 messages, it must be at least 1");
    }
    let drops = raw.when_full == Full::Drop;
    if kind != Kind::Channel && (drops || raw.when_down != WhenDown::Wait) {
        let text = format!(
            "when_full and when_down are those of a channel; this is a {}",
            kind.word()
        );
        find.fault(name, text);
    }
    Wire {
        kind,
        name: name.get_ref().clone(),
        from,
        to,
        copies: 1,
        pool: find.unit(raw.pool.as_ref(), parse_size),
        trust: raw.trust.as_ref().map(|trust| trust.get_ref().clone()),
        depth: raw.depth.as_ref().map(|depth| *depth.get_ref()),
        when_down: raw.when_down,
        drops,
        line: find.line(name),
    }
}

/// Checks how many processes are at each side. Returns the number of channels between them: replicas of two components
/// are joined in pairs, and a component of one process has a channel to each replica.
fn check_numbers(
    find: &mut Finder<'_>,
    wire: &Wire,
    raw: &file::Wire,
    components: &[Component],
) -> u32 {
    let count = |side: &[usize]| -> u32 { side.iter().map(|at| components[*at].replicas).sum() };
    let (from, to) = (count(&wire.from), count(&wire.to));
    let name = &wire.name;
    match wire.kind {
        Kind::Channel if wire.from.len() > 1 => find.fault(
            &raw.from,
            format!(
                "channel `{name}` has {} senders, it must have 1: a queue takes several",
                wire.from.len()
            ),
        ),
        Kind::Channel if wire.to.len() > 1 => find.fault(
            &raw.to,
            format!(
                "channel `{name}` has {} receivers, it must have 1: a topic is for all of several, a queue for one of several",
                wire.to.len()
            ),
        ),
        Kind::Channel if from != to && from.min(to) > 1 => find.fault(
            &raw.to,
            format!(
                "channel `{name}` goes from {from} replicas to {to}: their numbers must be equal, or one of them 1"
            ),
        ),
        Kind::Channel => return from.max(to),
        Kind::Topic if from > 1 => find.fault(
            &raw.from,
            format!("topic `{name}` has {from} publishers, it must have 1"),
        ),
        _ => {}
    }
    1
}

/// Gives each component its ends.
pub(super) fn ends(
    find: &mut Finder<'_>,
    file: &File,
    wires: &[Wire],
    components: &mut [Component],
) {
    for (at, (name, raw)) in file.component.iter().enumerate() {
        let mut own: BTreeMap<&str, (usize, Part)> = BTreeMap::new();
        for (number, wire) in wires.iter().enumerate() {
            let [from, to] = wire.kind.parts();
            let parts = [(wire.from.contains(&at), from), (wire.to.contains(&at), to)];
            for (_, part) in parts.into_iter().filter(|(has, _)| *has) {
                if own.insert(&wire.name, (number, part)).is_some() {
                    find.fault_at(
                        wire.line,
                        format!(
                            "`{}` has both ends of {} `{}`",
                            name.get_ref(),
                            wire.kind.word(),
                            wire.name
                        ),
                    );
                }
            }
        }
        let component = &mut components[at];
        let mut renamed = Vec::new();
        for (local, wire) in &raw.ends {
            match own.get(wire.get_ref().as_str()) {
                Some(end) => {
                    component.ends.insert(local.clone(), *end);
                    renamed.push(wire.get_ref().as_str());
                }
                None => no_end(find, name, wire, &own),
            }
        }
        let rest = own.iter().filter(|(wire, _)| !renamed.contains(*wire));
        for (wire, end) in rest {
            component.ends.insert((*wire).to_owned(), *end);
        }
        let takes = [Part::Receive, Part::Subscribe, Part::Consume];
        let gives = [Part::Send, Part::Publish, Part::Produce];
        for (end, parts, word) in [(&raw.stdin, takes, "stdin"), (&raw.stdout, gives, "stdout")] {
            let Some(end) = end else { continue };
            match component.ends.get(end.get_ref()) {
                Some((wire, _)) if wires[*wire].copies > component.replicas => find.fault(
                    end,
                    format!(
                        "{word} is `{}`, which is {} channels here, one for each replica at the other end: it must be one",
                        end.get_ref(),
                        wires[*wire].copies
                    ),
                ),
                Some((_, part)) if parts.contains(part) => {}
                Some((_, part)) => find.fault(
                    end,
                    format!(
                        "{word} is `{}`, at which the component should {}",
                        end.get_ref(),
                        part.verb()
                    ),
                ),
                None => no_end(find, name, end, &own),
            }
        }
        let sends = component
            .ends
            .values()
            .filter(|(_, part)| *part == Part::Send);
        component.rules.receivers = sends
            .flat_map(|(wire, _)| wires[*wire].to.clone())
            .collect();
        let others = component
            .ends
            .values()
            .any(|(_, part)| matches!(part, Part::Publish | Part::Produce | Part::Serve));
        if others {
            // The component is of use to others, too.
            component.rules.receivers.clear();
        }
    }
}

fn no_end(
    find: &mut Finder<'_>,
    component: &Spanned<String>,
    end: &Spanned<String>,
    own: &BTreeMap<&str, (usize, Part)>,
) {
    let known: Vec<_> = own.keys().copied().collect();
    let text = format!(
        "component `{}` has no end of `{}`; it is in `from` or `to` of: {}",
        component.get_ref(),
        end.get_ref(),
        if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        }
    );
    find.fault(end, text);
}

/// Returns the manager's configuration: what the file says, and a rule for each pool.
pub(super) fn manager(
    find: &mut Finder<'_>,
    file: &File,
    wires: &[Wire],
    components: &[Component],
) -> String {
    let mut config = file
        .manager
        .as_ref()
        .map_or_else(Table::new, |given| given.get_ref().clone());
    let mut rules: Vec<Value> = Vec::new();
    for ((_, raw), wire) in kinds(file).into_iter().flat_map(|(_, all)| all).zip(wires) {
        let mut rule = Table::new();
        let raw_of = |at: &usize| file.component.values().nth(*at);
        let writer = wire.from.first().and_then(raw_of);
        let priority = raw.priority.or(writer.and_then(|c| c.priority));
        if let Some(priority) = priority {
            rule.insert("priority".to_owned(), Value::from(i64::from(priority)));
        }
        let target = raw
            .target
            .as_ref()
            .or(writer.and_then(|c| c.target.as_ref()));
        if let Some(target) = target {
            rule.insert("target".to_owned(), Value::from(*target.get_ref()));
        }
        if let Some(min) = find.unit(raw.min.as_ref(), parse_size) {
            rule.insert("min".to_owned(), bytes(min));
        }
        let quota = writer.and_then(|c| c.quota.as_ref());
        if let Some(quota) = find.unit(quota, parse_size) {
            let group = wire.from.first().map_or("", |at| &components[*at].name);
            rule.insert("group".to_owned(), Value::from(group));
            rule.insert("group_max".to_owned(), bytes(quota));
        }
        if !rule.is_empty() {
            rules.extend(wire.names().map(|name| {
                let mut rule = rule.clone();
                rule.insert("name".to_owned(), Value::from(name));
                Value::Table(rule)
            }));
        }
    }
    if !rules.is_empty() {
        config
            .entry("policy")
            .or_insert_with(|| Value::from(POLICY));
        let given = config
            .entry("pool")
            .or_insert_with(|| Value::Array(Vec::new()));
        // The manager's parser reports anything else.
        if let Value::Array(given) = given {
            given.extend(rules);
        }
    }
    let users: Vec<u32> = components.iter().filter_map(|c| c.rights.uid).collect();
    if !users.is_empty() {
        // The folder of the socket can be passed by all: the manager's rules say whom it lets in.
        config
            .entry("socket_mode")
            .or_insert_with(|| Value::Integer(0o666));
        config.entry("connect").or_insert_with(|| {
            let own = tranship_sys::process::geteuid();
            let rule = |uid: u32| {
                let uid = Value::Integer(uid.into());
                Value::Table(Table::from_iter([("uid".to_owned(), uid)]))
            };
            Value::Array(std::iter::once(own).chain(users).map(rule).collect())
        });
    }
    let text = config.to_string();
    let line = file.manager.as_ref().map_or(1, |given| find.line(given));
    match Config::parse(&text) {
        Ok(_) => {}
        Err(ConfigError::Parse { message, .. }) => {
            find.fault_at(line, format!("[manager]: {message}"))
        }
        Err(other) => find.fault_at(line, format!("[manager]: {other}")),
    }
    text
}

fn bytes(of: u64) -> Value {
    Value::Integer(i64::try_from(of).unwrap_or(i64::MAX))
}
