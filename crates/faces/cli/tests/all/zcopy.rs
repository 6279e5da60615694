//! `tranship zcopy explain` of a cache server that runs, and of one that has ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tranship_testkit::Watchdog;

struct Served(Child, String);

impl Served {
    fn start(folder: Option<&Path>) -> Served {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
        if let Some(folder) = folder {
            command.env("TRANSHIP_ZCOPY_EXPLAIN", folder);
        }
        let mut program = command
            .args(["cache", "--listen", "127.0.0.1:0", "--threads", "1"])
            // No manager is there.
            .env("TRANSHIP_SOCKET", "/nowhere/manager.sock")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server");
        let mut line = String::new();
        let out = program.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address");
        Served(program, address.to_owned())
    }

    /// Asks for a long value a few times.
    fn use_it(&self) {
        let mut stream = TcpStream::connect(&self.1).expect("connect");
        let value = vec![b'x'; 100_000];
        stream.write_all(b"set k 0 0 100000\r\n").expect("write");
        stream.write_all(&value).expect("write");
        stream.write_all(b"\r\n").expect("write");
        stream
            .read_exact(&mut [0; b"STORED\r\n".len()])
            .expect("read");
        for _ in 0..20 {
            stream.write_all(b"get k\r\n").expect("write");
            let reply = b"VALUE k 0 100000\r\n".len() + 100_000 + b"\r\nEND\r\n".len();
            stream.read_exact(&mut vec![0; reply]).expect("read");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn explain(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command.args(["zcopy", "explain"]).args(args);
    command.output().expect("runs")
}

fn said(args: &[&str]) -> String {
    let output = explain(args);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problems}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn check_json(text: &str, pid: u32) {
    let all: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let programs = all["programs"].as_array().expect("a list");
    let ours = programs.iter().find(|program| program["pid"] == pid);
    let ours = ours.unwrap_or_else(|| panic!("{pid} is not there: {text}"));
    assert_eq!(ours["program"], "tranship");
    let counts = &ours["counts"];
    let bytes = |name: &str| counts[name].as_u64().expect("a number");
    assert!(bytes("referred_bytes") + bytes("copied_bytes") > 20 * 100_000);
    let choices = ours["choices"].as_array().expect("a list");
    let sends: u64 = choices
        .iter()
        .map(|choice| choice["sends"].as_u64().expect("a number"))
        .sum();
    assert_eq!(sends, bytes("sends"));
    assert!(
        choices.iter().all(|choice| choice["socket"] == "loopback"),
        "{text}"
    );
}

#[test]
fn a_server_that_runs_and_one_that_was_killed() {
    let _dog = Watchdog::new();
    let folder = tempfile::tempdir().expect("a folder");
    let server = Served::start(None);
    let kept = Served::start(Some(folder.path()));
    server.use_it();
    kept.use_it();
    let (pid, kept_pid) = (server.0.id(), kept.0.id());
    for pid in [pid, kept_pid] {
        let text = said(&[&pid.to_string()]);
        assert!(
            text.contains(&format!("tranship (process {pid}): ")),
            "{text}"
        );
        for part in ["Ways, and why", "Why bytes were copied", "loopback"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        check_json(&said(&["--json"]), pid);
    }
    // Killed, as nobody is asked.
    drop(server);
    drop(kept);
    let folder = folder.path().to_str().expect("UTF-8");
    check_json(&said(&[folder, "--json"]), kept_pid);
    let file = format!("{folder}/tranship.{kept_pid}.zcopy");
    assert!(said(&[&file]).contains("by reference"));
    let gone = explain(&[&pid.to_string()]);
    assert_eq!(gone.status.code(), Some(2));
    let text = String::from_utf8_lossy(&gone.stderr);
    assert!(text.contains(&format!("no process {pid}")), "{text}");
}

#[test]
fn what_has_no_counts_is_said() {
    let _dog = Watchdog::new();
    let empty = tempfile::tempdir().expect("a folder");
    let run = |what: &str| {
        let output = explain(&[what]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run(empty.path().to_str().expect("UTF-8")).contains("TRANSHIP_ZCOPY_EXPLAIN"));
    let own = std::process::id();
    assert!(run(&own.to_string()).contains("has sent nothing by ZCopy"));
    assert!(run("/etc/hostname").contains("no page of ZCopy"));
    assert!(run("/no/such/file").contains("cannot be read"));
}
