//! `tranship demo`: the main job on real input, next to the same work over pipes and sockets.

mod baseline;
mod consumers;
mod input;
mod passing;
mod plan;
mod progress;
mod report;
mod sandbox;
mod table;
mod worker;

use crate::args::demo::{ConsumerArgs, ConsumerRole, DemoArgs, Transport};
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use input::Input;
use passing::Producer;
use plan::Plan;
use report::Report;
use sandbox::Confinement;
use std::io;
use table::Live;

/// Runs the producer, which starts all other processes.
pub(crate) fn run(args: &DemoArgs) -> Result<Answer> {
    let input = Input::open(args.file.as_deref())?;
    let frame = usize::try_from(args.frame).context("the frame size")?;
    let expected = input.hash()?.to_hex().to_string();
    let output = Scratch::new()?;
    let mut report = Report::new(&input, frame, expected, args.json);
    report.begin()?;
    let plan = Plan {
        input: &input,
        frame,
        time: args.stage,
        output: &output.path,
    };
    for over in [Transport::Pipe, Transport::Stream] {
        let mut live = Live::new(over.name(), args.json);
        let reached = baseline::run(over, &plan, |workers| live.tick(workers));
        live.clear();
        report.add(reached?, &live, &output.path)?;
    }
    by_reference(&plan, &mut report, args.json)?;
    report.end(args)
}

/// Runs the main stage, in its own manager and pool, and reports what is left of it at its end.
fn by_reference(plan: &Plan<'_>, report: &mut Report, quiet: bool) -> Result<()> {
    let producer = Producer::new(plan)?;
    let mut live = Live::new(Transport::Tranship.name(), quiet);
    let reached = producer.steady(|workers| live.tick(workers));
    live.clear();
    report.add(reached?, &live, plan.output)?;

    let mut live = Live::new("tranship, with trouble", quiet);
    let trouble = passing::trouble(&producer, |workers| live.tick(workers));
    live.clear();
    report.add_trouble(&trouble?, &live, plan.output)?;

    report.add_counted(&passing::counted(&producer));
    report.add_frames(producer.all_frames()?);
    report.add_left(&producer.close()?);
    Ok(())
}

/// Confines a consumer. The intruder stays free: only the memory itself shall refuse it.
fn confine(args: &ConsumerArgs) -> Result<Confinement> {
    if args.role == ConsumerRole::Intruder {
        return Ok(Confinement::default());
    }
    if args.counted {
        passing::may_be_counted();
    }
    sandbox::lock_down(args.counted)
}

/// Runs one of the consumers: opens the things that it needs, locks itself down, works until its frames end.
pub(crate) fn run_consumer(args: &ConsumerArgs) -> Result<Answer> {
    let mut work = consumers::make(args.role, args.total, args.output.as_deref())?;
    let mut reporter = progress::Reporter::new(output::stdout(), args.counted);
    match args.over {
        Transport::Pipe | Transport::Stream => {
            reporter.ready(sandbox::lock_down(false)?)?;
            baseline::consume(io::stdin().lock(), work.as_mut(), |len, copied| {
                reporter.frame(len, copied)
            })?;
        }
        Transport::Tranship => {
            let joined = passing::join(args)?;
            reporter.ready(confine(args)?)?;
            passing::consume(joined, work.as_mut(), |len, copied| {
                reporter.frame(len, copied)
            })?;
        }
    }
    reporter.done(work.outcome()?)?;
    Ok(Answer::Yes)
}

/// The writer's output, removed at the end.
struct Scratch {
    path: std::path::PathBuf,
}

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("tranship-demo-{}.out", std::process::id()));
        // The file must be new: every user may write to the folder.
        std::fs::File::create_new(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
