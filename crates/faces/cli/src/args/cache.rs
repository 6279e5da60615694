//! `tranship cache`.

use super::ConnectArgs;
use super::values::{parse_place, parse_size, parse_time};
use clap::builder::RangedU64ValueParser;
use clap::{Args as ClapArgs, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(ClapArgs, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "The protocol is memcached's, the options are not: -m 64MiB, -l 127.0.0.1:11211."
)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub action: Option<CacheAction>,
    #[command(flatten)]
    pub serve: ServeArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum CacheAction {
    /// Prints values of a server of this machine, read by reference: out of memory that it shows to this process,
    /// read-only.
    ///
    /// The exit code is 1 if no value is stored under one of the keys, and if no server came in the time given.
    Get(GetArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct GetArgs {
    /// Name of a channel of the server that was started with this --shm NAME: the only way so far.
    #[arg(long, value_name = "NAME")]
    pub shm: String,
    /// Longest time to wait for a server, and for its answers.
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub wait: Duration,
    /// Prints what is known of each value, as JSON, instead of the value.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// The keys.
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ServeArgs {
    /// Address where TCP is served; a port alone: of the loopback. There is no password: any program that reaches it
    /// may read and write.
    #[arg(
        short,
        long,
        value_name = "[HOST:]PORT",
        default_value = "127.0.0.1:11211",
        value_parser = parse_place
    )]
    pub listen: SocketAddr,
    /// Serves UDP, too. Replies go to the address that a datagram claims to come from: not for open networks.
    #[arg(short = 'U', long, value_name = "[HOST:]PORT", value_parser = parse_place)]
    pub udp: Option<SocketAddr>,
    /// Memory for keys, values and their records. A number alone is bytes, not MiB as for memcached. If a manager runs,
    /// it admits the memory of values (`tranship stat`: heap `zcopy`) and may want it back: then the server evicts.
    #[arg(short, long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub memory: u64,
    /// Worker threads; default: one for each processor, four at most.
    #[arg(short, long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub threads: Option<usize>,
    /// Most connections at a time.
    #[arg(short, long, value_name = "N", default_value = "1024", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub connections: usize,
    /// The longest value.
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub max_value: u64,
    /// Time that replies wait for a client that does not take them, before its connection is closed.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub patience: Duration,
    /// Longest time that a client may take, however steadily, for a command with its value, from its first byte on, or
    /// for the replies that wait for it. Then its connection is closed. A client that sends nothing and waits for
    /// nothing may stay. 0s: for ever.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_time)]
    pub deadline: Duration,
    /// A Unix socket, for one's own user alone. If a server listens there, this one goes on with its values, listening
    /// sockets and connections, and that one ends; else this one begins empty. It can be taken over there itself: the
    /// same command is for the first start and for each upgrade.
    #[arg(long, value_name = "SOCKET")]
    pub take_over: Option<PathBuf>,
    /// Shows values by reference to processes that connect to this name, under the manager's rules. All of these
    /// processes can read each value that one was shown.
    #[arg(long, value_name = "NAME")]
    pub shm: Option<String>,
    /// Memory for values that are shown by reference, beside the other.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size, requires = "shm")]
    pub shm_memory: u64,
    /// Most processes that may read by reference at a time; each may hold its part of that memory.
    #[arg(long, value_name = "COUNT", default_value_t = 16, requires = "shm")]
    pub shm_readers: u16,
    /// Most values that a reader may hold at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 256, requires = "shm")]
    pub shm_held: u16,
    /// Longest time that a reader may hold a value before it gets no other.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time, requires = "shm")]
    pub shm_hold: Duration,
    #[command(flatten)]
    pub connect: ConnectArgs,
}
