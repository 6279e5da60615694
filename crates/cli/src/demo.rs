//! `tranship demo`: the main job on real input, next to the same work over pipes and sockets.

mod baseline;
mod consumers;
mod input;
mod plot;
mod progress;
mod report;
mod sandbox;
mod table;
mod worker;

use crate::args::{ConsumerArgs, DemoArgs, Transport};
use crate::exit::Answer;
use anyhow::{Context, Result, bail};
use baseline::Plan;
use input::Input;
use report::Report;
use std::io;
use table::Live;

/// The producer, which starts everybody else.
pub(crate) fn run(args: &DemoArgs) -> Result<Answer> {
    let input = Input::open(args.file.as_deref())?;
    let frame = usize::try_from(args.frame).context("the frame size")?;
    let expected = input.hash()?.to_hex().to_string();
    let output = Scratch::new()?;
    let mut report = Report::new(&input, frame, expected, args.json);
    report.begin()?;
    for over in [Transport::Pipe, Transport::Stream] {
        let plan = Plan {
            input: &input,
            frame,
            time: args.stage,
            output: &output.path,
        };
        let mut live = Live::new(over.name(), args.json);
        let reached = baseline::run(over, &plan, |workers| live.tick(workers));
        live.clear();
        report.add(reached?, &live, &output.path)?;
    }
    report.end(args)
}

/// One of the consumers: opens what it needs, locks itself down, works until its frames end.
pub(crate) fn run_consumer(args: &ConsumerArgs) -> Result<Answer> {
    let mut work = consumers::make(args.role, args.total, args.output.as_deref())?;
    let mut reporter = progress::Reporter::new(io::stdout().lock());
    match args.over {
        Transport::Pipe | Transport::Stream => {
            reporter.ready(sandbox::lock_down()?)?;
            baseline::consume(io::stdin().lock(), work.as_mut(), |len| reporter.frame(len))?;
        }
        Transport::Tranship => bail!("this build has no client library yet"),
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
        // Must be new: the folder is everybody's.
        std::fs::File::create_new(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
