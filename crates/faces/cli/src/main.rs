//! The program `tranship`.
//!
//! What it is for: the manager as a daemon, a demonstration of the main job, shell-level send and receive,
//! and everything that can be seen from outside: domains, pools, channels, and whether this machine is fit.
//!
//! NOT here: anything another program would want to call (the facade `tranship` has it), decisions about memory,
//! `unsafe` code (the demonstration excepted, which trusts its producer and attacks its own memory).

#![deny(unsafe_code)]

mod args;
mod commands;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod exit;
mod output;
#[cfg(feature = "demo")]
mod plot;

use clap::Parser;
use clap::error::ContextValue;
use std::process::ExitCode;
use tranship_proto::shown;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        // Asking for help or the version is not an error; a wrong command line is one.
        Err(mut problem) => {
            // It would show what is optional as if it were not.
            problem.remove(clap::error::ContextKind::Usage);
            tame(&mut problem);
            let code = if problem.use_stderr() {
                exit::ERROR
            } else {
                exit::OK
            };
            let _ = problem.print();
            return ExitCode::from(code);
        }
    };
    output::start_log(args.verbose);
    exit::code(commands::run(args))
}

/// Makes arguments that an error quotes fit to be shown on a terminal.
fn tame(problem: &mut clap::Error) {
    let given: Vec<_> = problem
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => {
                Some((kind, ContextValue::String(shown(text).into_owned())))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in given {
        problem.insert(kind, value);
    }
}
