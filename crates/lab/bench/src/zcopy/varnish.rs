//! `zc-varnish`: Debian's Varnish (`-s malloc`), unmodified, as it is (`stock`) and with `libtranship_zcopy.so` before the
//! other libraries (`preload`). Objects that it has, asked for by wrk; Varnish has the first core, wrk the second. The
//! paper's figure 10, and on from there. `hot`: one object; `cold`: objects of 512 MiB, at most 16384, at random.

use super::cache::{cpu_of, on_cores};
use super::pairs::Ratio;
use crate::bench::Bench;
use crate::options::{Common, size};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, bytes};
use crate::stats::Measured;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Systems that can be named.
const SYSTEMS: [&str; 2] = ["preload", "stock"];
const LIBRARY: &str = "libtranship_zcopy.so";
/// Varnish first compiles its rules with a C compiler.
const PATIENCE: Duration = Duration::from_secs(300);
const CONNECTIONS: &str = "16";
const CPU: &str = "server_cpu_ns";
/// Of a cold set: more than any cache holds, and at most so many objects.
const SET: usize = 512 << 20;
const OBJECTS: usize = 16384;

/// The object that is asked for: one, or one of many, at random.
const MODES: [&str; 2] = ["hot", "cold"];

fn objects(mode: &str, value: usize) -> usize {
    match mode {
        "hot" => 1,
        _ => (SET / value).clamp(2, OBJECTS),
    }
}

#[derive(Debug, clap::Args)]
pub struct Varnish {
    /// Whether one object is asked for, or one of many [default: both].
    #[arg(long, value_delimiter = ',', value_parser = MODES)]
    mode: Vec<String>,
    /// Bytes of an object.
    #[arg(long, value_delimiter = ',', value_parser = size,
        default_values = ["1K", "2K", "4K", "6K", "8K", "16K", "64K", "256K"])]
    payload: Vec<usize>,
}

impl Bench for Varnish {
    const REFERENCES: &'static [&'static str] = &["stock"];

    fn systems(&self) -> Vec<&'static str> {
        SYSTEMS.to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        Ok(measure(common, &self.mode, &self.payload))
    }
}

fn measure(common: &Common, modes: &[String], payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    let started = missing().and_then(|()| started(common));
    let (_origin, servers) = match started {
        Ok(started) => started,
        Err(error) => {
            eprintln!("SKIPPED: zc-varnish: {error:#}");
            return outcome;
        }
    };
    let payloads = common.some_of(payloads);
    let each = |mode| payloads.iter().map(move |value| (mode, *value));
    let modes = MODES.iter().filter(|mode| common.is_named(modes, mode));
    for (&mode, value) in modes.flat_map(each) {
        let first = outcome.rows.len();
        let cells = servers.iter().map(|varnish| {
            let key = Key::of(mode).payload(value);
            Cell::of(varnish.system, key, move |_| {
                varnish.run(common, mode, value)
            })
        });
        outcome.group(common.runs_or(9), cells.collect());
        let rows = &outcome.rows[first..];
        let Some(stock) = rows.iter().find(|row| row.system == "stock") else {
            continue;
        };
        let cost = |run: &Measured| run.facts.get(CPU).copied().unwrap_or(f64::NAN);
        for row in rows.iter().filter(|row| row.system != "stock") {
            let what = format!("{}, {mode}, {} over stock", bytes(value), row.system);
            let rate = Ratio::of(row, stock, |run| run.per_second).map(|it| it.text());
            let cost = Ratio::of(stock, row, cost).map(|it| it.text());
            if let (Some(rate), Some(cost)) = (rate, cost) {
                let line = format!("{what}: rate {rate}, for the same processor time {cost}");
                outcome.verdicts.push(line);
            }
        }
    }
    outcome
}

