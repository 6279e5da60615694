//! `tranship block`.

use super::values::{parse_size, parse_size_or_none, parse_time};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The syntax of every address.
const ADDRESSES: &str = "\
Addresses of a service (both ends say the same one):
  shm:NAME, or NAME alone    programs of this machine that share a manager; nothing is copied
  copy:NAME                  the same, each byte copied through a socket
  tcp:HOST:PORT/NAME         between machines, with TLS: `tranship cert` makes credentials, TRANSHIP_TLS names their directory
  tcp+plain:HOST:PORT/NAME   without TLS; off this machine only with TRANSHIP_PLAIN_TCP=trusted-network
  local:NAME                 threads of one process: for a server that has NBD clients alone
HOST is a name, an IPv4 address, or an IPv6 address in brackets: tcp:[::1]:7700/disk. 0.0.0.0 and [::] listen everywhere.

Addresses of NBD:
  unix:PATH                  a socket that nobody listens on any more is replaced; anything else stays, and is an error
  tcp:HOST:PORT              without TLS; port 0: one that is free, which is said on standard output

Who is let in and who goes is said on standard error with -v.";

#[derive(ClapArgs, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct BlockArgs {
    #[command(subcommand)]
    pub action: BlockAction,
}

#[derive(Subcommand, Debug)]
pub(crate) enum BlockAction {
    /// Exports a file or a block device.
    Serve(ServeArgs),
    /// Serves this machine's programs with the blocks of a server elsewhere.
    Proxy(ProxyArgs),
    /// Measures a service: operations a second, bytes a second, latencies. Writing destroys the present data.
    Bench(BenchArgs),
}

#[derive(ClapArgs, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct ServeArgs {
    /// Address where clients connect: see below.
    pub address: String,
    /// The file or block device.
    pub file: PathBuf,
    /// Makes the file, or makes it longer.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Refuses writes; several servers may then serve the file.
    #[arg(long)]
    pub read_only: bool,
    /// Whether the page cache is used.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub access: AccessArg,
    /// Uses threads instead of io_uring, also where that is allowed.
    #[arg(long)]
    pub threads: bool,
    #[command(flatten)]
    pub channels: ChannelArgs,
    #[command(flatten)]
    pub nbd: NbdArgs,
}

#[derive(ClapArgs, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct ProxyArgs {
    /// The server's address.
    #[arg(long, value_name = "ADDRESS")]
    pub server: String,
    /// Address where this machine's programs connect: shm:NAME.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The most that the block cache holds; 0: none, as is best where several proxies write. Less where the manager
    /// admits less, or wants it back (`tranship stat`: heap `block cache`).
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size_or_none)]
    pub cache: u64,
    /// Time without the server after which requests fail until it is back; default: they wait.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub give_up: Option<std::time::Duration>,
    #[command(flatten)]
    pub channels: ChannelArgs,
    #[command(flatten)]
    pub nbd: NbdArgs,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct NbdArgs {
    /// Serves NBD clients, too: unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<tranship_block::nbd::Address>,
    /// The name of the NBD export; the empty name is always one.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub export: String,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ChannelArgs {
    /// Trust level of the channels: what the other ends are kept from. Both ends must give the same.
    #[arg(long, value_name = "LEVEL", default_value = "producer")]
    pub trust: TrustArg,
}

#[derive(ClapArgs, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct BenchArgs {
    /// The service: a server or a proxy.
    pub address: String,
    /// Bytes of a request, at most 256KiB.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_request)]
    pub request: u32,
    /// Number of requests under way at a time.
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub depth: u32,
    /// Duration of each part.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    pub time: std::time::Duration,
    /// Writes, too. The present data is destroyed.
    #[arg(long)]
    pub write: bool,
    /// One object with all results instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub channels: ChannelArgs,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessArg {
    /// Without the page cache where the file system can do so.
    Auto,
    /// Without the page cache, or not at all.
    Direct,
    /// With the page cache.
    Buffered,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrustArg {
    /// Both ends can write what either sends; the protocol says which end does.
    Full,
    /// As `full`, but a write by mistake faults.
    Half,
    /// Only the end that sends can write it.
    Producer,
    /// No other process can write it once it has arrived: the other end takes a copy.
    None,
}

fn parse_request(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        size @ 1..=0x4_0000 => u32::try_from(size).map_err(|error| error.to_string()),
        _ => Err("at most 256KiB".to_owned()),
    }
}
