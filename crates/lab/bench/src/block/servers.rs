//! The servers, each with the same image, for as long as the bench runs.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tranship_core::Domain;

use super::nbd;
use super::work::{Access, SYSTEMS, size};
use crate::options::Common;

/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processes that end with the bench.
#[derive(Debug)]
pub struct Servers {
    children: Vec<Child>,
    /// Systems, and the ports of this machine at which they are asked.
    pub places: Vec<(&'static str, u16)>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What starts them.
struct Starter<'a> {
    tranship: PathBuf,
    dir: &'a Path,
    /// Bytes of each image.
    size: u64,
    access: Access,
    children: Vec<Child>,
    has_manager: bool,
}

impl Servers {
    /// Each of those that are wanted, and can be had.
    pub fn start(common: &Common, access: Access, dir: &Path) -> Result<Servers> {
        let near = dir.parent().context("a folder")?;
        let mut starter = Starter {
            tranship: near.join("tranship"),
            dir,
            size: size(common),
            access,
            children: Vec::new(),
            has_manager: false,
        };
        ensure!(
            starter.tranship.exists(),
            "no {}: build it with `cargo build --release -p tranship-cli`",
            starter.tranship.display()
        );
        let mut servers = Servers {
            children: Vec::new(),
            places: Vec::new(),
        };
        for system in SYSTEMS {
            // nbdkit's file plugin always goes through the page cache.
            if !common.wants(system) || access == Access::Direct && system == "nbdkit" {
                continue;
            }
            if let Some(missing) = missing(system) {
                eprintln!("SKIPPED: {system}: no {missing} here; scripts/deps.sh installs it");
                continue;
            }
            let port = starter.start(system);
            servers.children.append(&mut starter.children);
            servers.places.push((system, port?));
        }
        Ok(servers)
    }
}

fn missing(system: &str) -> Option<&str> {
    let program = match system {
        "nbdkit" | "qemu-nbd" => system,
        _ => return None,
    };
    let asked = Command::new(program).arg("--version").output();
    asked.is_err().then_some(program)
}

impl Starter<'_> {
    fn run(&mut self, program: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.env("TRANSHIP_SOCKET", self.socket());
        let child = command.spawn();
        self.children
            .push(child.with_context(|| format!("starting {}", program.display()))?);
        Ok(())
    }

    fn tranship(&mut self, arguments: &[&str]) -> Result<()> {
        let program = self.tranship.clone();
        self.run(&program, arguments)
    }

    fn socket(&self) -> PathBuf {
        self.dir.join(format!("manager-{:?}", self.access))
    }

    /// An image of its own for each: writers lock it.
    fn image(&self, system: &str) -> Result<String> {
        let name = format!("{system}.image");
        let mut file = std::fs::File::create(self.dir.join(&name))?;
        let mut piece = vec![0u8; 1 << 20];
        for number in 0..self.size >> 20 {
            for (word, at) in piece.chunks_exact_mut(8).zip(0u64..) {
                let mixed = (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                word.copy_from_slice(&mixed.to_le_bytes());
            }
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        Ok(name)
    }

    fn manager(&mut self) -> Result<()> {
        if self.has_manager {
            return Ok(());
        }
        let socket = self.socket();
        self.tranship(&["manager", "--socket", &socket.display().to_string()])?;
        self.has_manager = true;
        let join = || Domain::builder().name("block-bench").socket(&socket);
        wait(|| join().connect().is_ok())
    }

    fn serve(&mut self, at: &str, system: &str, more: &[&str]) -> Result<()> {
        let image = self.image(system)?;
        let access = match self.access {
            Access::Buffered => "buffered",
            Access::Direct => "direct",
        };
        let arguments = ["block", "serve", at, &image, "--access", access];
        self.tranship(&[&arguments, more].concat())
    }

    fn proxy(&mut self, server: &str, more: &[&str]) -> Result<()> {
        let arguments = ["block", "proxy", "--server", server, "--cache", "0"];
        self.tranship(&[&arguments, more].concat())
    }

    fn start(&mut self, system: &str) -> Result<u16> {
        let port = free_port()?;
        let nbd = format!("tcp:127.0.0.1:{port}");
        let export = ["--nbd", &nbd];
        let network =
            || -> Result<String> { Ok(format!("tcp+plain:127.0.0.1:{}/bench", free_port()?)) };
        match system {
            "tranship" => self.serve("local:bench", system, &export)?,
            "tranship-proxy" => {
                self.manager()?;
                self.serve("shm:bench-proxy", system, &[])?;
                self.proxy("shm:bench-proxy", &export)?;
            }
            "tranship-net-proxy" => {
                self.manager()?;
                let network = network()?;
                self.serve(&network, system, &[])?;
                self.proxy(&network, &export)?;
            }
            "nbdkit" => {
                let (image, port) = (self.image(system)?, port.to_string());
                let program = Path::new("nbdkit");
                self.run(
                    program,
                    &["-f", "-i", "127.0.0.1", "-p", &port, "file", &image],
                )?;
            }
            _ => {
                let (image, port) = (self.image(system)?, port.to_string());
                let how = match self.access {
                    Access::Direct => ["--cache=none", "--aio=native"],
                    Access::Buffered => ["--cache=writeback", "--aio=threads"],
                };
                let place = ["-b", "127.0.0.1", "-p", &port, "-f", "raw", "-t", "-e", "4"];
                let arguments = [&place[..], &how, &[&image]].concat();
                self.run(Path::new("qemu-nbd"), &arguments)?;
            }
        }
        wait(|| nbd::connect(port, self.size).is_ok())?;
        Ok(port)
    }
}

/// One that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Looks until it is so.
fn wait(mut there: impl FnMut() -> bool) -> Result<()> {
    let since = Instant::now();
    while !there() {
        ensure!(since.elapsed() < PATIENCE, "not there after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
