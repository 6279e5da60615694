//! Completions and man pages, from the one definition of the command line.

use crate::args::Args;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;
use std::path::Path;

pub(crate) fn completions(shell: Shell) -> Result<Answer> {
    // Into memory first: the generator panics where it cannot write, and a closed pipe is no error here.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "tranship", &mut script);
    script.extend(names(shell).bytes());
    output::stdout().write_all(&script)?;
    Ok(Answer::Yes)
}

/// Returns the part of a completion script that offers names of topics and services, which the program lists.
fn names(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("names.bash"),
        Shell::Fish => include_str!("names.fish"),
        Shell::Zsh => include_str!("names.zsh"),
        _ => "",
    }
}

/// Writes `tranship.1`, `tranship-stat.1`, ...
pub(crate) fn man(dir: &Path) -> Result<Answer> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let command = visible().disable_help_subcommand(true);
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("writing man pages to {}", dir.display()))?;
    Ok(Answer::Yes)
}

/// Returns the command line without commands that only the demonstration calls: completions offer hidden commands
/// otherwise.
fn visible() -> clap::Command {
    let all = Args::command();
    let about = all.get_about().cloned().unwrap_or_default();
    let after = all.get_after_long_help().cloned().unwrap_or_default();
    clap::Command::new("tranship")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .after_long_help(after)
        .args(all.get_arguments())
        .subcommands(all.get_subcommands().filter(|c| !c.is_hide_set()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_pages_of_all_visible_commands() {
        let dir = tempfile::tempdir().expect("a folder");
        man(dir.path()).expect("man pages");
        for page in [
            "tranship.1",
            "tranship-stat.1",
            "tranship-manager-check-config.1",
        ] {
            assert!(dir.path().join(page).exists(), "{page}");
        }
        assert!(!dir.path().join("tranship-demo-consumer.1").exists());
        let main = std::fs::read_to_string(dir.path().join("tranship.1")).expect("a page");
        assert!(main.contains("TRANSHIP_SOCKET") && main.contains("Exit codes"));
    }

    #[test]
    fn completions_offer_no_hidden_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(), "tranship", &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("doctor"), "{shell}");
            assert!(!script.contains("demo-consumer"), "{shell}");
        }
    }
}
