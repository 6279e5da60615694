//! `zc-suite`: memcached's own tests, `t/*.t` of Debian's source package, each against a cache server of its own that was just started. The tests are told
//! of it by `T_MEMD_USE_DAEMON`. Nothing is built: what they ask the program itself for, how it was configured, a script answers.

use crate::bench::Bench;
use crate::options::Common;
use crate::plan::Outcome;
use anyhow::{Context, Result, ensure};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranship_cache::{Options, Server};

/// What the tests take for memcached: it says that it has neither TLS nor SASL nor other parts that tests are left out for.
const PROGRAM: &str = "#!/bin/sh\n\
    [ \"$1\" = -h ] || exit 1\n\
    printf 'memcached 1.6.18\\n-U, --udp-port=<num>\\n-s, --unix-socket=<file>\\n'\n";
/// Seconds for a file: some wait for ever for a protocol that is not here.
const PATIENCE: &str = "60";

/// The page that lists the files that do not pass, and why: they are about memcached's inside, or about options that its
/// servers are started with. All others pass.
const PAGE: &str = include_str!("../../../../../docs/zcopy.md");

/// What the page says of a file that does not pass.
fn inside(name: &str) -> Option<&'static str> {
    let (_, rows) = PAGE.split_once("| file | about |\n")?;
    let row = rows.lines().take_while(|line| line.starts_with('|'));
    let mut whys = row.filter_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
    whys.next()?.strip_suffix(" |")
}

/// Where the package is, if the machine's own lists have no sources.
const DEBIAN: &str = "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: bookworm\nComponents: main\n\
    Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n";

#[derive(Debug, clap::Args)]
pub struct Suite {
    /// Where the package is unpacked [default: zc-memcached, beside this program].
    #[arg(long)]
    folder: Option<PathBuf>,
}

impl Bench for Suite {
    fn systems(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Runs all files; one that passes or fails against the list is a failure.
    fn measure(&self, _common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let source = match self.folder().and_then(|folder| prepared(&folder)) {
            Ok(source) => source,
            Err(error) => {
                eprintln!("SKIPPED: zc-suite: {error:#}");
                return Ok(outcome);
            }
        };
        for name in files(&source)? {
            run(&source, &name, &mut outcome);
        }
        Ok(outcome)
    }
}

impl Suite {
    fn folder(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        let exe = std::env::current_exe()?;
        Ok(exe.parent().context("no folder")?.join("zc-memcached"))
    }
}

/// The source's folder, with what stands for the program.
fn prepared(folder: &Path) -> Result<PathBuf> {
    let perl = Command::new("perl")
        .arg("-v")
        .stdout(Stdio::null())
        .status();
    ensure!(perl.is_ok_and(|perl| perl.success()), "no perl");
    std::fs::create_dir_all(folder)?;
    // The tests are run in it, so it has to be named from the root on.
    let source = unpacked(folder)?.canonicalize()?;
    let program = source.join("memcached-debug");
    std::fs::write(&program, PROGRAM)?;
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
    Ok(source)
}

/// The source's folder; fetched if it is not there.
fn unpacked(folder: &Path) -> Result<PathBuf> {
    let found = || {
        let all = std::fs::read_dir(folder).ok()?;
        let mut paths = all.filter_map(|entry| Some(entry.ok()?.path()));
        paths.find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.is_dir() && name.is_some_and(|name| name.starts_with("memcached-"))
        })
    };
    if let Some(found) = found() {
        return Ok(found);
    }
    let fetch = |options: &[String]| {
        let mut command = Command::new("apt-get");
        say(command
            .args(options)
            .args(["source", "memcached"])
            .current_dir(folder))
    };
    if fetch(&[]).is_err() {
        // Lists of our own: nothing of the machine's changes.
        let lists = folder.join("lists");
        std::fs::create_dir_all(lists.join("partial"))?;
        let parts = folder.join("parts");
        std::fs::create_dir_all(&parts)?;
        std::fs::write(parts.join("source.sources"), DEBIAN)?;
        let options = [
            "Dir::Etc::SourceList=/dev/null".to_owned(),
            format!("Dir::Etc::SourceParts={}", parts.display()),
            format!("Dir::State::Lists={}", lists.display()),
        ];
        let options: Vec<_> = options
            .into_iter()
            .flat_map(|it| ["-o".to_owned(), it])
            .collect();
        say(Command::new("apt-get").args(&options).arg("update"))?;
        fetch(&options)?;
    }
    found().context("apt-get source left no folder")
}

fn say(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        said.trim()
    );
    Ok(())
}

fn files(source: &Path) -> Result<Vec<String>> {
    let all = std::fs::read_dir(source.join("t")).context("the package has no tests")?;
    let names = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix(".t")?.to_owned()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

fn run(source: &Path, name: &str, outcome: &mut Outcome) {
    let said = match (passes(source, name), inside(name)) {
        (Ok(Some(how)), None) => how,
        (Ok(None), Some(why)) => format!("about memcached's inside: {why}"),
        (Ok(Some(_)), Some(_)) => {
            outcome.failures += 1;
            "FAILED: it passes, and is listed as not passing".to_owned()
        }
        (Ok(None), None) => {
            outcome.failures += 1;
            "FAILED: it does not pass".to_owned()
        }
        (Err(error), _) => {
            outcome.failures += 1;
            format!("FAILED: {error:#}")
        }
    };
    outcome.verdicts.push(format!("{name}.t: {said}"));
}

/// How it passes, if it does.
fn passes(source: &Path, name: &str) -> Result<Option<String>> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(Options {
        listen: any,
        udp: Some(any),
        ..Options::default()
    })?;
    let done = Command::new("timeout")
        .args([PATIENCE, "perl", "-I.", "-It/lib"])
        .arg(format!("t/{name}.t"))
        .current_dir(source)
        .env("T_MEMD_USE_DAEMON", server.address().to_string())
        .stdin(Stdio::null())
        .output()
        .context("running perl")?;
    server.stop();
    let said = String::from_utf8_lossy(&done.stdout);
    let how = match said.split_once("# SKIP ") {
        Some((_, why)) => format!("left out by itself: {}", why.trim()),
        None => "passes".to_owned(),
    };
    Ok(done.status.success().then_some(how))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_says_why_a_file_does_not_pass() {
        assert_eq!(super::inside("binary"), Some("the binary protocol"));
        assert_eq!(super::inside("metaget"), None);
    }
}
