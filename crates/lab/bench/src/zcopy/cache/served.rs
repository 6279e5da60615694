//! A server of memcached's protocol, as a process that ends with its client: Debian's memcached, or ours.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tranship_cache::{Options, Server};
use tranship_zcopy::Way;

/// Ours, by how they send.
pub const OURS: [(&str, Option<Way>); 3] = [
    ("tranship", None),
    ("batched", Some(Way::Copy)),
    ("vmsplice", Some(Way::Splice)),
];
/// The longest value that is asked for.
const LONGEST: usize = 2 << 20;
/// Until then it listens.
const PATIENCE: Duration = Duration::from_secs(300);

/// Parameters of a server.
#[derive(Debug, Clone)]
pub struct Given {
    /// The processors of the server, one for each of its threads.
    pub cores: Vec<usize>,
    /// Bytes that it may keep.
    pub memory: u64,
}

/// A running server. Ends when dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    pub port: u16,
    /// Of UDP.
    pub udp: u16,
    _folder: Option<tempfile::TempDir>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One of [`OURS`].
    pub fn ours(system: &str, place: &Given) -> Result<Served> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["child", "zc-cache"])
            .arg(serde_json::to_string(&(
                system,
                place.memory,
                place.cores.len(),
            ))?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        on_cores(&mut command, &place.cores);
        let mut child = command.spawn().context("starting a server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let ports = line.split_whitespace().map(str::parse);
        let ports: Vec<u16> = ports.collect::<Result<_, _>>().unwrap_or_default();
        let mut served = Served {
            child,
            port: 0,
            udp: 0,
            _folder: None,
        };
        let [port, udp] = ports[..] else {
            bail!("{system} said {line:?}");
        };
        (served.port, served.udp) = (port, udp);
        Ok(served)
    }

    /// Debian's memcached.
    pub fn memcached(program: &Path, place: &Given) -> Result<Served> {
        let folder = tempfile::tempdir()?;
        let ports = folder.path().join("ports");
        let mut command = Command::new(program);
        // -1: any port.
        command
            .args(["-l", "127.0.0.1", "-p", "-1", "-U", "-1"])
            .args(["-t", &place.cores.len().to_string()])
            .args(["-c", "4096", "-I", "2m"])
            .args(["-m", &(place.memory >> 20).to_string()])
            .env("MEMCACHED_PORT_FILENAME", &ports)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        on_cores(&mut command, &place.cores);
        let child = command.spawn();
        let child = child.with_context(|| format!("starting {}", program.display()))?;
        let mut served = Served {
            child,
            port: 0,
            udp: 0,
            _folder: Some(folder),
        };
        let begun = Instant::now();
        loop {
            if let Some(status) = served.child.try_wait()? {
                let mut said = String::new();
                if let Some(mut stderr) = served.child.stderr.take() {
                    stderr.read_to_string(&mut said)?;
                }
                bail!("{}: {status}: {said}", program.display());
            }
            if let Ok(text) = std::fs::read_to_string(&ports) {
                let port = |name| -> Result<u16> {
                    let port = text.lines().find_map(|line| line.strip_prefix(name));
                    Ok(port.context("no port")?.trim().parse()?)
                };
                (served.port, served.udp) = (port("TCP INET: ")?, port("UDP INET: ")?);
                return Ok(served);
            }
            ensure!(begun.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Has a program run on these cores, and end with this one.
pub fn on_cores(command: &mut Command, cores: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    let settle = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        rustix::thread::sched_setaffinity(None, &set)?;
        Ok(())
    };
    // SAFETY: two system calls, no memory, no lock.
    unsafe { command.pre_exec(settle) };
}

/// Where Debian's memcached is, if it is.
pub fn debians() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("memcached"))
        .find(|file| file.is_file())
}

/// The process that [`Served::ours`] starts.
pub fn child((system, memory, threads): (String, u64, usize)) -> Result<()> {
    let (_, way) = OURS
        .iter()
        .find(|(name, _)| *name == system)
        .context("no such server")?;
    let server = Server::start(Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        udp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        memory,
        threads,
        connections: 4096,
        longest: LONGEST,
        way: *way,
        ..Options::default()
    })?;
    let udp = server.udp().context("no UDP")?;
    println!("{} {}", server.address().port(), udp.port());
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}
