//! From the file to the program: everything that can be wrong is found here, with its line.

mod circle;
mod finder;
mod sandbox;
mod wires;

use crate::file;
use crate::listen::Address;
use crate::machine::Rules;
use crate::program::{Component, Filter, Program};
use crate::units::{parse_size, parse_time};
pub use finder::Fault;
use finder::{Finder, check_name, index, line, unknown};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Bytes of a message of a filter's output, where the file does not say.
const FRAME: u64 = 64 << 10;

/// Addresses of a component: as many as one message of a Unix socket carries.
const MOST_SOCKETS: usize = 32;

/// The faults of a file.
#[derive(Debug, thiserror::Error)]
pub struct Faults {
    /// The file.
    pub file: PathBuf,
    /// The faults, by their lines.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            let end = if n + 1 == self.faults.len() { "" } else { "\n" };
            let Fault { line, text } = fault;
            write!(f, "{}:{line}: {text}{end}", self.file.display())?;
        }
        Ok(())
    }
}

/// Reads and checks a file.
///
/// # Errors
/// All faults that were found; one fault if the file cannot be read, or is no TOML of this form.
pub fn read(path: &Path) -> Result<Program, Faults> {
    let failed = |faults| Faults {
        file: path.to_owned(),
        faults,
    };
    let one = |line, text| failed(vec![Fault { line, text }]);
    let text = std::fs::read_to_string(path).map_err(|why| one(1, why.to_string()))?;
    let folder = path
        .canonicalize()
        .map_err(|why| one(1, why.to_string()))?
        .parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&text, &folder, &name).map_err(failed)
}

/// Checks the text of a file. Paths begin in `folder`; `name` is the program's name, if the text does not have one.
///
/// # Errors
/// All faults that were found.
pub fn parse(text: &str, folder: &Path, name: &str) -> Result<Program, Vec<Fault>> {
    let file: file::File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        vec![Fault {
            line: line(text, at),
            text: error.message().to_owned(),
        }]
    })?;
    let mut finder = Finder {
        text,
        faults: Vec::new(),
    };
    let find = &mut finder;
    if file.component.is_empty() {
        find.fault_at(
            1,
            "no component: [component.NAME] with run = [\"PROGRAM\"] is one",
        );
    }
    let names: Vec<&str> = file
        .component
        .keys()
        .map(|name| name.as_ref().as_str())
        .collect();
    let mut components: Vec<Component> = file
        .component
        .iter()
        .map(|(name, raw)| component(find, name, raw, &names, folder))
        .collect();
    two_of_a_device(find, &file);
    let wires = wires::wires(find, &file, &names, &components);
    wires::ends(find, &file, &wires, &mut components);
    circle::of_dependencies(find, &file, &components);
    circle::without_room(find, &wires, &components);
    let manager = wires::manager(find, &file, &wires, &components);
    let name = file
        .name
        .map_or_else(|| name.to_owned(), Spanned::into_inner);
    match finder.faults {
        faults if !faults.is_empty() => {
            let mut faults = faults;
            faults.sort_by_key(|fault| fault.line);
            Err(faults)
        }
        _ => Ok(Program {
            name,
            folder: folder.to_owned(),
            manager,
            components,
            wires,
        }),
    }
}

