//! `tranship policy record`.

use super::super::connect;
use crate::args::policy::RecordArgs;
use crate::output;
use anyhow::{Context, Result};
use std::io::Write;
use std::time::{Duration, Instant};

/// The version of the format.
const VERSION: u32 = 1;

pub(super) fn run(args: &RecordArgs) -> Result<()> {
    let domain = connect::look(&args.connect)?;
    let mut out: Box<dyn Write> = match args.file.to_str() {
        Some("-") => Box::new(output::stdout()),
        _ => {
            let shown = args.file.display();
            let file = std::fs::File::create(&args.file);
            Box::new(file.with_context(|| format!("creating {shown}"))?)
        }
    };
    writeln!(out, "{{\"tranship_trace\":{VERSION}}}")?;
    let begun = Instant::now();
    let every = args.every.max(Duration::from_millis(1));
    for period in 0u32.. {
        // The clock of this process: a trace says what was seen when.
        let at_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let snapshot = domain.admin().snapshot(at_ns)?;
        serde_json::to_writer(&mut out, &snapshot).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
        out.flush()?; // a program that interrupts us has whole lines
        let next = every.saturating_mul(period + 1);
        if args.duration.is_some_and(|most| next > most) {
            break;
        }
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
    }
    Ok(())
}
