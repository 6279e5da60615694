//! `tranship demo`, and the consumers that it starts.

use super::values::{ConnectArgs, parse_size, parse_time};
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

#[derive(ClapArgs, Debug)]
pub(crate) struct DemoArgs {
    /// The file to work on; default: a few hundred MiB of real data found on this machine.
    pub file: Option<PathBuf>,
    /// Frame size, at most 64MiB: there are two dozen frames.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_demo_frame)]
    pub frame: u64,
    /// Duration of each stage.
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_time)]
    pub stage: std::time::Duration,
    /// File for the picture of throughput over time.
    #[arg(long, value_name = "FILE", default_value = "tranship-demo.svg")]
    pub svg: PathBuf,
    /// Writes no picture, only the plot in the terminal.
    #[arg(long)]
    pub no_svg: bool,
    /// One object with all results instead of tables.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ConsumerArgs {
    /// Work on each frame.
    #[arg(long)]
    pub role: ConsumerRole,
    /// Way by which frames arrive.
    #[arg(long)]
    pub over: Transport,
    /// The writer's output; opened before the lock-down.
    #[arg(long)]
    pub output: Option<PathBuf>,
    /// Length of one pass over the input, bytes.
    #[arg(long)]
    pub total: u64,
    /// The name to receive under.
    #[arg(long)]
    pub name: Option<String>,
    /// The consumer's system calls are counted: it looks for frames without sleeping, reports only at its end, and may
    /// be traced.
    #[arg(long)]
    pub counted: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// The demonstration's consumers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ConsumerRole {
    /// BLAKE3 hash.
    Hash,
    /// LZ4 compressor.
    Lz4,
    /// Byte statistics: histogram and entropy.
    Stats,
    /// Writes all bytes to an output.
    Writer,
    /// Tries to write into the frames.
    Intruder,
}

impl ConsumerRole {
    /// Consumers that work, in the order in which they are shown.
    pub(crate) const ALL: [Self; 4] = [Self::Hash, Self::Lz4, Self::Stats, Self::Writer];

    /// Returns the name as it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Lz4 => "lz4",
            Self::Stats => "stats",
            Self::Writer => "writer",
            Self::Intruder => "intruder",
        }
    }
}

/// Way by which the demonstration's frames travel.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Transport {
    /// By reference.
    Tranship,
    /// Over pipes.
    Pipe,
    /// Over Unix stream sockets.
    Stream,
}

impl Transport {
    /// Returns the name as it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tranship => "tranship",
            Self::Pipe => "pipe",
            Self::Stream => "stream",
        }
    }
}

/// Parses a frame size; a very large one would ask for more memory than a demonstration should.
fn parse_demo_frame(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size > 64 << 20 => Err("at most 64MiB".to_owned()),
        size => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_not_too_large() {
        assert!(parse_demo_frame("64MiB").is_ok() && parse_demo_frame("65MiB").is_err());
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for role in ConsumerRole::ALL {
            assert_eq!(ConsumerRole::from_str(role.name(), false), Ok(role));
        }
        for transport in [Transport::Tranship, Transport::Pipe, Transport::Stream] {
            assert_eq!(Transport::from_str(transport.name(), false), Ok(transport));
        }
    }
}
