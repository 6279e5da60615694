//! Managers, and requests to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tranship_testkit::{Running, tranship};

/// A manager with a folder of its own.
pub struct Manager {
    pub process: Running,
    pub socket: PathBuf,
    pub dir: TempDir,
}

impl Manager {
    /// Starts one that serves.
    pub fn start(arguments: &[&str]) -> Manager {
        let dir = tranship_testkit::folder().expect("a folder");
        let socket = dir.path().join("m.sock");
        let process = start_at(&socket, arguments);
        Manager {
            process,
            socket,
            dir,
        }
    }

    pub fn figures(&self) -> PathBuf {
        self.socket.with_added_extension("metrics")
    }
}

/// The log says when it serves.
pub fn start_at(socket: &Path, arguments: &[&str]) -> Running {
    let mut command = tranship(&["-v", "manager", "--socket"]);
    command.arg(socket).args(arguments);
    let mut child = Running::start(command.stderr(Stdio::piped()));
    said(child.0.stderr.take().expect("a pipe"), "the manager serves");
    child
}

/// Starts a command and waits for words on its standard output.
pub fn start_saying(mut command: Command, words: &str) -> (Running, String) {
    let mut child = Running::start(command.stdout(Stdio::piped()));
    let out = child.0.stdout.take().expect("a pipe");
    (child, said(out, words))
}

fn said(from: impl Read + Send + 'static, words: &str) -> String {
    let mut log = BufReader::new(from);
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let n = log.read_line(&mut line).expect("the log");
        said.push_str(&line);
        assert!(n > 0, "it ended: {said}");
        if line.contains(words) {
            // The program must be able to print more.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return line;
        }
    }
}

pub fn get(mut stream: impl Read + Write, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("asking");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    let (head, body) = all
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{all:?}"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}

pub fn get_unix(path: &Path, target: &str) -> String {
    get(UnixStream::connect(path).expect("connecting"), target)
}

pub fn get_tcp(port: u16, target: &str) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    get(TcpStream::connect(address).expect("connecting"), target)
}
