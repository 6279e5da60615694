//! `tranship-bench`: the product and its peers, measured side by side in one run.
//!
//! `docs/benchmarks/README.md` says how. A new system is a file in `systems/`. NOT here: tests of
//! correctness (though every run checks what arrives), and micro benches of single functions.

mod case;
mod clock;
mod machine;
mod messages;
mod options;
mod party;
mod peer;
mod plan;
mod report;
mod stats;
mod systems;
mod touch;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use machine::Machine;
use options::{Bench, Cli, Common};
use plan::Outcome;
use report::Report;

fn main() -> ExitCode {
    clock::calibrate();
    match bench(Cli::parse().bench) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tranship-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True if every system could be measured.
fn bench(bench: Bench) -> Result<bool> {
    match bench {
        Bench::Roundtrip { common, mode, payload, buffers } => {
            known(&common, &message_systems())?;
            let outcome = messages::roundtrip(&common, &mode, &payload, buffers);
            say("roundtrip", &common, outcome, &["raw", "iceoryx2"], false)
        }
        Bench::Stream { common, mode, payload, buffers } => {
            known(&common, &message_systems())?;
            let outcome = messages::stream(&common, &mode, &payload, buffers);
            say("stream", &common, outcome, &["raw", "iceoryx2"], true)
        }
        _ => anyhow::bail!("not built yet"),
    }
}

fn message_systems() -> Vec<&'static str> {
    systems::all().iter().map(|e| e.name).collect()
}

/// Refuses names in `--only` that nobody has; says what this program was built without.
fn known(common: &Common, names: &[&'static str]) -> Result<()> {
    for (system, feature) in systems::missing() {
        eprintln!("SKIPPED: {system}: build with --features {feature} (make bench-build)");
    }
    let unknown = common.unknown(names);
    anyhow::ensure!(unknown.is_empty(), "no system {}; there are: {}", unknown.join(", "), names.join(", "));
    Ok(())
}

fn say(name: &'static str, common: &Common, outcome: Outcome, refs: &[&str], by_rate: bool) -> Result<bool> {
    let machine = Machine::look(common.cores(), common.runs(), common.sample_ms());
    let report = Report { bench: name, machine, rows: outcome.rows };
    let text = if common.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        report.table(refs, by_rate)
    };
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(outcome.failures == 0)
}
