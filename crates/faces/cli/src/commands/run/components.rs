//! `tranship run FILE.toml`: a program of isolated components.

use super::view;
use crate::args::RunArgs;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use tranship_run::{Faults, Program, Supervisor, graph, keep, launch, read, try_sandboxes};

/// The launcher.
pub(in crate::commands) fn component(plan: &str) -> Result<Answer> {
    Ok(answer(launch(plan)?))
}

pub(super) fn run(file: &Path, args: &RunArgs) -> Result<Answer> {
    if args.connect.socket.is_some() {
        bail!(
            "a program of components has a manager of its own: --socket is for `tranship run -- PROGRAM`"
        );
    }
    let program = read(file)?;
    if let Some(dir) = &args.supervise {
        return supervise(&program, dir, args.view);
    }
    if let Some(draw) = &args.draw {
        std::fs::write(draw, graph::svg(&program))
            .with_context(|| format!("writing {}", draw.display()))?;
    }
    if args.dry_run {
        return dry_run(&program);
    }
    let faults = try_sandboxes(&program)?;
    if !faults.is_empty() {
        let file = file.to_owned();
        return Err(Faults { file, faults }.into());
    }
    if args.check {
        let mut out = output::stdout();
        out.write_all(graph::text(&program).as_bytes())?;
        out.flush()?;
        return Ok(Answer::Yes);
    }
    let mut arguments: Vec<OsString> = vec!["run".into(), file.into()];
    if args.view {
        arguments.push("--view".into());
    }
    arguments.push("--supervise".into());
    Ok(answer(keep(&program, &arguments)?))
}

fn supervise(program: &Program, dir: &Path, shows: bool) -> Result<Answer> {
    let keeper = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    let supervisor = Supervisor::new(program, dir, keeper)?;
    if shows {
        view::start(supervisor.view(), supervisor.socket())?;
    }
    Ok(answer(supervisor.run()?))
}

fn answer(code: i32) -> Answer {
    Answer::Code(u8::try_from(code).unwrap_or(crate::exit::ERROR))
}

/// Prints what would be started.
fn dry_run(program: &Program) -> Result<Answer> {
    let mut out = output::stdout();
    for (at, replica) in program.processes() {
        let component = &program.components[at];
        writeln!(out, "{}.{replica}", component.name)?;
        writeln!(out, "  run {}", component.run.join(" "))?;
        for (name, value) in &component.env {
            writeln!(out, "  environment {name}={value}")?;
        }
        for (name, end) in program.brief(component, replica).ends {
            writeln!(
                out,
                "  {} `{name}`: {}",
                end.part.verb(),
                serde_json::to_string(&end)?
            )?;
        }
        writeln!(
            out,
            "  rights {}",
            serde_json::to_string(&component.rights)?
        )?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}
