//! DPDK beside us: a small C program, compiled when the bench begins, that measures when it is told to.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

use crate::clock;
use crate::stats::Measured;

const SOURCE: &str = include_str!("dpdk.c");

/// Pairs of alloc and free that one sample covers, here as there.
pub const BATCH: usize = 64;

/// The running program.
pub struct Dpdk {
    pub version: String,
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Dpdk {
    /// Compiles and starts it.
    pub fn start(core: usize) -> Result<Dpdk> {
        let flags = |what| pkg_config(&[what, "libdpdk"]);
        let version = flags("--modversion").context("no libdpdk: apt-get install libdpdk-dev")?;
        let (cflags, libs) = (flags("--cflags")?, flags("--libs")?);
        let folder = std::env::temp_dir().join(format!("tranship-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let started = build(&folder, &cflags, &libs).and_then(|program| {
            Command::new(program)
                .args(["-l", &core.to_string()])
                .args("--no-huge --no-shconf --no-pci --no-telemetry -m 256".split(' '))
                .args(["--log-level", "error"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("starting the DPDK program")
        });
        let mut child = started.inspect_err(|_| _ = std::fs::remove_dir_all(&folder))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("the DPDK program's pipes")?;
        let mut stdout = BufReader::new(stdout);
        let greeting = loop {
            let mut line = String::new();
            if stdout.read_line(&mut line)? == 0 || line.trim() == "ready" {
                break line;
            }
        };
        let _ = std::fs::remove_dir_all(&folder);
        ensure!(!greeting.is_empty(), "the DPDK program did not start");
        Ok(Dpdk {
            version,
            child,
            pipes: Mutex::new((stdin, stdout)),
        })
    }

    /// One run.
    pub fn measure(&self, what: &str, distinct: usize, sample_ms: u64) -> Result<Vec<Measured>> {
        let mut pipes = self.pipes.lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
        writeln!(pipes.0, "{what} {distinct} {sample_ms}")?;
        let mut line = String::new();
        pipes.1.read_line(&mut line)?;
        let fields = line.split_whitespace().flat_map(str::parse::<u64>);
        let fields: Vec<u64> = fields.collect();
        let [median, p99, samples, all] = fields[..] else {
            bail!("the DPDK program said {line:?}");
        };
        let batch = BATCH as f64;
        Ok(vec![Measured {
            median_ns: clock::ns(median) / batch,
            p99_ns: clock::ns(p99) / batch,
            per_second: 1e9 * batch * samples as f64 / clock::ns(all),
            ..Measured::default()
        }])
    }
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pkg_config(arguments: &[&str]) -> Result<String> {
    let output = Command::new("pkg-config").args(arguments).output();
    let output = output.context("running pkg-config")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pkg-config: {}", error.trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn build(folder: &Path, cflags: &str, libs: &str) -> Result<std::path::PathBuf> {
    let (source, program) = (folder.join("dpdk.c"), folder.join("dpdk"));
    std::fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-O3", "-march=native"])
        .args(cflags.split_whitespace())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(libs.split_whitespace())
        .output()
        .context("running cc")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc: {}", error.trim());
    Ok(program)
}