fn component(
    find: &mut Finder<'_>,
    name: &Spanned<String>,
    raw: &file::Component,
    names: &[&str],
    folder: &Path,
) -> Component {
    check_name(find, name);
    let mut run = raw.run.get_ref().clone();
    match run.first().map(|program| find_program(program, folder)) {
        None => find.fault(
            &raw.run,
            "run is empty: it has the program and its arguments",
        ),
        Some(Ok(path)) => run[0] = path,
        Some(Err(why)) => find.fault(&raw.run, why),
    }
    let mut listen = Vec::new();
    for address in &raw.listen {
        match Address::parse(address.get_ref(), folder) {
            Ok(parsed) if listen.contains(&parsed) => {
                find.fault(address, format!("{:?} is there twice", address.get_ref()));
            }
            Ok(parsed) => listen.push(parsed),
            Err(why) => find.fault(address, format!("{:?}: {why}", address.get_ref())),
        }
    }
    if listen.len() > MOST_SOCKETS {
        find.fault(
            &raw.listen[MOST_SOCKETS],
            format!(
                "listen has {} addresses, it may have {MOST_SOCKETS}",
                listen.len()
            ),
        );
    }
    if let (Some(address), Some(_)) = (
        raw.listen.first(),
        raw.stdin.as_ref().or(raw.stdout.as_ref()),
    ) {
        find.fault(
            address,
            "listen is for a program that knows of it; this one has stdin or stdout",
        );
    }
    let replicas = raw.replicas.as_ref().map_or(1, |n| *n.get_ref());
    if let Some(given) = raw
        .replicas
        .as_ref()
        .filter(|n| !(1..=256).contains(n.get_ref()))
    {
        find.fault(
            given,
            format!("replicas is {replicas}, it must be 1 to 256"),
        );
    }
    let mut after = Vec::new();
    for other in &raw.after {
        match index(names, other.get_ref()) {
            Some(at) => after.push(at),
            None => unknown(find, other, other.get_ref(), names),
        }
    }
    let usual = Rules::default();
    let rules = Rules {
        after,
        restart: raw.restart.unwrap_or(usual.restart),
        pause: find
            .unit(raw.pause.as_ref(), parse_time)
            .unwrap_or(usual.pause),
        longest_pause: find
            .unit(raw.longest_pause.as_ref(), parse_time)
            .unwrap_or(usual.longest_pause),
        tries: raw.tries.as_ref().map(|tries| *tries.get_ref()),
        ready_in: find.unit(raw.ready_in.as_ref(), parse_time),
        stop_in: find
            .unit(raw.stop_in.as_ref(), parse_time)
            .unwrap_or(usual.stop_in),
        background: raw.background,
        receivers: Vec::new(),
    };
    if let Some(tries) = raw.tries.as_ref().filter(|tries| *tries.get_ref() == 0) {
        find.fault(tries, "tries is 0, it must be at least 1");
    }
    if raw.sandbox.lock && raw.ready_in.is_none() {
        find.fault(
            name,
            "lock = true takes hold when the component is ready: ready_in says how long that may take",
        );
    }
    if let Some(end) = raw
        .stdin
        .as_ref()
        .or(raw.stdout.as_ref())
        .filter(|_| raw.sandbox.lock)
    {
        find.fault(
            end,
            "lock = true is for a program that is a domain; this one has stdin or stdout",
        );
    }
    let filter = (raw.stdin.is_some() || raw.stdout.is_some()).then(|| Filter {
        stdin: raw.stdin.as_ref().map(|end| end.get_ref().clone()),
        stdout: raw.stdout.as_ref().map(|end| end.get_ref().clone()),
        frame: find
            .unit(raw.frame.as_ref(), parse_size)
            .unwrap_or(FRAME)
            .try_into()
            .unwrap_or(usize::MAX),
    });
    Component {
        name: name.get_ref().clone(),
        rights: sandbox::rights(find, &raw.sandbox, folder, run.first()),
        run,
        env: raw.env.clone(),
        inherit: raw.inherit.clone(),
        replicas,
        ends: BTreeMap::new(),
        filter,
        listen,
        rules,
        locks: raw.sandbox.lock,
        line: find.line(name),
    }
}

/// Finds TAP devices of two components. A device can be open once only.
fn two_of_a_device(find: &mut Finder<'_>, file: &file::File) {
    let mut devices = BTreeMap::new();
    for (name, raw) in &file.component {
        let name = name.get_ref().as_str();
        for address in &raw.listen {
            let text = address.get_ref().as_str();
            if !text.starts_with("tap:") {
                continue;
            }
            let (other, line) = *devices.entry(text).or_insert((name, find.line(address)));
            if other != name {
                let text = format!(
                    "{text:?} is a device of component `{other}` already, in line {line}: each component has its own"
                );
                find.fault(address, text);
            }
        }
    }
}

/// Returns the absolute path of a program: of the folder if its name has a slash, else of the `PATH`.
fn find_program(program: &str, folder: &Path) -> Result<String, String> {
    let runs = |path: &Path| {
        let found = std::fs::metadata(path);
        found.is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o111 != 0)
    };
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    if program.contains('/') {
        let path = folder.join(program);
        return match runs(&path) {
            true => Ok(text(path)),
            false if path.exists() => Err(format!(
                "{} is no program: its file cannot be run",
                path.display()
            )),
            false => Err(format!("no program {}", path.display())),
        };
    }
    let all = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&all)
        .map(|dir| dir.join(program))
        .find(|path| runs(path));
    found.map(text).ok_or_else(|| {
        format!("no program `{program}` in PATH; one of this folder is \"./{program}\"")
    })
}

#[cfg(test)]
mod tests;
