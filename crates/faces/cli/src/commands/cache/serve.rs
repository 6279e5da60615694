//! `tranship cache`: the server, until a signal ends it or a successor has taken over.

use super::successor::Start;
use crate::args::cache::ServeArgs;
use crate::commands::connect;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;
use std::io::Write;
use tranship::{Domain, ErrorKind};
use tranship_cache::{Options, Server, Share};
use tranship_sys::service::Notifier;

/// Least memory: below it there are only a few pageblocks.
const LEAST: u64 = 8 << 20;
/// Bytes of one reader by reference.
const PART: u64 = 64 << 10;
/// Name of the domain.
const NAME: &str = "tranship-cache";

pub(super) fn run(args: &ServeArgs) -> Result<Answer> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR2]).context("taking signals")?;
    let mut start = Start::of_this()?;
    let service = Notifier::from_environment(true).context("telling the service manager")?;
    let server = Server::start(options(args)?).context("starting the cache")?;
    // From here on the server may have the memory of another one: a failed notice is no reason to end.
    if let Some(service) = &service {
        Server::forget_kept(service);
        warn(
            service
                .say("READY=1")
                .context("telling the service manager"),
        );
    }
    warn(say(&server, args).context("saying where it serves"));
    let handle = signals.handle();
    server.when_gone(move || handle.close());
    let mut out = output::stdout();
    for signal in signals.forever() {
        if signal != SIGUSR2 {
            break;
        }
        if args.take_over.is_none() {
            eprintln!("tranship: SIGUSR2 has a successor started, which needs --take-over SOCKET");
        } else if let Err(error) = start.again() {
            eprintln!("tranship: no successor: {error:#}");
        }
    }
    if let Some(why) = server.failure() {
        server.stop();
        bail!("the cache ends, and what it stored with it: {why}");
    }
    if let Some(successor) = server.gone_to() {
        if let Some(service) = &service {
            // Otherwise the service would end with this process.
            let told = service.say(&format!("MAINPID={successor}"));
            told.context("telling the service manager")?;
        }
        writeln!(out, "handed over")?;
        out.flush()?;
        server.stop();
    } else if let Some(service) = &service {
        let kept = server.keep(service);
        let kept = kept.context("leaving the values with the service manager")?;
        writeln!(out, "left {kept} values with the service manager")?;
        out.flush()?;
    } else {
        server.stop();
    }
    Ok(Answer::Yes)
}

/// Prints a warning, also if standard error is closed.
fn warn(told: Result<()>) {
    if let Err(error) = told {
        let _ = writeln!(std::io::stderr(), "tranship: {error:#}");
    }
}

fn options(args: &ServeArgs) -> Result<Options> {
    ensure!(
        args.memory >= LEAST,
        "{} bytes of memory are too few for a cache: at least {LEAST} are needed, such as -m 64MiB",
        args.memory
    );
    ensure!(
        args.max_value <= args.memory / 2,
        "values of {} bytes do not go with {} bytes of memory: at most half of it",
        args.max_value,
        args.memory
    );
    let defaults = Options::default();
    let share = share(args)?;
    Ok(Options {
        listen: args.listen,
        udp: args.udp,
        memory: args.memory,
        threads: args.threads.unwrap_or(defaults.threads),
        connections: args.connections,
        longest: usize::try_from(args.max_value)?,
        patience: args.patience,
        deadline: args.deadline,
        take_over: args.take_over.clone(),
        domain: member(args, share.as_ref())?,
        share,
        way: defaults.way,
    })
}

/// Joins the manager that admits the memory. A server that shows values must have one; others use a manager if one
/// runs.
fn member(args: &ServeArgs, share: Option<&Share>) -> Result<Option<Domain>> {
    if let Some(share) = share {
        return Ok(Some(share.domain.clone()));
    }
    match connect::take_part(&args.connect, NAME) {
        Ok(domain) => Ok(Some(domain)),
        Err(error) if args.connect.socket.is_some() => {
            Err(error).context("joining the manager that --socket names")
        }
        Err(error) if error.kind() == ErrorKind::NoManager => Ok(None),
        Err(error) => {
            let error = anyhow::Error::new(error);
            warn(Err(error.context("no manager admits the memory")));
            Ok(None)
        }
    }
}

/// Returns the share through which values are shown to other processes.
fn share(args: &ServeArgs) -> Result<Option<Share>> {
    let Some(name) = &args.shm else {
        return Ok(None);
    };
    ensure!(
        args.shm_readers > 0 && args.shm_held > 0,
        "{} readers of {} values each: at least one of one is needed",
        args.shm_readers,
        args.shm_held
    );
    let part = args.shm_memory / u64::from(args.shm_readers);
    ensure!(
        part >= PART,
        "{} bytes for {} readers are {part} for each: at least {PART} are needed",
        args.shm_memory,
        args.shm_readers
    );
    let domain = connect::stay(&args.connect, NAME)?;
    Ok(Some(Share {
        memory: args.shm_memory,
        readers: args.shm_readers.into(),
        held: args.shm_held.into(),
        held_for: args.shm_hold,
        ..Share::new(domain, name)
    }))
}

fn say(server: &Server, args: &ServeArgs) -> Result<()> {
    let mut out = output::stdout();
    writeln!(out, "memcached protocol at {}", server.address())?;
    if let Some(udp) = server.udp() {
        writeln!(out, "and by UDP at {udp}")?;
    }
    if let Some(name) = &args.shm {
        writeln!(out, "and by reference at {name}")?;
    }
    match (server.taken(), &args.take_over) {
        (Some(taken), _) => {
            let from = match taken.from {
                Some(process) => format!("process {process}"),
                None => "the service manager".to_owned(),
            };
            writeln!(
                out,
                "took over {} values ({}) and {} connections from {from}; {} values could not be read",
                taken.store.values,
                output::size(taken.store.bytes),
                taken.connections,
                taken.store.refused
            )?;
        }
        (None, Some(at)) => writeln!(out, "nobody serves at {}: begins empty", at.display())?,
        (None, None) => {}
    }
    Ok(out.flush()?)
}
