//! Weight of the library and the program: the crates that a user has to build, and the size of the program.

use crate::findings::Findings;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Limit of a package with such features: the most crates that it is built of (with those that run in the compiler),
/// and crates that it must not have.
struct Limit {
    package: &'static str,
    features: &'static [&'static str],
    crates: usize,
    without: &'static str,
}

/// Limits a little above the numbers of 2026-11-29: 29, 86 and 174.
const LIMITS: [Limit; 3] = [
    // A clean build of it is to take 30 s on two cores.
    Limit {
        package: "tranship",
        features: &[],
        crates: 32,
        without: "clap ring rustls toml tranship-manager tranship-policy tranship-transport tranship-zcopy",
    },
    // A user that installs the bare program builds nothing of the parts that were left out.
    Limit {
        package: "tranship-cli",
        features: &["--no-default-features"],
        crates: 92,
        without: "lz4_flex ratatui ring rustls tranship-block tranship-cache tranship-transport",
    },
    Limit {
        package: "tranship-cli",
        features: &[],
        crates: 184,
        without: "tranship-lab",
    },
];

/// The program as `cargo build --release` makes it is smaller than that.
const PROGRAM_BYTES: u64 = 15_000_000;

/// Asks cargo for the built crates, and checks the program if it was built.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    for limit in &LIMITS {
        judge_crates(limit, &tree(root, limit)?, &mut findings);
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let program = target.join("release/tranship");
    if let Ok(meta) = std::fs::metadata(&program) {
        judge_program(&program, meta.len(), &mut findings);
    }
    Ok(findings)
}

/// Names and versions.
fn tree(root: &Path, limit: &Limit) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args("tree --offline --edges normal,build --prefix none".split(' '))
        .args(["--package", limit.package])
        .args(limit.features)
        .current_dir(root)
        .output()
        .context("running cargo tree")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree: {}", said.trim());
    String::from_utf8(output.stdout).context("reading cargo tree")
}

fn judge_crates(limit: &Limit, tree: &str, findings: &mut Findings) {
    findings.saw();
    let crates: BTreeSet<(&str, &str)> = tree.lines().filter_map(name_and_version).collect();
    let what = std::iter::once(&limit.package).chain(limit.features);
    let what = what.copied().collect::<Vec<_>>().join(" ");
    let (count, most) = (crates.len(), limit.crates);
    if count > most {
        findings.error(format!(
            "{what} is built of {count} crates, allowed are {most}: leave one out, put it behind a feature, or raise the limit in crates/lab/xtask/src/weight.rs"
        ));
    }
    for (name, version) in &crates {
        if limit.without.split(' ').any(|one| one == *name) {
            findings.error(format!(
                "{what} is built with {name} {version}, which is for a feature that it has not"
            ));
        }
    }
}

fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?))
}

fn judge_program(program: &Path, bytes: u64, findings: &mut Findings) {
    findings.saw();
    if bytes >= PROGRAM_BYTES {
        findings.error(format!(
            "{} has {bytes} bytes, it is to have less than {PROGRAM_BYTES}: an old build, debug information, or something large that came with it",
            program.display()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit {
        package: "p",
        features: &["--no-default-features"],
        crates: 2,
        without: "rustls",
    };

    fn errors(tree: &str) -> Vec<String> {
        let mut findings = Findings::default();
        judge_crates(&LIMIT, tree, &mut findings);
        findings.errors
    }

    #[test]
    fn each_crate_counts_once_and_each_version() {
        assert!(errors("p v0.1.0 (/p)\nsyn v2.0.1\nsyn v2.0.1 (*)\n").is_empty());
        let over = errors("p v0.1.0 (/p)\nsyn v2.0.1\nsyn v1.0.0\n");
        assert_eq!(over.len(), 1);
        assert!(over[0].contains("3 crates, allowed are 2"), "{over:?}");
    }

    #[test]
    fn what_a_feature_brings_is_not_there_without_it() {
        let found = errors("p v0.1.0 (/p)\nrustls v0.23.0\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("rustls v0.23.0"), "{found:?}");
    }

    #[test]
    fn a_program_is_smaller_than_that() {
        let errors = |bytes| {
            let mut findings = Findings::default();
            judge_program(Path::new("tranship"), bytes, &mut findings);
            findings.errors.len()
        };
        assert_eq!((errors(PROGRAM_BYTES - 1), errors(PROGRAM_BYTES)), (0, 1));
    }
}
