//! `tranship-lab`: the papers' figures, experiments on memory scheduling with real processes, and a simulator of policies.
//!
//! NOT here: what a user's program runs, and the benches (`tranship-bench`).

#![deny(unsafe_code)]

mod args;
mod experiment;
mod figure7;
mod figure9;
mod lines;
mod machine;
mod orderings;
mod output;
mod papers;
mod part;
mod pinned;
mod plan;
mod played;
mod processes;
mod real;
mod report;
mod residency;
mod sim;
mod simulate;
mod tables;
mod trace;
mod web;

use args::{Args, Command};
use clap::Parser;
use orderings::NOT_SHOWN;
use std::process::ExitCode;

fn main() -> ExitCode {
    let held = match Args::parse().command {
        Command::Experiment(args) => experiment::run(&args),
        Command::Papers(args) => papers::run(&args),
        Command::Simulate(args) => simulate::run(&args).map(|()| true),
        Command::List { json } => simulate::list(json).map(|()| true),
        Command::Part(args) => part::run(&args).map(|()| true),
        Command::Pinned(args) => pinned::run(&args).map(|()| true),
    };
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_SHOWN),
        Err(error) => {
            eprintln!("tranship-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}
