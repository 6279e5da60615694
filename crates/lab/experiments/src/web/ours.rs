//! How the web server of isolated components is started: its own file, with another port, folder and memory.

use super::system::System;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::{Table, Value};

/// The server's file, as people start it.
const FILE: &str = include_str!("../../../../../apps/web/web.toml");
/// Components that the experiments need. Peers have no log either.
const COMPONENTS: [&str; 7] = [
    "front", "http", "guard", "route", "cache", "static", "dynamic",
];
const RULES: [&str; 4] = ["--rule", "/static=static", "--rule", "/dynamic=cache"];

/// The memory of the web server of isolated components.
#[derive(Clone, Default, Debug)]
pub(crate) struct Setup {
    /// The program's table of the manager.
    pub manager: Table,
    /// The largest size of each component's pool, if it is not the file's.
    pub pool: Option<&'static str>,
}

/// Makes the command that starts ours. `dir` has the folder `static`, and gets the program's file.
pub(super) fn command(system: System, port: u16, dir: &Path, setup: &Setup) -> Result<Command> {
    let web = beside("tranship-web")?;
    let listen = format!("127.0.0.1:{port}");
    if system == System::SingleProcess {
        let mut command = Command::new(web);
        command.args(["one", "--listen", &listen]).args(RULES);
        command.arg("--root").arg(dir);
        return Ok(command);
    }
    let file = dir.join("web.toml");
    fs::write(&file, program(&web, &listen, dir, setup)?)?;
    let mut command = Command::new(beside("tranship")?);
    command.arg("run").arg(file);
    // The manager's socket is there, where the experiment finds it.
    command.env("XDG_RUNTIME_DIR", dir);
    Ok(command)
}

/// Returns the program's file.
fn program(web: &Path, listen: &str, dir: &Path, setup: &Setup) -> Result<String> {
    let mut all: Table = FILE.parse().context("the web server's file")?;
    all.insert("manager".to_owned(), Value::Table(setup.manager.clone()));
    let components = table(&mut all, "component")?;
    components.retain(|name, _| COMPONENTS.contains(&name));
    let text = |path: &Path| Value::from(path.to_string_lossy().into_owned());
    let rules = RULES.map(Value::from);
    for (name, component) in components.iter_mut() {
        let component = component.as_table_mut().context("a component")?;
        let mut run = vec![text(web), Value::from(name.as_str())];
        match name.as_str() {
            "front" => {
                component.insert("listen".to_owned(), Value::Array(vec![listen.into()]));
            }
            "route" => run.extend(rules.clone()),
            "static" => {
                run.extend(["--root".into(), text(dir)]);
                let read = Table::from_iter([("read".to_owned(), Value::Array(vec![text(dir)]))]);
                component.insert("sandbox".to_owned(), Value::Table(read));
            }
            _ => {}
        }
        component.insert("run".to_owned(), Value::Array(run));
    }
    for wires in ["channel", "topic", "queue", "service"] {
        let Some(Value::Table(wires)) = all.get_mut(wires) else {
            continue;
        };
        if let Some(pool) = setup.pool {
            for wire in wires.iter_mut().filter_map(|(_, wire)| wire.as_table_mut()) {
                wire.insert("pool".to_owned(), pool.into());
            }
        }
        wires.retain(|_, wire| {
            let ends = ["from", "to"].map(|end| wire.get(end));
            let known = |end: &Value| match end {
                Value::String(name) => COMPONENTS.contains(&name.as_str()),
                _ => false,
            };
            ends.into_iter().flatten().all(known)
        });
    }
    Ok(toml::to_string(&all)?)
}

fn table<'a>(all: &'a mut Table, name: &str) -> Result<&'a mut Table> {
    let found = all.get_mut(name).and_then(Value::as_table_mut);
    found.with_context(|| format!("the web server's file has no table `{name}`"))
}

/// Returns a program that lies beside this one.
fn beside(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe().context("finding this program")?;
    let there = here.with_file_name(name);
    if !there.is_file() {
        let dir = there.display();
        anyhow::bail!("{dir} is not there: `cargo build -p tranship-cli -p tranship-web` makes it");
    }
    Ok(there)
}

/// Returns the manager's socket of a program that was started in this folder.
pub(super) fn socket(dir: &Path) -> Option<PathBuf> {
    let programs = fs::read_dir(dir.join("tranship")).ok()?;
    let sockets = programs.flatten().map(|it| it.path().join("manager.sock"));
    sockets.into_iter().find(|socket| socket.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_file_with_another_port_and_folder() {
        let setup = Setup {
            manager: "total = \"64MiB\"".parse().expect("a table"),
            pool: Some("16MiB"),
        };
        let made = program(
            Path::new("/p/tranship-web"),
            "127.0.0.1:1",
            Path::new("/d"),
            &setup,
        );
        let made: Table = made.expect("a file").parse().expect("TOML");
        let of = |name: &str| &made["component"][name];
        assert_eq!(of("front")["listen"][0].as_str(), Some("127.0.0.1:1"));
        assert_eq!(of("static")["sandbox"]["read"][0].as_str(), Some("/d"));
        assert_eq!(of("http")["run"][0].as_str(), Some("/p/tranship-web"));
        assert_eq!(made["manager"]["total"].as_str(), Some("64MiB"));
        assert_eq!(
            made["channel"]["front-http"]["pool"].as_str(),
            Some("16MiB")
        );
        let channels = made["channel"].as_table().expect("channels");
        assert!(channels.contains_key("front-http") && !channels.contains_key("front-log"));
    }
}
