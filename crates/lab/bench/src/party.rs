//! The processes of one run: forked, pinned, joined by control sockets, each with a pipe for its results.
//!
//! The program that forks them stays single-threaded and does nothing itself, so each run starts clean.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::stats::Measured;

/// Longest time one run may take before it is taken for stuck. Beside full load each of some 70,000 single steps waits for a turn.
const STUCK: Duration = Duration::from_secs(900);
/// Most descriptors in one control message.
const MAX_FDS: usize = 16;

/// One process's place in a run.
#[derive(Debug)]
pub struct Party {
    /// Sockets to the others, by their index; none to itself.
    to: Vec<Option<OwnedFd>>,
    /// A number that no other run of this program has.
    pub run: u64,
}

impl Party {
    fn socket(&self, other: usize) -> Result<BorrowedFd<'_>> {
        let fd = self.to.get(other).and_then(Option::as_ref);
        Ok(fd
            .with_context(|| format!("no process {other} in this run"))?
            .as_fd())
    }

    /// Sends a word and descriptors to another process of the run.
    pub fn send(&self, other: usize, word: u64, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        ensure!(fds.len() <= MAX_FDS, "{} descriptors at once", fds.len());
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let bytes = word.to_le_bytes();
        sendmsg(
            self.socket(other)?,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Waits for a word and descriptors from another process.
    pub fn recv(&self, other: usize) -> Result<(u64, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0u8; 8];
        let mut iov = [IoSliceMut::new(&mut bytes)];
        let got = recvmsg(
            self.socket(other)?,
            &mut iov,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        ensure!(got.bytes == 8, "process {other} of the run is gone");
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(list) = message {
                fds.extend(list);
            }
        }
        Ok((u64::from_le_bytes(bytes), fds))
    }

    /// Sends a word alone.
    pub fn tell(&self, other: usize, word: u64) -> Result<()> {
        self.send(other, word, &[])
    }

    /// Waits for a word alone.
    pub fn hear(&self, other: usize) -> Result<u64> {
        Ok(self.recv(other)?.0)
    }

    /// Waits until every process of the run has come here.
    pub fn barrier(&self) -> Result<()> {
        let others = || (0..self.to.len()).filter(|i| self.to[*i].is_some());
        for i in others() {
            self.tell(i, 0)?;
        }
        for i in others() {
            self.hear(i)?;
        }
        Ok(())
    }
}

struct Started {
    pid: Pid,
    results: std::fs::File,
    said: Vec<u8>,
    done: bool,
}

/// Runs a process on each of the cores. All do the same, each with its number. Gives what all measured.
pub fn each(
    number: u64,
    cores: &[usize],
    body: impl Fn(usize, &Party) -> Result<Vec<Measured>>,
) -> Result<Vec<Measured>> {
    let mut mesh = mesh(cores.len())?;
    let mut started = Vec::with_capacity(cores.len());
    for (i, &core) in cores.iter().enumerate() {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // SAFETY: this program never starts a thread before it forks, so the child may do anything.
        match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                drop((read, std::mem::take(&mut started)));
                let to = std::mem::take(&mut mesh[i]);
                drop(mesh);
                let party = Party { to, run: number };
                child(core, write.into(), || body(i, &party))
            }
            pid => {
                let pid = Pid::from_raw(pid).context("fork gave no process")?;
                started.push(Started {
                    pid,
                    results: read.into(),
                    said: Vec::new(),
                    done: false,
                });
            }
        }
    }
    drop(mesh);
    let outcome = gather(&mut started);
    for one in &started {
        if outcome.is_err() {
            // Our own child, not yet waited for, so the number is still its own.
            let _ = kill_process(one.pid, Signal::KILL);
        }
        let _ = waitpid(Some(one.pid), WaitOptions::empty());
    }
    sweep(number);
    outcome
}

/// Begins of the names that a run's files in `/dev/shm` have.
pub fn prefixes(number: u64) -> [String; 2] {
    [
        format!("tranship_bench_{number}_"),
        format!("tranship-bench-{number:x}-"),
    ]
}

