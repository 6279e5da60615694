//! `tranship metrics`, and the services of `tranship manager` beside its own.

use super::values::ConnectArgs;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;
use std::process::Command;
use tranship_manager::Observe;

#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Without --unix, --tcp and --web the text is printed once, as node_exporter's textfile collector wants it with --format prometheus.
With them it is served until this is interrupted: figures at /metrics, the page at /. A manager serves the same with --metrics and --web."
)]
pub(crate) struct MetricsArgs {
    /// Format of the text that is printed. A client over HTTP names its format in its Accept header.
    #[arg(long, value_name = "TEXT", default_value = "openmetrics")]
    pub format: TextFormat,
    /// Serves figures on a Unix socket at this path (mode 600).
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Serves figures at this address, or port of the loopback.
    #[arg(long, value_name = "ADDR")]
    pub tcp: Option<String>,
    /// Serves the page with live plots at this address, or port of the loopback.
    #[arg(long, value_name = "ADDR")]
    pub web: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Numbers of the descriptors for figures that the manager passes on, listening already.
    #[arg(long, hide = true)]
    pub passed: Vec<i32>,
    /// Descriptor that was passed for the page.
    #[arg(long, hide = true)]
    pub passed_web: Option<i32>,
    /// Locks this process down, and ends when standard input does.
    #[arg(long, hide = true)]
    pub lifeline: bool,
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Addresses that may be served.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct ReachArgs {
    /// Addresses may be such as other machines reach. Any program that reaches them sees the names and figures of all
    /// programs.
    #[arg(long)]
    pub anywhere: bool,
    /// A name by which browsers may ask, besides addresses and localhost; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
}

/// Services of a manager beside its own.
#[derive(ClapArgs, Debug, Default)]
pub(crate) struct ObserveArgs {
    /// Serves figures (OpenMetrics) on a Unix socket beside the manager's own: SOCKET.metrics.
    #[arg(long)]
    pub metrics: bool,
    /// Serves figures at this address, or port of the loopback.
    #[arg(long, value_name = "ADDR")]
    pub metrics_tcp: Option<String>,
    /// Serves a page with live plots at this address, or port of the loopback.
    #[arg(long, value_name = "ADDR")]
    pub web: Option<String>,
    #[command(flatten)]
    pub reach: ReachArgs,
}

impl ObserveArgs {
    /// Returns the settings: those of the command line come before those of the configuration.
    pub(crate) fn over(&self, config: &Observe) -> Observe {
        Observe {
            metrics: self.metrics || config.metrics,
            metrics_tcp: self.metrics_tcp.clone().or(config.metrics_tcp.clone()),
            web: self.web.clone().or(config.web.clone()),
            anywhere: self.reach.anywhere || config.anywhere,
            hosts: [self.reach.host.as_slice(), &config.hosts].concat(),
        }
    }

    /// Passes the settings on to another process.
    pub(crate) fn pass_on(&self, command: &mut Command) {
        if self.metrics {
            command.arg("--metrics");
        }
        for (option, value) in [("--metrics-tcp", &self.metrics_tcp), ("--web", &self.web)] {
            if let Some(value) = value {
                command.args([option, value]);
            }
        }
        self.reach.pass_on(command);
    }
}

impl ReachArgs {
    pub(crate) fn pass_on(&self, command: &mut Command) {
        if self.anywhere {
            command.arg("--anywhere");
        }
        for host in &self.host {
            command.args(["--host", host]);
        }
    }
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TextFormat {
    /// OpenMetrics 1.0.
    Openmetrics,
    /// The older text of Prometheus.
    Prometheus,
}
