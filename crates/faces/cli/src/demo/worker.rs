//! A consumer process, seen from its parent.

use super::consumers::Outcome;
use super::progress::{Line, Progress};
use super::sandbox::Confinement;
use crate::args::demo::{ConsumerRole, Transport};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A running consumer. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub role: ConsumerRole,
    child: Child,
    heard: Arc<Heard>,
    listener: Option<JoinHandle<()>>,
}

/// Messages of the consumer so far.
#[derive(Debug, Default)]
struct Heard {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Clone, Debug, Default)]
struct State {
    ready: Option<Confinement>,
    progress: Progress,
    done: Option<(Outcome, u64)>,
    /// The consumer's standard output ended.
    silent: bool,
    /// The consumer was killed on purpose.
    killed: bool,
}

/// Result that a consumer left behind.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Finished {
    pub role: ConsumerRole,
    pub progress: Progress,
    pub outcome: Outcome,
    pub confinement: Confinement,
    pub cpu_us: u64,
}

/// Parameters with which a consumer is started.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub role: ConsumerRole,
    pub over: Transport,
    pub total: u64,
    /// The writer's output.
    pub output: Option<&'a Path>,
    /// Further arguments, such as the name and socket to receive under.
    pub more: Vec<String>,
    /// Source of its frames, for pipes and sockets.
    pub stdin: Stdio,
}

impl Worker {
    pub(crate) fn start(start: Start<'_>) -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args([
            "demo-consumer",
            "--role",
            start.role.name(),
            "--over",
            start.over.name(),
        ]);
        command
            .arg("--total")
            .arg(start.total.to_string())
            .args(start.more);
        if let Some(path) = start.output {
            command.arg("--output").arg(path);
        }
        // The consumer gets nothing of the environment; a locked-down process can hardly use it anyway.
        command
            .env_clear()
            .stdin(start.stdin)
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("starting the {} consumer", start.role.name()))?;
        let stdout = child.stdout.take().context("its standard output")?;
        let heard = Arc::new(Heard::default());
        let tell = Arc::clone(&heard);
        let listener = std::thread::Builder::new()
            .name(format!("hear-{}", start.role.name()))
            .spawn(move || tell.listen(BufReader::new(stdout)))
            .context("starting a thread")?;
        Ok(Self {
            role: start.role,
            child,
            heard,
            listener: Some(listener),
        })
    }

    /// Waits until it is locked down and takes frames.
    pub(crate) fn wait_ready(&self) -> Result<Confinement> {
        let state = self
            .heard
            .wait(|state| state.ready.is_some() || state.silent);
        state.ready.with_context(|| {
            format!(
                "the {} consumer ended before it was ready",
                self.role.name()
            )
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        self.heard.wait(|_| true).progress
    }

    /// Returns whether it says nothing more.
    pub(crate) fn ended(&self) -> bool {
        self.heard.wait(|_| true).silent
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it is (SIGSTOP), or lets it go on (SIGCONT).
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process id")?;
        kill_process(pid, signal)
            .with_context(|| format!("sending a signal to the {} consumer", self.role.name()))
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing a consumer")?;
        self.child.wait().context("waiting for a killed consumer")?;
        self.heard.change(|state| state.killed = true);
        Ok(())
    }

    /// Waits for its end, after its frames have ended.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        let state = self.heard.wait(|state| state.silent);
        let status = self.child.wait().context("waiting for a consumer")?;
        let (confinement, outcome, cpu_us) = match (state.killed, state.ready, state.done) {
            (true, ready, _) => (ready.unwrap_or_default(), Outcome::Killed, 0),
            (false, Some(confinement), Some((outcome, cpu_us))) if status.success() => {
                (confinement, outcome, cpu_us)
            }
            (false, Some(_), Some(_)) => {
                bail!("the {} consumer failed ({status})", self.role.name())
            }
            _ => bail!(
                "the {} consumer ended without a result ({status})",
                self.role.name()
            ),
        };
        Ok(Finished {
            role: self.role,
            progress: state.progress,
            outcome,
            confinement,
            cpu_us,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Heard {
    fn listen(&self, lines: impl BufRead) {
        for line in lines.lines().map_while(Result::ok) {
            let Ok(line) = serde_json::from_str::<Line>(&line) else {
                continue;
            };
            self.change(|state| match line {
                Line::Ready(confinement) => state.ready = Some(confinement),
                Line::Progress(progress) => state.progress = progress,
                Line::Done {
                    progress,
                    outcome,
                    cpu_us,
                } => {
                    state.progress = progress;
                    state.done = Some((outcome, cpu_us));
                }
            });
        }
        self.change(|state| state.silent = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_all();
    }

    fn wait(&self, enough: impl Fn(&State) -> bool) -> State {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.news.wait_while(state, |state| !enough(state));
        state.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