/// Removes the files of a run whose processes are gone: iceoryx2 leaves one even after an orderly end. At worst a few
/// files stay.
fn sweep(number: u64) {
    let _ = std::fs::remove_dir_all(folder(number));
    let ours = prefixes(number);
    let shared = std::fs::read_dir("/dev/shm").into_iter().flatten();
    for file in shared.flatten() {
        let name = file.file_name();
        let name = name.to_string_lossy();
        if ours.iter().any(|ours| name.starts_with(ours)) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// Does what [`each`] does by threads of one process.
pub fn threads(
    number: u64,
    cores: &[usize],
    body: impl Fn(usize, &Party) -> Result<Vec<Measured>> + Sync,
) -> Result<Vec<Measured>> {
    let body = &body;
    each(number, &cores[..1], |_, party| {
        let (run, sockets) = (party.run, mesh(cores.len())?);
        std::thread::scope(|scope| {
            let side = |(me, to): (usize, Vec<_>)| {
                scope.spawn(move || {
                    pin(cores[me])?;
                    // The other threads wait for this one until the clock of the parent ends the run.
                    body(me, &Party { to, run })
                        .inspect_err(|error| eprintln!("side {me} of the run: {error:#}"))
                })
            };
            let sides: Vec<_> = sockets.into_iter().enumerate().map(side).collect();
            let mut all = Vec::new();
            for side in sides {
                all.extend(side.join().map_err(|_| anyhow!("a side panicked"))??);
            }
            Ok(all)
        })
    })
}

/// Where the processes of a run may leave files, if they make it; it goes with the last of them.
pub fn folder(number: u64) -> PathBuf {
    std::env::temp_dir().join(format!("tranship-bench-{number:x}"))
}

/// A socket pair for each two of `n` processes, as a table of the ends of each process.
fn mesh(n: usize) -> Result<Vec<Vec<Option<OwnedFd>>>> {
    let mut table: Vec<Vec<Option<OwnedFd>>> =
        (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    for (i, j) in (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))) {
        let kind = SocketType::SEQPACKET;
        let (a, b) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        table[i][j] = Some(a);
        table[j][i] = Some(b);
    }
    Ok(table)
}

/// Reads what all say until all have closed their pipe; the first failure ends it.
fn gather(started: &mut [Started]) -> Result<Vec<Measured>> {
    let begun = Instant::now();
    while started.iter().any(|s| !s.done) {
        ensure!(
            begun.elapsed() < STUCK,
            "the run is stuck: nothing after {} s",
            STUCK.as_secs()
        );
        let open = || started.iter().filter(|one| !one.done);
        let fds = open().map(|one| PollFd::new(&one.results, PollFlags::IN));
        let mut fds: Vec<_> = fds.collect();
        let second = rustix::time::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&second))?;
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let open = started.iter_mut().filter(|one| !one.done);
        for (one, _) in open.zip(ready).filter(|(_, is_ready)| *is_ready) {
            let mut bytes = [0u8; 65536];
            let count = one.results.read(&mut bytes)?;
            one.said.extend_from_slice(&bytes[..count]);
            one.done = count == 0;
            if one.done && one.said.first() != Some(&b'[') {
                bail!(
                    "a process of the run: {}",
                    String::from_utf8_lossy(&one.said)
                );
            }
        }
    }
    let mut all = Vec::new();
    for one in started {
        let said: Vec<Measured> = serde_json::from_slice(&one.said).context("a result")?;
        all.extend(said);
    }
    Ok(all)
}

/// The life of a forked process. Says a JSON list, or an error as text.
fn child(
    core: usize,
    mut results: std::fs::File,
    body: impl FnOnce() -> Result<Vec<Measured>>,
) -> ! {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        pin(core)?;
        body()
    }));
    let said = match outcome {
        Ok(Ok(measured)) => serde_json::to_vec(&measured).unwrap_or_default(),
        Ok(Err(error)) => format!("{error:#}").into_bytes(),
        Err(_) => b"panicked".to_vec(),
    };
    let ok = results.write_all(&said).is_ok();
    // SAFETY: no precondition; not `exit`, because what the parent registered there is not ours to run.
    unsafe { libc::_exit(i32::from(!ok)) }
}

/// Pins this thread to one core.
pub fn pin(core: usize) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Forks as the program does: where no other thread holds a lock that the child would wait for. So in a process of its own,
    /// in which the harness has but one thread.
    #[test]
    fn words_descriptors_results_and_failures_travel() {
        const ALONE: &str = "TRANSHIP_BENCH_ALONE";
        if std::env::var_os(ALONE).is_some() {
            return travel();
        }
        let name = "party::tests::words_descriptors_results_and_failures_travel";
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        command.args([name, "--exact", "--test-threads=1"]);
        let output = command.env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
    }

    fn travel() {
        let measured = |ns| Measured {
            op: String::new(),
            median_ns: ns,
            p99_ns: 2.0,
            per_second: 3.0,
            ..Measured::default()
        };
        let got = each(7, &[0, 0], |me, p| match me {
            0 => {
                let (read, write) = rustix::pipe::pipe()?;
                p.send(1, 42, &[write.as_fd()])?;
                p.barrier()?;
                let mut byte = [0];
                rustix::io::read(&read, &mut byte)?;
                Ok(vec![measured(f64::from(byte[0]))])
            }
            _ => {
                let (word, fds) = p.recv(0)?;
                ensure!(word == 42 && fds.len() == 1 && p.run == 7);
                rustix::io::write(&fds[0], b"A")?;
                p.barrier()?;
                Ok(vec![])
            }
        });
        let got = got.unwrap();
        assert_eq!((got.len(), got[0].median_ns), (1, 65.0));

        // The folder of this number is ours alone.
        let number = u64::from(std::process::id()) << 32 | 8;
        let failed = each(number, &[0, 0], |me, p| match me {
            0 => p.hear(1).map(|_| vec![]),
            _ => {
                std::fs::create_dir(folder(p.run))?;
                std::fs::write(folder(p.run).join("manager.sock.lock"), "")?;
                bail!("no luck")
            }
        });
        assert!(!folder(number).exists(), "nothing stays");
        let text = format!("{:#}", failed.unwrap_err());
        assert!(
            text.contains("no luck") || text.contains("is gone"),
            "{text}"
        );
    }
}
