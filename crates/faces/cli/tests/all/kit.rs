//! Parts that several of these tests use.

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use tranship::manager::Config;
use tranship::{Domain, Pool, PoolOptions};
use tranship_testkit::{Lines, folder, skipped, tranship};

pub const MIB: u64 = 1 << 20;

/// Makes a folder, and returns it with a path for a manager's socket in it.
pub fn place() -> (TempDir, PathBuf) {
    let dir = folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    (dir, socket)
}

/// Makes a domain of this process that has the manager in it, with this configuration.
pub fn embedded(name: &str, socket: &Path, config: &str) -> Domain {
    let mut builder = Domain::builder().name(name).socket(socket);
    if !config.is_empty() {
        builder = builder.config(Config::parse(config).expect("a configuration"));
    }
    builder.helper_thread(true).embedded().expect("embedded")
}

/// Makes a domain of this process.
pub fn joined(name: &str, socket: &Path) -> Domain {
    let builder = Domain::builder().name(name).socket(socket);
    builder.helper_thread(true).connect().expect("a domain")
}

pub fn pool(domain: &Domain, name: &str, most: u64, chunk: u64) -> Pool {
    let options = PoolOptions::new(most).chunk_bytes(chunk).name(name);
    domain.create_pool(options).expect("a pool")
}

/// Returns whether a manager of the system runs, which programs would find. Reports the skip then.
pub fn has_manager() -> bool {
    let there = Path::new("/run/tranship/manager.sock").exists();
    if there {
        skipped("a manager of the system runs here");
    }
    there
}

/// Copies the program. Another process copies the file: a child that another thread of this one starts would have it
/// open for writing, and then no process could run it.
pub fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    let copied = copy.arg(env!("CARGO_BIN_EXE_tranship")).arg(to).status();
    assert!(copied.expect("cp").success());
}

/// Opens a terminal: the side of those who look at it, and that of programs.
pub fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let outside = openpt(flags).expect("a terminal");
    grantpt(&outside).expect("it");
    unlockpt(&outside).expect("it");
    let name = ptsname(&outside, Vec::new()).expect("its name");
    // Not this process's own terminal, whose end would be its own.
    let mut inside = File::options();
    inside.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let inside = inside.open(name.to_str().expect("text"));
    (outside.into(), inside.expect("its other side"))
}

/// Path where no manager is: a manager that the test does not start does not admit the memory of a cache.
pub const NO_MANAGER: &str = "/nowhere/manager.sock";

/// Returns a command that starts a cache server. No manager is there, if none is named.
pub fn cache(arguments: &[&str]) -> Command {
    let mut command = tranship(&["cache", "--listen", "127.0.0.1:0"]);
    command.args(arguments).env("TRANSHIP_SOCKET", NO_MANAGER);
    command
}

/// A cache server, and the address that it names in its first line.
pub struct Served {
    pub lines: Lines,
    pub address: String,
}

impl From<Lines> for Served {
    fn from(mut lines: Lines) -> Served {
        let line = lines.line();
        let address = line.rsplit(' ').next().expect("an address").to_owned();
        Served { lines, address }
    }
}

impl Served {
    pub fn start(arguments: &[&str]) -> Served {
        Lines::of(&mut cache(arguments)).into()
    }

    /// Returns its next line.
    pub fn line(&mut self) -> String {
        self.lines.line()
    }

    pub fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("a port")
    }

    pub fn client(&self) -> BufReader<TcpStream> {
        BufReader::new(TcpStream::connect(&self.address).expect("connect"))
    }
}

/// Says something to a cache server. Returns the first line of its answer.
pub fn say(client: &mut BufReader<TcpStream>, text: &[u8]) -> String {
    client.get_mut().write_all(text).expect("write");
    let mut line = String::new();
    client.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}
