//! A web server that runs: its processes, their processor time, its end.

use super::PAYLOADS;
use super::ours::Setup;
use super::system::System;
use super::{configs, ours};
use crate::pinned;
use anyhow::{Context, Result, bail};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tranship_testkit::{Port, folder, is_root, resource};

/// The application of the peers, in C.
const APPLICATION: &str = include_str!("answer.c");
/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to leave.
const FAREWELL: Duration = Duration::from_secs(10);

/// A running server, which ends with its handle, and with the thread that started it.
#[derive(Debug)]
pub(crate) struct Server {
    system: System,
    processes: Vec<Child>,
    port: Port,
    setup: Setup,
    dir: tempfile::TempDir,
}

impl Server {
    /// Starts a server whose processes run on one processor, and waits until it answers. `None`: it cannot run here,
    /// and the reason was printed.
    pub fn start(system: System, core: usize) -> Result<Option<Server>> {
        Server::with(system, core, Setup::default())
    }

    /// Starts a server like [`start`](Server::start), with another memory.
    pub fn with(system: System, core: usize, setup: Setup) -> Result<Option<Server>> {
        if let Some(missing) = missing(system) {
            eprintln!("{}: not measured: {missing}", system.name());
            return Ok(None);
        }
        let dir = folder().context("a folder")?;
        let mut server = Server {
            system,
            processes: Vec::new(),
            port: Port::reserve().context("a port")?,
            setup,
            dir,
        };
        server.prepare()?;
        if system.has_application() {
            let answer = server.dir.path().join("answer");
            let mut command = Command::new(answer);
            let socket = server.dir.path().join("socket");
            command.arg(&socket).arg(configs::APPLICATIONS.to_string());
            server.spawn(command, core)?;
            let begin = Instant::now();
            while !socket.exists() && begin.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let command = server.command()?;
        server.spawn(command, core)?;
        server.await_answer()?;
        Ok(Some(server))
    }

    /// Files, the application, the configuration.
    fn prepare(&self) -> Result<()> {
        let dir = self.dir.path();
        fs::set_permissions(dir, Permissions::from_mode(0o755))?;
        let files = dir.join("static");
        fs::create_dir(&files)?;
        for bytes in PAYLOADS {
            fs::write(
                files.join(bytes.to_string()),
                vec![b'x'; usize::try_from(bytes)?],
            )?;
        }
        let Some(text) = configs::text(self.system, dir, self.port.number(), is_root()) else {
            return Ok(());
        };
        fs::write(dir.join("conf"), text)?;
        let sockets = dir.join("sockets");
        fs::create_dir(&sockets)?;
        if is_root() {
            chown(&sockets, user_of("www-data"), None)?;
        }
        let source = dir.join("answer.c");
        fs::write(&source, APPLICATION)?;
        let built = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(dir.join("answer"))
            .arg(&source)
            .arg("-lfcgi")
            .output()
            .context("running cc")?;
        if !built.status.success() {
            bail!(
                "building answer.c: {}",
                String::from_utf8_lossy(&built.stderr)
            );
        }
        Ok(())
    }

    fn command(&self) -> Result<Command> {
        let conf = self.dir.path().join("conf");
        Ok(match self.system {
            System::NginxFcgi | System::NginxStatic => {
                let mut command = Command::new(program("nginx").context("nginx")?);
                command.arg("-c").arg(conf);
                command
            }
            System::ApacheFcgid | System::ApacheProxy => {
                let mut command = Command::new(program("apache2").context("apache2")?);
                command.arg("-DFOREGROUND").arg("-f").arg(conf);
                command
            }
            System::Tranship | System::TranshipStatic | System::SingleProcess => {
                let dir = self.dir.path();
                ours::command(self.system, self.port.number(), dir, &self.setup)?
            }
        })
    }

    fn spawn(&mut self, command: Command, core: usize) -> Result<()> {
        let log = fs::File::create(
            self.dir
                .path()
                .join(format!("said{}", self.processes.len())),
        )?;
        let mut pinned = pinned::command(core, command.get_program())?;
        pinned.args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                pinned.env(name, value);
            }
        }
        pinned
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let child = pinned.spawn();
        self.processes
            .push(child.with_context(|| format!("starting {}", self.system.name()))?);
        Ok(())
    }

    /// Waits until the server gives a right answer: components may still be on their way when it accepts connections.
    fn await_answer(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            if self.answers().is_ok_and(|answers| answers) {
                return Ok(());
            }
            let ended = match self.processes.last_mut() {
                Some(child) => child.try_wait()?,
                None => None,
            };
            if ended.is_some() || begin.elapsed() > PATIENCE {
                let mut said = String::new();
                for file in ["said0", "said1", "log"] {
                    said += &fs::read_to_string(self.dir.path().join(file)).unwrap_or_default();
                }
                bail!("{} does not answer: {said}", self.system.name());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn answers(&self) -> std::io::Result<bool> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port.number()))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        let path = self.system.path(PAYLOADS[1]);
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut status = [0; 12];
        socket.read_exact(&mut status)?;
        Ok(status.ends_with(b" 200"))
    }

    /// Returns the address of an answer of so many bytes.
    pub fn url(&self, bytes: u64) -> String {
        let port = self.port.number();
        format!("http://127.0.0.1:{port}{}", self.system.path(bytes))
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the manager's socket of the web server of isolated components.
    pub fn socket(&self) -> Result<PathBuf> {
        ours::socket(self.dir.path()).context("the manager's socket of the web server")
    }

    /// Returns the manager's process.
    pub fn manager(&self) -> Result<u32> {
        let is = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(18)
                .any(|words| words == b"\0manager\0--socket\0")
        };
        let found = self.pids().into_iter().find(is);
        found.context("the manager of the web server")
    }

    /// Returns the processor time of all living processes of the server.
    pub fn ran(&self) -> Duration {
        // A process that has ended meanwhile has no part in it.
        let ran = |pid| resource::scheduled(pid).map_or(Duration::ZERO, |s| s.ran);
        self.pids().into_iter().map(ran).sum()
    }

    /// Returns the server's processes.
    pub fn pids(&self) -> Vec<u32> {
        let mut all = Vec::new();
        for process in &self.processes {
            all.push(process.id());
            all.extend(resource::descendants(process.id()));
        }
        all
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            if let Some(pid) = rustix::process::Pid::from_raw(process.id().cast_signed()) {
                // It fails if the process has ended.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let begin = Instant::now();
            while begin.elapsed() < FAREWELL && matches!(process.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Returns a program's file: Debian's servers are in /usr/sbin, which an ordinary user's PATH does not have.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Returns whether a program is there.
pub(crate) fn has(name: &str) -> bool {
    program(name).is_some()
}

/// Returns what a system needs and the machine has not.
fn missing(system: System) -> Option<&'static str> {
    let lacks = |name: &str| !has(name);
    let module = |name: &str| !Path::new("/usr/lib/apache2/modules").join(name).is_file();
    match system {
        System::NginxFcgi | System::NginxStatic if lacks("nginx") => Some("no nginx"),
        System::ApacheFcgid | System::ApacheProxy if lacks("apache2") => Some("no apache2"),
        System::ApacheFcgid if module("mod_fcgid.so") => Some("no libapache2-mod-fcgid"),
        System::Tranship | System::SingleProcess | System::TranshipStatic => None,
        _ if !Path::new("/usr/include/fcgiapp.h").is_file() => Some("no libfcgi-dev"),
        _ => None,
    }
}

fn user_of(name: &str) -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|l| l.starts_with(&format!("{name}:")))?;
    line.split(':').nth(2)?.parse().ok()
}
