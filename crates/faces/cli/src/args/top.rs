//! `tranship top`.

use super::values::{ConnectArgs, parse_time};
use clap::{Args as ClapArgs, ValueEnum};
use std::time::Duration;

#[derive(ClapArgs, Debug)]
pub(crate) struct TopArgs {
    /// Text instead of a full screen, every period, until it is interrupted.
    #[arg(long)]
    pub batch: bool,
    /// Prints the figures as text once.
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
    /// Number of times to print; then it ends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Length of a period: 100ms to 1h.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_period)]
    pub every: Duration,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub json: bool,
    /// Tab to begin with; in text, only that.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub show: Option<Tab>,
    /// Shows only lines in which this text occurs, in whatever case.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// The column to sort by, by its heading; with a dash before it the other way round. Needs --show.
    #[arg(
        long,
        value_name = "COLUMN",
        allow_hyphen_values = true,
        requires = "show"
    )]
    pub sort: Option<String>,
    /// Most lines of each table in text.
    #[arg(long, value_name = "N")]
    pub rows: Option<usize>,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl TopArgs {
    /// Returns whether it is to write lines and not to take the terminal.
    pub(crate) fn is_plain(&self) -> bool {
        self.batch || self.once || self.json || self.count.is_some()
    }
}

/// Tab of the screen.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tab {
    /// Processes.
    Domains,
    /// Memory.
    Pools,
    /// Messages.
    Channels,
    /// Callers that wait, and on whom.
    Blocked,
    /// Domains that hold buffers, and for how long.
    Holders,
}

impl Tab {
    pub(crate) const ALL: [Tab; 5] = [
        Tab::Domains,
        Tab::Pools,
        Tab::Channels,
        Tab::Blocked,
        Tab::Holders,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Tab::Domains => "domains",
            Tab::Pools => "pools",
            Tab::Channels => "channels",
            Tab::Blocked => "blocked",
            Tab::Holders => "holders",
        }
    }
}

fn parse_period(text: &str) -> Result<Duration, String> {
    let period = parse_time(text)?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3600);
    match bounds.contains(&period) {
        true => Ok(period),
        false => Err("100ms to 1h".to_owned()),
    }
}
