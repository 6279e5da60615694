//! Findings of a chore, and their output.

use std::process::ExitCode;

/// Findings of a chore.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
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

    pub(crate) fn print(&self, chore: &str) -> ExitCode {
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
