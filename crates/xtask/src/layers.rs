//! Arrows between the workspace's crates point only downward.

use crate::findings::Findings;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// The layers, highest first; inside a layer an arrow may point only to a crate listed later.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "dev",
        &[
            "xtask",
            "tranship-bench",
            "tranship-model",
            "tranship-testkit",
            "tranship-netpath",
        ],
    ),
    (
        "faces",
        &[
            "tranship-cli",
            "tranship-preload",
            "tranship-zcopy-preload",
            "tranship-capi",
            "tranship-py",
        ],
    ),
    ("facade", &["tranship"]),
    (
        "features",
        &[
            "tranship-block",
            "tranship-cache",
            "tranship-channel",
            "tranship-transport",
            "tranship-mbuf",
            "tranship-zcopy",
            "tranship-malloc",
            "tranship-sandbox",
            "tranship-observe",
        ],
    ),
    (
        "core",
        &[
            "tranship-core",
            "tranship-session",
            "tranship-manager",
            "tranship-policy",
            "tranship-proto",
        ],
    ),
    (
        "base",
        &[
            "tranship-ring",
            "tranship-zone",
            "tranship-ledger",
            "tranship-region",
            "tranship-sync",
            "tranship-sys",
            "tranship-error",
        ],
    ),
];

/// Crates that any crate's tests may use (a dev-dependency only).
const FOR_TESTS: &[&str] = &["tranship-model", "tranship-testkit"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// Asks cargo for the workspace's arrows and judges each.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
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
        let Some(from) = rank(&package.name) else {
            findings.error(format!(
                "crate {} is in no layer of xtask/src/layers.rs",
                package.name
            ));
            continue;
        };
        let ours = package.dependencies.iter().filter(|dep| dep.path.is_some());
        for dep in ours {
            let in_tests = dep.kind.as_deref() == Some("dev");
            if dep.name == package.name || (in_tests && FOR_TESTS.contains(&dep.name.as_str())) {
                continue;
            }
            if rank(&dep.name).is_none_or(|to| to <= from) {
                findings.error(format!(
                    "{} must not depend on {}: arrows point only downward ({} to {})",
                    package.name,
                    dep.name,
                    layer(&package.name),
                    layer(&dep.name)
                ));
            }
        }
    }
    findings
}

/// Position counted from the top over all layers.
fn rank(name: &str) -> Option<usize> {
    LAYERS
        .iter()
        .flat_map(|(_, crates)| crates.iter())
        .position(|known| *known == name)
}

fn layer(name: &str) -> &'static str {
    LAYERS
        .iter()
        .find(|(_, crates)| crates.contains(&name))
        .map_or("no layer", |(layer, _)| layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.to_owned(),
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| Dependency {
                    name: (*name).to_owned(),
                    kind: kind.map(str::to_owned),
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
    fn upward_and_against_the_order_inside_a_layer_are_errors() {
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
    fn a_crate_in_no_layer_is_an_error() {
        assert_eq!(errors(package("tranship-new", &[])), 1);
        assert_eq!(
            errors(package("tranship-core", &[("tranship-new", None)])),
            1
        );
    }
}
