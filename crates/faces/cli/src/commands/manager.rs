//! `tranship manager`: the daemon, and its configuration.

use super::metrics;
use super::sockets::{self, Listening};
use crate::args::{DaemonArgs, ManagerAction, ManagerArgs};
use crate::exit::{self, Answer};
use crate::output;
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tranship::ErrorKind;
use tranship_manager::{Config, ConfigError, Listener, Shutdown};
use tranship_session::places;
use tranship_sys::own_dir;

/// Configuration that is read if no other is named, and if it is there.
const SYSTEM_CONFIG: &str = "/etc/tranship/manager.toml";
/// Pause between two looks at the socket of a manager that is starting.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The text that `manager default-config` prints, and that is installed for a system's manager; a test holds it to the
/// defaults in the code.
const DEFAULT_CONFIG: &str = include_str!("../../../../../dist/manager.toml");

pub(crate) fn run(args: ManagerArgs) -> Result<Answer> {
    match args.action {
        None => serve(&args.daemon),
        Some(ManagerAction::CheckConfig { file }) => check(&file),
        Some(ManagerAction::DefaultConfig) => {
            output::stdout().write_all(DEFAULT_CONFIG.as_bytes())?;
            Ok(Answer::Yes)
        }
    }
}

/// Serves until SIGTERM, SIGINT, or until it was idle long enough.
fn serve(args: &DaemonArgs) -> Result<Answer> {
    if args.daemonize {
        return daemonize(args);
    }
    if args.detached {
        // Fails only where it leads a session already, and that is what is wanted.
        let _ = rustix::process::setsid();
    }
    let mut config = match &args.config {
        Some(file) => load(file)?,
        None if Path::new(SYSTEM_CONFIG).exists() => load(Path::new(SYSTEM_CONFIG))?,
        None => Config::default(),
    };
    if args.idle_exit.is_some() {
        config.idle_exit = args.idle_exit;
    }
    let path = socket_of(args)?;
    // The system's manager serves everybody whom its rules let in; a user's own serves that user.
    let mode = config
        .socket_mode
        .unwrap_or(if path == Path::new(places::SYSTEM_SOCKET) {
            0o666
        } else {
            0o600
        });
    let stop = Shutdown::new().context("making an eventfd")?;
    // A socket that systemd made stays where it is.
    let bound = match Listener::from_systemd() {
        Some(inherited) => inherited,
        None => Listener::bind(&path, mode),
    };
    let listener = match bound {
        // A manager that runs already is no failure to a caller that only wants one to run.
        Err(error) if error == ErrorKind::ManagerRunning && args.detached => return Ok(Answer::No),
        bound => bound?,
    };
    let doors = metrics::doors(&config, &args.observe, &listener, mode)?;
    if let Some(doors) = &doors {
        doors.say();
    }
    // Before there is another thread, which would keep the capabilities.
    tranship_sys::confine::drop_capabilities(config.kills()).context("dropping capabilities")?;
    // The observer ends with this process. Afterwards no program can be started.
    let _observer = doors.map(metrics::Doors::start).transpose()?;
    take_signals(stop.clone())?;
    match listener.path() {
        Some(path) => tracing::info!(socket = %path.display(), "the manager serves"),
        None => tracing::info!("the manager serves the socket that it inherited"),
    }
    tranship_manager::run(config, listener, &stop, true)?;
    Ok(Answer::Yes)
}

/// SIGTERM and SIGINT end it. SIGHUP does so where it has a terminal, which that tells is gone; to a daemon it says that its
/// configuration is a new one.
fn take_signals(stop: Shutdown) -> Result<()> {
    let mut taken = vec![SIGTERM, SIGINT];
    if !std::io::stdin().is_terminal() {
        taken.push(SIGHUP);
    }
    let mut signals = Signals::new(taken).context("taking signals")?;
    let take = move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                // Fails only if the counter is full, and then the stop is signalled already.
                let _ = stop.stop();
                return;
            }
            tracing::warn!(
                "SIGHUP changes nothing: the configuration is read at the start. Restart the manager; channels go on meanwhile"
            );
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(take).context("starting a thread")?;
    Ok(())
}

/// Starts this program again without a terminal and waits until a manager listens: the new process, or another one that
/// was faster.
fn daemonize(args: &DaemonArgs) -> Result<Answer> {
    let path = socket_of(args)?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command
        .args(["manager", "--detached", "--socket"])
        .arg(&path);
    if let Some(file) = &args.config {
        command.arg("--config").arg(file);
    }
    if let Some(time) = args.idle_exit {
        command
            .arg("--idle-exit")
            .arg(format!("{}ms", time.as_millis()));
    }
    args.observe.pass_on(&mut command);
    // The child's error output goes where ours goes until it serves; it writes nothing to standard output.
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("starting the manager")?;
    let begun = Instant::now();
    let mut lost = false;
    loop {
        if sockets::probe(&path) == Listening::Yes {
            return Ok(Answer::Yes);
        }
        match child.try_wait().context("waiting for the manager")? {
            // The child lost against another manager, which is about to listen.
            Some(status) if status.code() == Some(exit::NEGATIVE.into()) => lost = true,
            Some(status) => bail!("the manager ended at once ({status})"),
            None => {}
        }
        if begun.elapsed() >= PATIENCE {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let path = path.display();
    if lost {
        bail!("another manager has locked {path}, and has not listened there for {PATIENCE:?}");
    }
    // Whatever the child waits for: it may have the lock, which keeps every other manager away.
    let _ = child.kill();
    let _ = child.wait();
    bail!(
        "the manager (process {}) had not listened at {path} after {PATIENCE:?}, and was killed",
        child.id()
    )
}

/// Root's manager is the system's; anybody else's is their own.
fn socket_of(args: &DaemonArgs) -> Result<PathBuf> {
    if let Some(path) = &args.socket {
        return Ok(path.clone());
    }
    if let Some(path) = std::env::var_os(places::SOCKET_ENV).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    if rustix::process::geteuid().is_root() {
        return Ok(places::SYSTEM_SOCKET.into());
    }
    Ok(own_dir::user_dir()
        .context("finding a directory for the socket")?
        .join("manager.sock"))
}

fn load(file: &Path) -> Result<Config> {
    Config::load(file).map_err(|error| match error {
        // The error names the file itself.
        ConfigError::Read { .. } => error.into(),
        error => anyhow::Error::new(error).context(file.display().to_string()),
    })
}

/// The answer is no when the file is there and is wrong.
fn check(file: &Path) -> Result<Answer> {
    match Config::load(file) {
        Ok(_) => {
            writeln!(output::stdout(), "{}: good", file.display())?;
            Ok(Answer::Yes)
        }
        Err(ConfigError::Parse { line, message }) => {
            writeln!(
                output::stdout(),
                "{}:{line}: {}",
                file.display(),
                message.trim()
            )?;
            Ok(Answer::No)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        assert_eq!(
            Config::parse(DEFAULT_CONFIG).expect("a configuration"),
            Config::default()
        );
    }

    #[test]
    fn the_commented_lines_are_valid_too() {
        // A line that begins with `#` and no blank is a setting that can be switched on.
        let on: String = DEFAULT_CONFIG
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') && !rest.is_empty() => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let config = Config::parse(&on).expect("a configuration");
        assert!(
            config.total.is_some() && config.idle_exit.is_some() && config.socket_mode.is_some()
        );
        assert!(
            !config.connect.is_empty() && !config.export.is_empty() && !config.reserved.is_empty()
        );
    }
}
