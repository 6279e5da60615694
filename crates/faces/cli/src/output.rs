//! Standard output and the log: colours, sizes, JSON, plain tables.

mod stdout;
mod streams;
mod table;

pub(crate) use stdout::{is_unread, stdout};
pub(crate) use streams::{check_stdin, check_stdout};
pub(crate) use table::Table;

use anyhow::Result;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Sends log lines to standard error.
pub(crate) fn start_log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // Levels and modules; patterns would take a megabyte of regular expressions.
    let said = std::env::var("RUST_LOG")
        .ok()
        .filter(|said| !said.is_empty());
    let filter = said.and_then(|said| said.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(level));
    let log = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        // Colours would need a feature that is not built in; without it this ends the process.
        .with_ansi(false)
        .without_time();
    let log = tracing_subscriber::registry().with(log.with_filter(filter));
    // A second start (in a test) keeps the first.
    let _ = log.try_init();
}

/// Writes one JSON value and a line break.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    // The error as it was, not as a syntax error at a line.
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a line for people, and for scripts that wait for it.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Returns whether standard output wants colours: a terminal, and nobody said NO_COLOR.
pub(crate) fn colour_on_stdout() -> bool {
    wants_colour(io::stdout().is_terminal())
}

fn wants_colour(terminal: bool) -> bool {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    terminal && !no_colour && !dumb
}

/// Colours that say how good something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
    Bold,
}

/// Returns `text` in a colour, or as it is.
pub(crate) fn paint(text: &str, colour: Colour, on: bool) -> String {
    let code = match colour {
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Red => 31,
        Colour::Bold => 1,
    };
    if on {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Returns a size with a binary unit, three or four digits: `8.0 MiB`, `512 B`.
#[allow(clippy::cast_precision_loss)] // for people
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(8 << 20), "8.0 MiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn colours_only_when_on() {
        assert_eq!(paint("x", Colour::Red, false), "x");
        assert_eq!(paint("x", Colour::Red, true), "\x1b[31mx\x1b[0m");
    }
}
