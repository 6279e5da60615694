//! A copy of the tree, in which code is changed and tests are run.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

pub(super) struct Tree {
    root: PathBuf,
    target: PathBuf,
}

/// Result of the tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tests {
    Pass,
    /// The first that failed.
    Fail(String),
    Hang,
}

/// A file that is not as it was.
pub(super) struct Changed {
    path: PathBuf,
    text: String,
}

impl Changed {
    pub fn restore(self) -> Result<()> {
        std::fs::write(&self.path, &self.text).with_context(|| self.path.display().to_string())
    }
}

impl Tree {
    /// Copies the files that git knows, as they are in the working tree. A file that is the same already is left alone,
    /// with its time.
    pub fn new(from: &Path) -> Result<Tree> {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let folder = target
            .map_or_else(|| from.join("target"), PathBuf::from)
            .join("mutants");
        let root = folder.join("tree");
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(from)
            .output();
        let listed = listed.context("running git")?;
        ensure!(listed.status.success(), "git ls-files: {}", listed.status);
        let names = String::from_utf8(listed.stdout).context("names of files")?;
        // A file that is gone meanwhile goes here too.
        let list = folder.join("names");
        let last = std::fs::read_to_string(&list).unwrap_or_default();
        let now: BTreeSet<&str> = names.split('\0').collect();
        for gone in last.split('\0').filter(|name| !now.contains(name)) {
            let _ = std::fs::remove_file(root.join(gone));
        }
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let (source, copy) = (from.join(name), root.join(name));
            let Ok(bytes) = std::fs::read(&source) else {
                continue;
            };
            if std::fs::read(&copy).is_ok_and(|old| old == bytes) {
                continue;
            }
            std::fs::create_dir_all(copy.parent().context("a folder")?)?;
            // The copy has the file's mode.
            std::fs::copy(&source, &copy).with_context(|| copy.display().to_string())?;
        }
        std::fs::write(&list, &names).with_context(|| list.display().to_string())?;
        Ok(Tree {
            root,
            target: folder.join("target"),
        })
    }

    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.root.join(file);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// Changes a file until it is restored.
    pub fn change(&self, file: &str, how: impl FnOnce(&str) -> Result<String>) -> Result<Changed> {
        let path = self.root.join(file);
        let text = self.read(file)?;
        std::fs::write(&path, how(&text)?)?;
        Ok(Changed { path, text })
    }

    /// Builds tests; `false` if that cannot be.
    pub fn build(&self, args: &[String]) -> Result<bool> {
        let built = self.cargo(args, &["--no-run"], Duration::from_secs(3600))?;
        Ok(built.status.success())
    }

    /// Runs tests; a test that takes longer than the limit hangs.
    pub fn run(&self, args: &[String], limit: Duration) -> Result<Tests> {
        let run = self.cargo(args, &[], limit)?;
        Ok(match run.status.code() {
            Some(0) => Tests::Pass,
            Some(124 | 137) => Tests::Hang,
            _ => Tests::Fail(first_failed(&String::from_utf8_lossy(&run.stdout))),
        })
    }

    /// Runs cargo. `timeout` kills the tests too, not only cargo. As in a shell, `KEY=VALUE` words before all others
    /// are variables.
    fn cargo(&self, args: &[String], more: &[&str], limit: Duration) -> Result<Output> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let variables = args.iter().map_while(|arg| {
            let (key, value) = arg.split_once('=')?;
            (!key.starts_with('-')).then_some((key, value))
        });
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &limit.as_secs().to_string()]);
        command.arg(cargo).args(["test", "--quiet"]);
        command
            .args(more)
            .args(&args[variables.clone().count()..])
            .current_dir(&self.root);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
            .env("CARGO_TERM_COLOR", "never")
            .env("RUST_BACKTRACE", "0");
        // Nobody debugs these programs, and without debug information they are linked sooner.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").envs(variables);
        command.output().context("running timeout and cargo")
    }
}

/// Returns the name in `test NAME ... FAILED` or, of the quiet harness, the first of the list of failures.
fn first_failed(said: &str) -> String {
    let listed = said.lines().rev().take_while(|line| *line != "failures:");
    let listed: Vec<&str> = listed
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|test| !test.contains(' '))
        .collect();
    listed.last().map_or_else(
        || "a program that ended".to_owned(),
        |test| (*test).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_found() {
        let said = "failures:\n\n---- b stdout ----\n    x\n\nfailures:\n        at b.c\n    a::b\n    c\n\ntest result: FAILED.\n";
        assert_eq!(first_failed(said), "a::b");
        assert_eq!(first_failed("running 1 test\n"), "a program that ended");
    }
}
