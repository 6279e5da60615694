//! A process of an experiment, seen from its parent.

use crate::args::PartRole;
use crate::lines::Want;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How long a process may take to leave when it is told to.
const FAREWELL: Duration = Duration::from_secs(2);

/// A running process, which prints lines of that kind. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process<T> {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<T>,
}

impl<T: DeserializeOwned + Send + 'static> Process<T> {
    pub fn start(role: PartRole, number: u32, amount: u64, socket: &Path) -> Result<Process<T>> {
        Process::start_on(role, number, amount, socket, None)
    }

    /// Starts a process that stays on a processor.
    pub fn start_on(
        role: PartRole,
        number: u32,
        amount: u64,
        socket: &Path,
        core: Option<usize>,
    ) -> Result<Process<T>> {
        let name = match number {
            0 => role.name().to_owned(),
            _ => format!("{} {number}", role.name()),
        };
        let program = std::env::current_exe().context("finding this program")?;
        let mut child = Command::new(program)
            .args(["part", role.name(), "--socket"])
            .arg(socket)
            .args(["--number", &number.to_string()])
            .args(["--amount", &amount.to_string()])
            .args(core.map(|core| format!("--core={core}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the {name}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = stdout.context("its standard output")?;
        let (tell, lines) = channel();
        let hear = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let said = serde_json::from_str(&line).ok();
                if said.is_some_and(|said| tell.send(said).is_err()) {
                    break;
                }
            }
        };
        // The thread ends with the process.
        std::thread::Builder::new()
            .name(format!("hear {name}"))
            .spawn(hear)
            .context("starting a thread")?;
        Ok(Process {
            name,
            child,
            stdin,
            lines,
        })
    }

    /// So many connections, or pages, from now on.
    pub fn want(&mut self, callers: u64) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its standard input")?;
        let mut text = serde_json::to_vec(&Want { callers })?;
        text.push(b'\n');
        let told = stdin.write_all(&text);
        told.with_context(|| format!("telling the {}", self.name))
    }

    /// The next line.
    pub fn next(&self, patience: Duration) -> Result<T> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the {} says nothing for {patience:?}", self.name)
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the {} has ended", self.name),
        }
    }

    /// The last line, if there is a new one.
    pub fn latest(&self) -> Result<Option<T>> {
        let mut last = None;
        loop {
            match self.lines.try_recv() {
                Ok(line) => last = Some(line),
                Err(TryRecvError::Empty) => return Ok(last),
                Err(TryRecvError::Disconnected) => bail!("the {} has ended", self.name),
            }
        }
    }
}

impl<T> Drop for Process<T> {
    fn drop(&mut self) {
        drop(self.stdin.take()); // which tells it to leave
        let begin = Instant::now();
        while begin.elapsed() < FAREWELL && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
