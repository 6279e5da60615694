//! The program `tranship` as tests run it.

use crate::artifact::program;
use crate::{Peer, Running, Said, Watchdog, folder, start_manager};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Returns a command of the program. The command finds no manager by its environment, and has no input.
pub fn tranship(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null());
    for name in ["RUST_LOG", "TRANSHIP_SOCKET"] {
        command.env_remove(name);
    }
    command
}

/// A program whose output is read line by line.
#[derive(Debug)]
pub struct Lines {
    /// The program.
    pub program: Running,
    out: BufReader<ChildStdout>,
}

impl Lines {
    /// Starts a program.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn of(command: &mut Command) -> Lines {
        Running::start(command.stdout(Stdio::piped())).into()
    }

    /// Returns the next line; an empty one at the end.
    ///
    /// # Panics
    /// If the output cannot be read.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

/// Of a program whose standard output is a pipe.
impl From<Running> for Lines {
    fn from(mut program: Running) -> Lines {
        let out = BufReader::new(program.0.stdout.take().expect("its output"));
        Lines { program, out }
    }
}

/// A folder with a manager in it, under a watchdog.
#[derive(Debug)]
pub struct Home {
    /// The manager.
    pub manager: Peer,
    /// The folder.
    pub dir: TempDir,
    /// Dropped last.
    pub dog: Watchdog,
}

impl Home {
    /// Starts a manager with this configuration, in TOML.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn new(config: &str) -> Home {
        Home::within(folder().expect("a folder"), config)
    }

    /// Starts a manager in this folder.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn within(dir: TempDir, config: &str) -> Home {
        let dog = Watchdog::new();
        let manager = start_manager(&dir.path().join("m.sock"), config);
        Home { manager, dir, dog }
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path of the manager's socket.
    pub fn socket(&self) -> PathBuf {
        self.path("m.sock")
    }

    /// Returns a command of the program in this folder, for this manager.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tranship(arguments);
        command.current_dir(self.dir.path());
        command.env("TRANSHIP_SOCKET", self.socket());
        command
    }

    /// Runs a command of the program to its end, whose arguments are the words of a line.
    #[track_caller]
    pub fn says(&self, line: &str) -> Said {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs a command of the program to its end.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> Said {
        Said::of(&mut self.command(arguments))
    }
}
