//! Chores of the repository, run by `make lint` and CI: `cargo run -p xtask -- layers | circles | errors | figures |
//! header | numbers | tidy | weight | site | all`, by `make test` also `surface check`; by `make mutants`: `mutants`, by `make
//! site`: `site stage DIR`. `lines` counts.
//!
//! Purpose: the rules of ARCHITECTURE.md that neither the compiler nor clippy can check, and whether tests notice
//! changes of the code.
//!
//! NOT here: anything the product needs at build time or run time; formatting and lints (cargo does those).

#![deny(unsafe_code)]

mod circles;
mod errors;
mod figures;
mod findings;
mod header;
mod layers;
mod lines;
mod mutants;
mod numbers;
mod site;
mod source;
mod surface;
mod tidy;
mod weight;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = repository_root();
    let chore = std::env::args().nth(1).unwrap_or_else(|| "all".to_owned());
    let outcome = match chore.as_str() {
        "layers" => layers::check(&root),
        "circles" => circles::show(&root),
        "errors" if std::env::args().nth(2).as_deref() == Some("write") => {
            errors::write(&root).and_then(|()| errors::check(&root))
        }
        "errors" => errors::check(&root),
        "figures" if std::env::args().nth(2).as_deref() == Some("write") => {
            figures::write(&root).and_then(|()| figures::check(&root))
        }
        "figures" => figures::check(&root),
        "header" if std::env::args().nth(2).as_deref() == Some("write") => {
            header::write(&root).and_then(|()| header::check(&root))
        }
        "header" => header::check(&root),
        "surface" => match std::env::args().nth(2).as_deref() {
            Some("write") => surface::write(&root).and_then(|()| surface::check(&root)),
            Some("check") => surface::check(&root),
            _ => return show(&chore, surface::all(&root)),
        },
        "numbers" => numbers::check(&root),
        "tidy" => tidy::check(&root),
        "weight" => weight::check(&root),
        "site" => match std::env::args().nth(2).as_deref() {
            Some("stage") => {
                let to = std::env::args().nth(3);
                site::stage(
                    &root,
                    Path::new(to.as_deref().unwrap_or("target/site/pages")),
                )
            }
            _ => site::check(&root),
        },
        "all" => layers::check(&root).and_then(|mut found| {
            found.merge(circles::check(&root)?);
            found.merge(errors::check(&root)?);
            found.merge(figures::check(&root)?);
            found.merge(header::check(&root)?);
            found.merge(numbers::check(&root)?);
            found.merge(tidy::check(&root)?);
            found.merge(weight::check(&root)?);
            found.merge(site::check(&root)?);
            found.merge(mutants::check(&root)?);
            Ok(found)
        }),
        "lines" => {
            let named: Vec<String> = std::env::args().skip(2).collect();
            return show(&chore, lines::table(&root, &named));
        }
        "mutants" => return mutate(&root),
        other => {
            eprintln!(
                "xtask: unknown chore `{other}`; known: layers, circles, errors [write], figures [write], header [check | write], numbers, surface [check | write], tidy, weight, site [stage DIR], all, lines [CRATE...], mutants [FILTER...]"
            );
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(findings) => findings.print(&chore),
        Err(error) => {
            eprintln!("xtask {chore}: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints a result, or why there is none.
fn show(chore: &str, text: anyhow::Result<String>) -> ExitCode {
    match text {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask {chore}: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the mutations. Unlike the other chores it runs for an hour, and reports as it goes.
fn mutate(root: &Path) -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(2).collect();
    match mutants::run(root, &filters) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask mutants: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns the workspace's root, three levels above this crate.
fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
