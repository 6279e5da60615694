//! `tranship topic`, `tranship service` and `tranship queue`.

use super::values::{ConnectArgs, parse_name, parse_size, parse_time};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Subcommand, Debug)]
pub(crate) enum TopicAction {
    /// Lists topics: how many publishers and subscribers each has.
    Ls(NamesArgs),
    /// Shows a topic: its publishers, its subscribers, and the buffers that each keeps, and for how long.
    Info {
        #[command(flatten)]
        topic: TopicName,
        /// One JSON object.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Measures how many messages of a topic come a second, and the time between them.
    Hz(RateArgs),
    /// Measures how many bytes of a topic come a second.
    Bw(RateArgs),
    /// Prints the messages of a topic as they come.
    Echo(EchoArgs),
    /// Publishes messages to a topic.
    ///
    /// Only one publisher has a topic's name at a time, unless all share it.
    Pub(PubArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct TopicName {
    /// The topic's name.
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct NamesArgs {
    /// One JSON object.
    #[arg(long, conflicts_with = "names")]
    pub json: bool,
    /// Only the names, one a line.
    #[arg(long)]
    pub names: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// How a command subscribes.
#[derive(ClapArgs, Debug)]
pub(crate) struct SubscribeArgs {
    #[command(flatten)]
    pub topic: TopicName,
    /// Give up when no publisher has taken this subscriber in for so long; default: wait.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub wait: Option<Duration>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct RateArgs {
    #[command(flatten)]
    pub subscribe: SubscribeArgs,
    /// Length of a period.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_period)]
    pub every: Duration,
    /// End after so many periods; default: when the publisher ends the topic.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

fn parse_period(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        period if period >= Duration::from_millis(10) => Ok(period),
        _ => Err("at least 10ms".to_owned()),
    }
}

#[derive(ClapArgs, Debug)]
pub(crate) struct EchoArgs {
    #[command(flatten)]
    pub subscribe: SubscribeArgs,
    /// End after so many messages; default: when the publisher ends the topic.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Most bytes of a message that are shown.
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = parse_size)]
    pub bytes: u64,
    /// Writes the bytes of the messages and nothing else.
    #[arg(long, conflicts_with_all = ["json", "bytes"])]
    pub raw: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct PubArgs {
    #[command(flatten)]
    pub topic: TopicName,
    /// The message's text; default: each line of standard input is a message.
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// File whose bytes are the message.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// The 64-bit word that goes with each message.
    #[arg(long, default_value_t = 0)]
    pub word: u64,
    /// Publishes the message so many times.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Time between two messages of --count.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub every: Duration,
    /// Waits for so many subscribers before the first message.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub subscribers: usize,
    /// Give up when they have not come for so long; default: wait.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub wait: Option<Duration>,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ServiceAction {
    /// Lists services: the process of each, and how many clients it has.
    Ls(NamesArgs),
    /// Calls a service, and writes its answer to standard output.
    Call(CallArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct CallArgs {
    /// The service's name.
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// The request's text; default: standard input.
    #[arg(conflicts_with = "file")]
    pub text: Option<String>,
    /// File whose bytes are the request.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Give up when there is no answer in this time, connecting included.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub timeout: Duration,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum QueueAction {
    /// Lists queues: how many producers and consumers each has.
    Ls(NamesArgs),
    /// Shows items that wait, and gives them back: they come again, behind the others, and as redelivered.
    Peek(PeekArgs),
    /// Takes all items that wait, and throws them away; prints how many these were.
    Purge(PurgeArgs),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct PeekArgs {
    /// The queue's name.
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// Most items to show.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub count: u64,
    /// Most bytes of an item that are shown.
    #[arg(long, value_name = "SIZE", default_value = "32", value_parser = parse_size)]
    pub bytes: u64,
    /// Time to wait for the next item.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    pub wait: Duration,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct PurgeArgs {
    /// The queue's name.
    #[arg(value_name = "NAME", value_parser = parse_name)]
    pub name: String,
    /// Time to wait for the next item.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    pub wait: Duration,
    #[command(flatten)]
    pub connect: ConnectArgs,
}