/// Fails if a program is missing.
fn missing() -> Result<()> {
    for (program, word, package) in [("varnishd", "-V", "varnish"), ("wrk", "-v", "wrk")] {
        let mut command = Command::new(program);
        command
            .arg(word)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let is_there = command.status().is_ok();
        ensure!(is_there, "no {program}: apt-get install {package}");
    }
    Ok(())
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // Varnish's manager ends the process that serves.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

struct Running {
    system: &'static str,
    manager: Ended,
    port: u16,
    _folder: tempfile::TempDir,
}

fn started(common: &Common) -> Result<(Ended, Vec<Running>)> {
    let exe = std::env::current_exe()?;
    let library = exe.parent().context("no folder")?.join(LIBRARY);
    ensure!(
        library.is_file(),
        "no {}: cargo build --release -p tranship-zcopy-preload",
        library.display()
    );
    let mut origin = Command::new(exe);
    origin
        .args(["child", "zc-origin", ""])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    on_cores(&mut origin, &common.cores()[..1]);
    let mut origin = Ended(origin.spawn()?);
    let mut line = String::new();
    BufReader::new(origin.0.stdout.take().context("no output")?).read_line(&mut line)?;
    let port: u16 = line.trim().parse()?;
    let wanted = SYSTEMS.into_iter().filter(|name| common.wants(name));
    let all = wanted.map(|system| Running::start(common, system, &library, port));
    Ok((origin, all.collect::<Result<_>>()?))
}

impl Running {
    fn start(
        common: &Common,
        system: &'static str,
        library: &Path,
        origin: u16,
    ) -> Result<Running> {
        let folder = tempfile::tempdir()?;
        let free = TcpListener::bind("127.0.0.1:0")?;
        let port = free.local_addr()?.port();
        drop(free);
        let mut command = Command::new("varnishd");
        command
            .args("-F -j none -p thread_pools=1 -s malloc,4g".split(' '))
            .args(["-a", &format!("127.0.0.1:{port}")])
            .args(["-b", &format!("127.0.0.1:{origin}")])
            .arg("-n")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if system != "stock" {
            command.env("LD_PRELOAD", library);
        }
        on_cores(&mut command, &common.cores()[..1]);
        let mut varnish = Running {
            system,
            manager: Ended(command.spawn()?),
            port,
            _folder: folder,
        };
        let begun = Instant::now();
        // It listens when it has compiled its rules.
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = varnish.manager.0.try_wait()? {
                anyhow::bail!("varnishd: {status}");
            }
            ensure!(begun.elapsed() < PATIENCE, "varnishd does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(varnish)
    }

    /// The process that serves: its manager's child.
    fn server(&self) -> Result<u32> {
        let pid = self.manager.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let first = children.split_whitespace().next();
        Ok(first.context("varnishd serves nobody")?.parse()?)
    }

    fn run(&self, common: &Common, mode: &str, value: usize) -> Result<Vec<Measured>> {
        self.fetch(mode, value)?;
        // On a machine with other work nobody may have been served in a second.
        for seconds in [1, 10, 60] {
            if let Some(measured) = self.load(common, mode, value, seconds)? {
                return Ok(vec![measured]);
            }
        }
        anyhow::bail!("wrk got no answer in a minute")
    }

    /// None if nobody was served.
    fn load(
        &self,
        common: &Common,
        mode: &str,
        value: usize,
        seconds: u32,
    ) -> Result<Option<Measured>> {
        let url = format!("http://127.0.0.1:{}/{value}/0", self.port);
        let mut command = Command::new("wrk");
        let folder = tempfile::tempdir()?;
        // Connections that Varnish closed while nobody was let run are made anew.
        command.args(["-t", "1", "-c", CONNECTIONS, "--timeout", "60s", "-d"]);
        command.arg(format!("{seconds}s"));
        if mode == "cold" {
            let last = objects(mode, value) - 1;
            let script = format!(
                "request = function() return wrk.format('GET', '/{value}/' .. math.random(0, {last})) end"
            );
            let path = folder.path().join("random.lua");
            std::fs::write(&path, script)?;
            command.arg("-s").arg(path);
        }
        command.arg(&url).stdin(Stdio::null());
        on_cores(&mut command, &common.cores()[1..]);
        let server = self.server()?;
        let before = cpu_of(server)?;
        let begun = Instant::now();
        let output = command.output()?;
        let time = begun.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success() && !said.contains("Non-2xx"),
            "wrk: {said}"
        );
        let rate = rate(&said).with_context(|| format!("wrk said no rate: {said}"))?;
        let cpu = cpu_of(server)? - before;
        let cost = cpu as f64 / (rate * time);
        Ok((rate > 0.0).then(|| Measured {
            facts: [(CPU.into(), cost)].into(),
            ..Measured::rate(rate)
        }))
    }

    /// Has it have its objects, and looks at what it gives out.
    fn fetch(&self, mode: &str, value: usize) -> Result<()> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port))?);
        let mut body = vec![0; value];
        for number in 0..objects(mode, value) {
            let request = format!(
                "GET /{value}/{number} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
                self.port
            );
            stream.get_mut().write_all(request.as_bytes())?;
            let mut line = String::new();
            while stream.read_line(&mut line)? > 2 {}
            ensure!(line.starts_with("HTTP/1.1 200 "), "Varnish said {line}");
            stream.read_exact(&mut body)?;
            let is_it = body.iter().all(|byte| *byte == letter(value));
            ensure!(is_it, "Varnish gave other bytes for /{value}/{number}");
        }
        Ok(())
    }
}

fn letter(value: usize) -> u8 {
    b'a' + u8::try_from(value / 1024 % 26).expect("small")
}

/// The rate that wrk says.
fn rate(said: &str) -> Option<f64> {
    let rest = said.split_once("Requests/sec:")?.1;
    rest.split_whitespace().next()?.parse().ok()
}

/// The process whose objects Varnish keeps: `/SIZE/NUMBER`.
pub fn origin() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    std::io::stdout().flush()?;
    for stream in listener.incoming() {
        // A fault of one client does not affect the others.
        let _ = stream.map_err(anyhow::Error::from).and_then(serve);
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    reader.read_line(&mut line)?;
    let size = line.split(['/', ' ']).find_map(|word| word.parse().ok());
    let size: usize = size.context("no size")?;
    while reader.read_line(&mut line)? > 2 {}
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nCache-Control: max-age=36000\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(&vec![letter(size); size])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rate_is_found() {
        let wrk = "  1 threads\nRequests/sec:  51234.5\nTransfer/sec: 1MB\n";
        assert_eq!(super::rate(wrk), Some(51234.5));
        assert_eq!(super::rate("none"), None);
    }
}
