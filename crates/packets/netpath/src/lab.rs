//! Network namespaces for experiments: each is a host with only its own devices.

use crate::tap::Tap;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

const PREFIX: &str = "netpath-";

/// A network namespace, made by `ip netns`; dropping the value removes it.
#[derive(Debug)]
pub struct Host {
    name: String,
}

impl Host {
    /// Makes a host. Needs root and `ip` (Debian: iproute2).
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn new(what: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Ordering: only the number itself must be unique.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        sweep();
        let name = format!("{PREFIX}{}-{number}-{what}", std::process::id());
        run("ip", &["netns", "add", &name])?;
        let host = Self { name };
        host.run("ip", &["link", "set", "lo", "up"])?;
        Ok(host)
    }

    /// Returns the namespace's file, for setns(2).
    #[must_use]
    pub fn namespace(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// Plugs a device in: its name here, its address (`10.0.0.2/24`) and its MTU.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn plug(&self, tap: &Tap, address: &str, mtu: usize) -> Result<()> {
        run("ip", &["link", "set", tap.name(), "netns", &self.name])?;
        self.run(
            "ip",
            &["link", "set", tap.name(), "mtu", &mtu.to_string(), "up"],
        )?;
        self.run("ip", &["address", "add", address, "dev", tap.name()])
    }

    /// Sets one of the host's kernel settings, named by its path below /proc/sys.
    ///
    /// # Errors
    /// If there is no setting of that name.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        self.run(
            "sh",
            &["-c", &format!("echo {value} > /proc/sys/{setting}")],
        )
    }

    /// Connects this host to another by a pair of virtual devices, each with an address and an MTU.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn wire(
        &self,
        mine: (&str, &str),
        other: &Host,
        theirs: (&str, &str),
        mtu: usize,
    ) -> Result<()> {
        let pair = [
            "link", "add", mine.0, "netns", &self.name, "type", "veth", "peer",
        ];
        let peer = ["name", theirs.0, "netns", &other.name];
        run("ip", &[&pair[..], &peer[..]].concat())?;
        for (host, (device, address)) in [(self, mine), (other, theirs)] {
            host.run(
                "ip",
                &["link", "set", device, "mtu", &mtu.to_string(), "up"],
            )?;
            host.run("ip", &["address", "add", address, "dev", device])?;
        }
        Ok(())
    }

    /// Runs a program in the host and returns its output.
    ///
    /// # Errors
    /// If the program cannot be started or fails.
    pub fn output(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self
            .command(program, args)
            .output()
            .context(program.to_owned())?;
        if !output.status.success() {
            let (out, error) = (&output.stdout, &output.stderr);
            let text = String::from_utf8_lossy(if error.is_empty() { out } else { error });
            bail!("{program} {}: {}", args.join(" "), text.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a program in the host.
    ///
    /// # Errors
    /// If the program cannot be started or fails.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        self.output(program, args).map(drop)
    }

    /// Starts a program in the host.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, program: &str, args: &[&str]) -> Result<Running> {
        let mut command = self.command(program, args);
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .context(program.to_owned())?;
        Ok(Running(child))
    }

    /// Waits until a process listens on a TCP port in the host.
    ///
    /// # Errors
    /// If the host cannot be asked.
    pub fn listening(&self, port: &str) -> Result<()> {
        let filter = format!("sport = :{port}");
        loop {
            let output = self.output("ss", &["--no-header", "--listening", "--tcp", &filter])?;
            if !output.trim().is_empty() {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name, program])
            .args(args);
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(problem) = run("ip", &["netns", "delete", &self.name]) {
            eprintln!("netpath: {} stays: {problem:#}", self.name);
        }
    }
}

/// A running program; dropping the value kills it.
#[derive(Debug)]
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that namespaces and devices can be made here.
///
/// # Errors
/// The first missing requirement, in words.
pub fn possible() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("needs root, to make network namespaces and TAP devices");
    }
    std::fs::metadata("/dev/net/tun").context("/dev/net/tun: the kernel has no TUN/TAP driver")?;
    let host = Host::new("try").context("making a network namespace")?;
    drop(host);
    Ok(())
}

/// Removes the namespaces of processes that ended without doing so.
fn sweep() {
    let Ok(names) = std::fs::read_dir("/run/netns") else {
        return; // No namespace was made yet.
    };
    for name in names
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
    {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let pid = rest.split('-').next().unwrap_or_default();
        if !std::path::Path::new("/proc").join(pid).exists() {
            // Another process may be sweeping too.
            let _ = run("ip", &["netns", "delete", &name]);
        }
    }
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let output = output.with_context(|| format!("{program} (Debian: iproute2)"))?;
    if !output.status.success() {
        bail!(
            "{program} {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
