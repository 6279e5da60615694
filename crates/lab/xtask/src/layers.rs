//! Arrows between the workspace's crates point only downward.

use crate::findings::Findings;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// The folders of `crates/`, lowest first: name, floor, crates. In a folder an arrow points only to a crate that is listed
/// earlier. Crates of folders on the same floor do not know each other; their tests may.
const HOUSE: [Folder; 11] = [
    ("base", 0, "sys sync error region ring ledger zone"),
    (
        "core",
        1,
        "proto policy manager session core readers topic queue sandbox service typed-derive typed component",
    ),
    ("items", 1, "items"),
    ("net", 2, "transport channel"),
    ("packets", 2, "mbuf netpath"),
    ("values", 2, "zcopy zcopy-preload cache store"),
    ("block", 2, "block"),
    ("heap", 2, "malloc preload"),
    ("faces", 3, "tranship observe run cli capi py"),
    ("apps", 4, "web thumbnails panorama"),
    ("lab", 5, "tso testkit model bench experiments xtask"),
];

type Folder = (&'static str, usize, &'static str);

/// Crates that any crate's tests may use (a dev-dependency only), and its models (under `--cfg loom` only).
const FOR_TESTS: &[&str] = &["model", "testkit", "tso"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    target: Option<String>,
    path: Option<String>,
}

/// Asks cargo for the workspace's arrows and judges each.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args("metadata --format-version 1 --no-deps --offline".split(' '))
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    Ok(judge(&metadata))
}

fn judge(metadata: &Metadata) -> Findings {
    let mut findings = Findings::default();
    for package in &metadata.packages {
        findings.saw();
        let Some(from) = Rank::of(&package.name) else {
            findings.error(format!(
                "crate {} is in no folder of xtask/src/layers.rs",
                package.name
            ));
            continue;
        };
        if !package.manifest_path.ends_with(&from.manifest()) {
            findings.error(format!(
                "crate {} lies in {}, its place is {}",
                package.name,
                package.manifest_path,
                from.manifest()
            ));
        }
        for dep in package.dependencies.iter().filter(|dep| dep.path.is_some()) {
            let in_tests =
                dep.kind.as_deref() == Some("dev") || dep.target.as_deref() == Some("cfg(loom)");
            let to = Rank::of(&dep.name);
            let fine = to.as_ref().is_some_and(|to| {
                to.name == from.name
                    || from.may_use(to)
                    || (in_tests && to.floor == from.floor && to.folder != from.folder)
                    || (in_tests && FOR_TESTS.contains(&to.name))
            });
            if !fine {
                findings.error(format!(
                    "{} must not depend on {}: arrows point only downward ({} to {})",
                    package.name,
                    dep.name,
                    from.folder,
                    to.map_or("no folder", |to| to.folder)
                ));
            }
        }
    }
    findings
}

/// Place of a crate: its folder, that folder's floor, and its number in there.
struct Rank {
    folder: &'static str,
    floor: usize,
    at: usize,
    name: &'static str,
}

impl Rank {
    fn of(package: &str) -> Option<Rank> {
        let wanted = match package.strip_prefix("tranship-") {
            // By its program.
            Some("lab") => "experiments",
            name => name.unwrap_or(package),
        };
        HOUSE.into_iter().find_map(|(folder, floor, crates)| {
            let mut all = crates.split(' ').enumerate();
            let (at, name) = all.find(|(_, known)| *known == wanted)?;
            Some(Rank {
                folder,
                floor,
                at,
                name,
            })
        })
    }

    fn may_use(&self, other: &Rank) -> bool {
        match self.folder == other.folder {
            true => other.at < self.at,
            false => other.floor < self.floor,
        }
    }

    /// Returns the end of its manifest's path.
    fn manifest(&self) -> String {
        let Rank { folder, name, .. } = self;
        match *folder {
            "apps" => format!("apps/{name}/Cargo.toml"),
            // Folders of one crate.
            "items" | "block" => format!("crates/{name}/Cargo.toml"),
            _ => format!("crates/{folder}/{name}/Cargo.toml"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.to_owned(),
            manifest_path: Rank::of(name).map_or_else(String::new, |place| place.manifest()),
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| Dependency {
                    name: (*name).to_owned(),
                    kind: kind.filter(|kind| *kind == "dev").map(str::to_owned),
                    target: kind.filter(|kind| *kind != "dev").map(str::to_owned),
                    path: Some(String::new()),
                })
                .collect(),
        }
    }

    fn errors(package: Package) -> usize {
        judge(&Metadata {
            packages: vec![package],
        })
        .errors
        .len()
    }

    #[test]
    fn downward_is_fine() {
        assert_eq!(
            errors(package("tranship-core", &[("tranship-sys", None)])),
            0
        );
        assert_eq!(
            errors(package("tranship-core", &[("tranship-manager", None)])),
            0
        );
    }

    #[test]
    fn upward_and_against_the_order_inside_a_folder_are_errors() {
        assert_eq!(
            errors(package("tranship-sys", &[("tranship-core", None)])),
            1
        );
        assert_eq!(
            errors(package("tranship-manager", &[("tranship-core", None)])),
            1
        );
        assert_eq!(
            errors(package(
                "tranship-sync",
                &[("tranship-region", Some("dev"))]
            )),
            1
        );
    }

    #[test]
    fn parts_do_not_know_each_other() {
        assert_eq!(
            errors(package("tranship-block", &[("tranship-channel", None)])),
            1
        );
    }

    #[test]
    fn a_crate_in_another_folder_than_its_own_is_an_error() {
        let mut moved = package("tranship-core", &[]);
        moved.manifest_path = "crates/base/core/Cargo.toml".to_owned();
        assert_eq!(errors(moved), 1);
    }

    #[test]
    fn the_test_kit_is_open_to_tests_only() {
        assert_eq!(
            errors(package(
                "tranship-sync",
                &[("tranship-testkit", Some("dev"))]
            )),
            0
        );
        assert_eq!(
            errors(package("tranship-sync", &[("tranship-testkit", None)])),
            1
        );
    }

    #[test]
    fn the_explorer_is_open_to_models_only() {
        let with = |kind| errors(package("tranship-sync", &[("tranship-tso", kind)]));
        assert_eq!(
            [with(Some("cfg(loom)")), with(Some("cfg(unix)")), with(None)],
            [0, 1, 1]
        );
    }

    #[test]
    fn a_crate_in_no_folder_is_an_error() {
        assert_eq!(errors(package("tranship-new", &[])), 1);
        assert_eq!(
            errors(package("tranship-core", &[("tranship-new", None)])),
            1
        );
    }
}
