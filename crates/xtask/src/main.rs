//! Chores of the repository, run by `make lint` and CI: `cargo run -p xtask -- layers | tidy | all`; by `make mutants`: `mutants`.
//!
//! What it is for: the rules of ARCHITECTURE.md that neither the compiler nor clippy can check, and whether tests notice
//! changes of the code.
//!
//! NOT here: anything the product needs at build time or run time; formatting and lints (cargo does those).

mod layers;
mod mutants;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = repository_root();
    let chore = std::env::args().nth(1).unwrap_or_else(|| "all".to_owned());
    let outcome = match chore.as_str() {
        "layers" => layers::check(&root),
        "tidy" => tidy::check(&root),
        "all" => layers::check(&root).and_then(|mut found| {
            found.merge(tidy::check(&root)?);
            Ok(found)
        }),
        "mutants" => return mutate(&root),
        other => {
            eprintln!(
                "xtask: unknown chore `{other}`; known: layers, tidy, all, mutants [FILTER...]"
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

/// No answer of the kind that the others give: it runs for an hour, and reports as it goes.
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

/// The workspace's root, two levels above this crate.
fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// What a chore found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
    looked_at: usize,
}

impl Findings {
    pub(crate) fn error(&mut self, text: String) {
        self.errors.push(text);
    }

    pub(crate) fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Counts one thing examined, so that a check that saw nothing cannot pass for a clean one.
    pub(crate) fn saw(&mut self) {
        self.looked_at += 1;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
        self.looked_at += other.looked_at;
    }

    fn print(&self, chore: &str) -> ExitCode {
        for text in &self.warnings {
            println!("warning: {text}");
        }
        for text in &self.errors {
            println!("error: {text}");
        }
        if self.looked_at == 0 {
            println!("error: {chore} looked at nothing");
            return ExitCode::FAILURE;
        }
        println!(
            "xtask {chore}: {} things looked at, {} errors, {} warnings",
            self.looked_at,
            self.errors.len(),
            self.warnings.len()
        );
        if self.errors.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
