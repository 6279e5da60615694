//! The command line: one definition for parsing, help, completions and man pages.

#[cfg(feature = "block")]
pub(crate) mod block;
#[cfg(feature = "zcopy")]
pub(crate) mod cache;
#[cfg(feature = "demo")]
pub(crate) mod demo;
mod environment;
pub(crate) mod metrics;
pub(crate) mod policy;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod topic;
mod values;
#[cfg(feature = "zcopy")]
pub(crate) mod zcopy;

use clap::{Args as ClapArgs, Parser, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
pub(crate) use values::{ConnectArgs, name_of};
use values::{FORMS, parse_address, parse_size, parse_size_or_none, parse_time};

/// Moves large data between isolated processes without copying it.
#[derive(Parser, Debug)]
#[command(name = "tranship", version, propagate_version = true, max_term_width = 100, after_help = after_help())]
#[command(after_long_help = format!("{}\n\n{}", after_help(), environment::VARIABLES))]
pub(crate) struct Args {
    /// Say more on standard error; twice: even more. RUST_LOG overrides it.
    #[arg(short, long, global = true, display_order = 900, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

fn after_help() -> String {
    let [size, time] = FORMS;
    format!("SIZE is {size}. TIME is {time}.\n{EXIT_CODES}")
}

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 the answer is no, or nobody came in the time given, 2 an error, 3 no manager is there,
4 a transfer was cut short; `run`: the code of its program.
A reader of standard output that goes away (a broken pipe) is no error. NO_COLOR is respected.";

#[cfg(feature = "net")]
const ADDRESSES: &str = "\
Addresses (`send` listens there, `recv` connects):
  shm:NAME, or NAME alone    programs of this machine that share a manager; nothing is copied
  copy:NAME                  the same, each byte copied through a socket
  tcp:HOST:PORT/NAME         between machines, with TLS: `tranship cert` makes credentials, TRANSHIP_TLS names their directory
  tcp+plain:HOST:PORT/NAME   without TLS; off this machine only with TRANSHIP_PLAIN_TCP=trusted-network
HOST is a name, an IPv4 address, or an IPv6 address in brackets. 0.0.0.0 and [::] listen everywhere.";
#[cfg(not(feature = "net"))]
const ADDRESSES: &str = "An address is shm:NAME, which a name alone is, too.";

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Runs the manager, or looks at its configuration.
    Manager(ManagerArgs),
    #[cfg(feature = "demo")]
    /// Shows the main job on real input: one producer, four isolated consumers, no copies.
    Demo(demo::DemoArgs),
    /// Sends standard input, or a file, to the receiver under NAME; done when all of it was taken.
    Send(SendArgs),
    /// Receives under NAME and writes to standard output, or to a file; done when the sender has closed in order.
    Recv(RecvArgs),
    /// Runs a program of isolated components (tranship run FILE.toml), or one program whose whole heap is charged to it
    /// and limited (tranship run --quota 256MiB -- PROGRAM ARGS).
    Run(RunArgs),
    #[cfg(feature = "block")]
    /// Serves a disk's blocks over channels, and to NBD clients.
    Block(block::BlockArgs),
    #[cfg(feature = "zcopy")]
    /// Serves memcached's protocol; values go out without being copied.
    Cache(cache::CacheArgs),
    #[cfg(feature = "zcopy")]
    /// Shows what programs send without copying, and why the rest is copied.
    #[command(subcommand)]
    Zcopy(zcopy::ZcopyAction),
    /// Shows topics, their rates and messages, and publishes.
    #[command(subcommand)]
    Topic(topic::TopicAction),
    /// Shows services, and calls one.
    #[command(subcommand)]
    Service(topic::ServiceAction),
    /// Shows queues, and what waits in one.
    #[command(subcommand)]
    Queue(topic::QueueAction),
    /// Lists names, and the channels made under them.
    Ls(ViewArgs),
    /// Shows domains, pools, channels, and the holders of buffers.
    Stat(ViewArgs),
    #[cfg(feature = "top")]
    /// Shows what happens now: rates, who waits on whom, who holds what for how long. Works while the manager hangs.
    Top(top::TopArgs),
    /// Prints the figures of `stat` as OpenMetrics text: once, or served over HTTP, also as a page with live plots.
    Metrics(metrics::MetricsArgs),
    /// Shows or sets how much memory pools and heaps of running programs may have.
    #[command(subcommand)]
    Quota(QuotaAction),
    /// Shows the history of a buffer: allocated, sent, received, released, with the domain and the time.
    ///
    /// It is recorded while a pool is traced: `--on` until `--off`, or as long as `--follow` runs. Each process keeps
    /// its latest 4096 events, which can be read after its end, too. While nothing is traced this costs nothing; while
    /// it is on, each step of each buffer of the pool goes the long way and writes 64 bytes.
    Trace(TraceArgs),
    /// Lists the policies that divide memory among pools, runs one, and records what a manager tells its own.
    #[command(subcommand)]
    Policy(policy::PolicyAction),
    #[cfg(feature = "net")]
    /// Certificates for channels between machines: an authority of one's own, and what it signs.
    #[command(subcommand)]
    Cert(CertAction),
    /// Checks this machine: what it offers, what is missing, what that costs and what to do about it.
    Doctor(ViewArgs),
    /// Prints a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the man pages into a folder.
    Man {
        /// The folder; it is made if it is not there.
        dir: PathBuf,
    },
    /// A launcher of a component; started by `run`, not by people.
    #[command(hide = true)]
    Component {
        /// The component's plan, as JSON.
        plan: String,
    },
    #[cfg(feature = "demo")]
    /// A consumer of the demonstration; started by `demo`, not by people.
    #[command(name = "demo-consumer", hide = true)]
    DemoConsumer(demo::ConsumerArgs),
}

#[derive(ClapArgs, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ManagerArgs {
    #[command(subcommand)]
    pub action: Option<ManagerAction>,
    #[command(flatten)]
    pub daemon: DaemonArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ManagerAction {
    /// Checks a configuration file; an unknown key is an error with its line.
    CheckConfig {
        /// The TOML file.
        file: PathBuf,
    },
    /// Prints the default configuration, with comments.
    DefaultConfig,
}

#[derive(ClapArgs, Debug, Default)]
pub(crate) struct DaemonArgs {
    /// The configuration, TOML; default: /etc/tranship/manager.toml if it is there.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Path of the socket to listen at; default: /run/tranship for root, else the user's run-time directory.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Leave when the last client has been gone for so long (e.g. 60s, 5m); default: never.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub idle_exit: Option<std::time::Duration>,
    /// Go into the background; returns when the manager listens.
    #[arg(long)]
    pub daemonize: bool,
    /// The background's half of --daemonize.
    #[arg(long, hide = true)]
    pub detached: bool,
    #[command(flatten)]
    pub observe: metrics::ObserveArgs,
}

#[derive(ClapArgs, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct SendArgs {
    /// Destination: a name (1 to 64 bytes, visible characters and no colon), or an address, see below.
    #[arg(value_parser = parse_address)]
    pub name: String,
    /// File to send; default: standard input.
    pub file: Option<PathBuf>,
    /// Bytes a message of a file; a message of a pipe or a terminal has the bytes of one read, at most so many.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    pub frame: u64,
    /// The largest size of the pool; a frame at least.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub pool: u64,
    /// Give up when no receiver has come for so long; default: wait.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub wait: Option<std::time::Duration>,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(ClapArgs, Debug)]
#[command(after_help = ADDRESSES)]
pub(crate) struct RecvArgs {
    /// Name to receive under (1 to 64 bytes, visible characters and no colon), or an address, see below.
    #[arg(value_parser = parse_address)]
    pub name: String,
    /// File to write; default: standard output.
    pub file: Option<PathBuf>,
    /// End after so many messages; default: when the sender closes.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Give up when no sender has come for so long; default: wait.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub wait: Option<std::time::Duration>,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(ClapArgs, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "command"]))]
pub(crate) struct RunArgs {
    /// A program of isolated components, TOML: starts, wires, supervises and stops it.
    pub file: Option<PathBuf>,
    /// With FILE: finds every fault of the file, tries the sandboxes, draws the components, and starts nothing.
    #[arg(long, requires = "file")]
    pub check: bool,
    /// With FILE: writes the picture of the components to this file, too, as SVG.
    #[arg(long, value_name = "SVG", requires = "file")]
    pub draw: Option<PathBuf>,
    /// With FILE: prints the processes, their environment and their rights, and starts nothing.
    #[arg(long, requires = "file", conflicts_with = "check")]
    pub dry_run: bool,
    /// With FILE: shows components and rates on standard error while it runs.
    #[arg(long, requires = "file")]
    pub view: bool,
    /// The supervisor's half of a run.
    #[arg(long, hide = true, requires = "file", value_name = "DIR")]
    pub supervise: Option<PathBuf>,
    /// The most that the heap of the program may use, and that of each process it starts; default: the manager's quota.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "command")]
    pub quota: Option<u64>,
    /// The allocator; default: $TRANSHIP_MALLOC, libtranship_malloc.so beside this program or in ../lib, or the one
    /// that releases of this program have in them.
    #[arg(long, value_name = "FILE", requires = "command")]
    pub library: Option<PathBuf>,
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// The program and its arguments. It must be linked dynamically, and not run as another user (set-uid).
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<std::ffi::OsString>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum QuotaAction {
    /// Shows each pool and heap: its memory, its quota now, and its maximum.
    Show {
        /// Only the pool or heap with this number or name.
        target: Option<String>,
        #[command(flatten)]
        view: ViewArgs,
    },
    /// Sets the quota of a pool or heap, until it ends or the manager is restarted.
    ///
    /// A pool or heap that has more is asked to give the rest back, and gets nothing new before. Only root and the user
    /// who runs the manager may do this. The quota of future pools is default_quota in the manager's configuration.
    Set {
        /// The pool or heap: its number, or its name if no other is called so.
        target: String,
        /// The quota, at most the maximum: 64MiB, 4096; 0: nothing.
        #[arg(value_parser = parse_size_or_none)]
        size: u64,
        #[command(flatten)]
        view: ViewArgs,
    },
}

#[derive(ClapArgs, Debug)]
pub(crate) struct TraceArgs {
    /// A buffer (POOL:SLOT:GENERATION, as it is shown), a pool or a domain: its number, or its name if no other is
    /// called so. Default: all.
    #[arg(required_if_eq_any([("on", "true"), ("off", "true"), ("follow", "true")]))]
    pub target: Option<String>,
    /// Records the events of this pool's buffers from now on.
    #[arg(long, conflicts_with_all = ["off", "follow"])]
    pub on: bool,
    /// Stops recording. Recorded events stay.
    #[arg(long, conflicts_with = "follow")]
    pub off: bool,
    /// Shows what was sent and received with this word, in the order of time: the path of a request.
    #[arg(long, conflicts_with_all = ["on", "off", "follow"])]
    pub word: Option<u32>,
    /// Traces this pool while this runs, and shows events as they come.
    #[arg(long)]
    pub follow: bool,
    /// With --follow: duration; default: until it is interrupted.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, requires = "follow")]
    pub duration: Option<std::time::Duration>,
    #[command(flatten)]
    pub view: ViewArgs,
}

#[cfg(feature = "net")]
#[derive(Subcommand, Debug)]
pub(crate) enum CertAction {
    /// Makes an authority: ca.pem, which every machine gets, and ca-key.pem, which stays where it is.
    Init {
        /// The authority's directory; it is made if it is not there (mode 700). Nothing is overwritten.
        dir: PathBuf,
        /// The name of the authority.
        #[arg(long, default_value = "tranship authority")]
        name: String,
        /// Number of days that it is valid.
        #[arg(long, default_value = "3650", value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
    },
    /// Makes credentials for a machine or a program: ca.pem, cert.pem and key.pem, mode 600, to be carried there
    /// safely.
    ///
    /// A holder of the credentials is let in everywhere, and can be connected to as NAME and under each --address:
    /// tcp:NAME:7700/video. Programs look for them in the directory $TRANSHIP_TLS, else ~/.config/tranship/tls, else
    /// /etc/tranship/tls.
    Issue {
        /// The name to which others connect: a DNS name or an IP address.
        name: String,
        /// A further name or address that others connect to; may be given several times.
        #[arg(long, value_name = "HOST")]
        address: Vec<String>,
        /// The authority's directory, as `cert init` made it.
        #[arg(long, value_name = "DIR")]
        ca: PathBuf,
        /// Directory for the credentials; default: a directory NAME here. Nothing is overwritten.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Number of days that they are valid.
        #[arg(long, default_value = "365", value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
    },
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ViewArgs {
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("8MiB"), Ok(8 << 20));
        assert_eq!(parse_size("3g"), Ok(3 << 30));
        assert_eq!(parse_size("17"), Ok(17));
        for wrong in ["", "x", "0", "1.5MiB", "5 parsecs", "99999999999GiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parse_size("1.5MiB").expect_err("a fraction"),
            "a size is a whole number and KiB, MiB, GiB, TiB (or K, M, G, T); without: bytes"
        );
    }

    #[test]
    fn names_are_short_and_printable() {
        for right in ["a b/c", "shm:a:b"] {
            assert_eq!(parse_address(right).as_deref(), Ok(right));
        }
        for wrong in ["", "a\nb", &"a".repeat(65), "shm:", "local:x", "cam:1"] {
            assert!(parse_address(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(
            parse_time("250ms"),
            Ok(std::time::Duration::from_millis(250))
        );
        assert_eq!(parse_time("5m"), Ok(std::time::Duration::from_secs(300)));
        assert_eq!(parse_time("7"), Ok(std::time::Duration::from_secs(7)));
        for wrong in ["", "abc", "1h5m", "1 fortnight"] {
            assert_eq!(
                parse_time(wrong).expect_err(wrong),
                "a time is a whole number and ms, s, m or h; without: seconds"
            );
        }
    }

    #[test]
    fn the_manager_takes_options_or_a_subcommand() {
        assert!(Args::try_parse_from(["tranship", "manager", "--idle-exit", "60s"]).is_ok());
        assert!(Args::try_parse_from(["tranship", "manager", "check-config", "a.toml"]).is_ok());
        assert!(
            Args::try_parse_from(["tranship", "manager", "--socket", "a", "default-config"])
                .is_err()
        );
    }
}
