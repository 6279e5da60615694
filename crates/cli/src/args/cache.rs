//! `tranship cache`.

use super::values::{parse_size, parse_time};
use clap::Args as ClapArgs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(ClapArgs, Debug)]
pub(crate) struct CacheArgs {
    /// Where TCP is served. There is no password: whoever reaches it may read and write.
    #[arg(
        short,
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:11211"
    )]
    pub listen: SocketAddr,
    /// Serves UDP, too. Replies go to whoever a datagram claims to be from: not for open networks.
    #[arg(short = 'U', long, value_name = "ADDRESS:PORT")]
    pub udp: Option<SocketAddr>,
    /// Memory for keys, values and what is known about them.
    #[arg(short, long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub memory: u64,
    /// Worker threads; default: one for each processor, four at most.
    #[arg(short, long)]
    pub threads: Option<usize>,
    /// Connections at a time.
    #[arg(short, long, default_value_t = 1024)]
    pub connections: usize,
    /// The longest value.
    #[arg(short = 'I', long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub max_value: u64,
    /// How long replies wait for a client that does not take them, before its connection is closed.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub patience: Duration,
    /// A Unix socket, for one's own user alone. If a server listens there, this one goes on with its values, listening sockets and
    /// connections, and that one ends; else this one begins empty. It can be taken over there itself: the same command is for the first
    /// start and for each upgrade.
    #[arg(long, value_name = "SOCKET")]
    pub take_over: Option<PathBuf>,
}
