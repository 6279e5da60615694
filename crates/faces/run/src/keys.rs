//! Keys of names: each process of a program has one, and the manager opens to it only the names that the file gives it.

use crate::program::{Kind, Program, Wire};
use anyhow::{Context, Result};
use std::io::Read;
use toml::{Table, Value};

/// Bytes of a key: too many to guess.
const BYTES: usize = 16;

/// Makes a key for each process of the program, in the order of [`Program::processes`], and the operator's.
pub(crate) fn make(program: &Program) -> Result<(Vec<String>, String)> {
    let mut random = std::fs::File::open("/dev/urandom").context("opening /dev/urandom")?;
    let mut key = || {
        let mut bytes = [0; BYTES];
        let read = random.read_exact(&mut bytes);
        read.context("reading /dev/urandom")?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let keys: Result<_> = program.processes().iter().map(|_| key()).collect();
    Ok((keys?, key()?))
}

/// Returns the manager's configuration with the rules about names. Without a wire no name can be had.
pub(crate) fn config(program: &Program, keys: &[String], operator: &str) -> Result<String> {
    let mut config: Table = program.manager.parse().context("the manager's table")?;
    let processes = program.processes();
    let rule = |wire: &Wire, copy: u32| {
        let keys_of = |side: &[usize]| -> Value {
            let at_it = |(at, replica): &(usize, u32)| {
                let component = &program.components[*at];
                side.contains(at) && component.copies_at(wire, *replica).contains(&copy)
            };
            let its = processes
                .iter()
                .zip(keys)
                .filter(|(process, _)| at_it(process));
            Value::Array(its.map(|(_, key)| Value::from(key.as_str())).collect())
        };
        // A server offers its service; of all other wires the sender does.
        let (export, bind) = match wire.kind {
            Kind::Service => (&wire.to, &wire.from),
            Kind::Channel | Kind::Topic | Kind::Queue => (&wire.from, &wire.to),
        };
        Value::Table(Table::from_iter([
            ("name".to_owned(), wire.name_of(copy).into()),
            (
                "line".to_owned(),
                i64::try_from(wire.line).unwrap_or(0).into(),
            ),
            ("export".to_owned(), keys_of(export)),
            ("bind".to_owned(), keys_of(bind)),
        ]))
    };
    let each = program.wires.iter();
    let rules = each.flat_map(|wire| (0..wire.copies).map(move |copy| (wire, copy)));
    let rules = rules.map(|(wire, copy)| rule(wire, copy)).collect();
    config.insert("given".to_owned(), Value::Array(rules));
    config.insert("operator_key".to_owned(), operator.into());
    Ok(config.to_string())
}
