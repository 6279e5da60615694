//! `block`: the block service's NBD exports against `nbdkit` (its file plugin) and `qemu-nbd`: the same image, the same client,
//! over Unix sockets. With the page cache, the image in it: what the servers cost; and without, as far as they can.
//!
//! `proxy` is a proxy without a cache, one hop over shared memory before the server.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::Samples;

/// What can be named.
pub const SYSTEMS: [&str; 4] = ["tranship", "tranship-proxy", "nbdkit", "qemu-nbd"];
/// Bytes of the image.
const SIZE: u64 = 256 << 20;
/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way of asking.
#[derive(Clone, Copy)]
struct Work {
    mode: [&'static str; 2],
    write: bool,
    random: bool,
    bytes: usize,
    depth: usize,
}

const WORKS: [Work; 5] = [
    Work {
        mode: [
            "random read, one at a time",
            "direct: random read, one at a time",
        ],
        write: false,
        random: true,
        bytes: 4096,
        depth: 1,
    },
    Work {
        mode: [
            "random read, 16 at a time",
            "direct: random read, 16 at a time",
        ],
        write: false,
        random: true,
        bytes: 4096,
        depth: 16,
    },
    Work {
        mode: [
            "sequential read, 4 at a time",
            "direct: sequential read, 4 at a time",
        ],
        write: false,
        random: false,
        bytes: 256 << 10,
        depth: 4,
    },
    Work {
        mode: [
            "random write, 16 at a time",
            "direct: random write, 16 at a time",
        ],
        write: true,
        random: true,
        bytes: 4096,
        depth: 16,
    },
    Work {
        mode: [
            "sequential write, 4 at a time",
            "direct: sequential write, 4 at a time",
        ],
        write: true,
        random: false,
        bytes: 256 << 10,
        depth: 4,
    },
];

/// Processes that end with the bench.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn bench(common: &Common) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let here = std::env::current_exe()?;
    let folder = here.parent().context("where is this program?")?.to_owned();
    let dir = folder.join(format!("block-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let done = groups(common, &dir, &folder.join("tranship"), &mut outcome);
    let _ = std::fs::remove_dir_all(&dir);
    done.map(|()| outcome)
}

fn groups(common: &Common, dir: &Path, tranship: &Path, outcome: &mut Outcome) -> Result<()> {
    ensure!(
        tranship.exists(),
        "no {}: build it with `cargo build --release -p tranship-cli`",
        tranship.display()
    );
    image(&dir.join("image"))?;
    for (direct, work) in [false, true]
        .into_iter()
        .flat_map(|d| WORKS.map(|w| (d, w)))
    {
        let mut cells = Vec::new();
        for system in SYSTEMS {
            // nbdkit's file plugin always goes through the page cache.
            if !common.wants(system) || direct && system == "nbdkit" {
                continue;
            }
            if let Some(missing) = missing(system) {
                eprintln!("SKIPPED: {system}: no {missing} here; scripts/deps.sh installs it");
                continue;
            }
            let key = Key {
                mode: work.mode[usize::from(direct)],
                payload_bytes: Some(work.bytes),
                ..Key::default()
            };
            cells.push(Cell {
                system,
                key,
                measure: Box::new(move |run| {
                    let socket = dir.join(format!("s{run}"));
                    let _running = start(system, tranship, dir, &socket, direct)?;
                    let budget = common.budget().max(Duration::from_millis(20));
                    measure(&mut connect(&socket)?, work, budget)
                }),
            });
        }
        outcome.group(common.runs(), cells);
    }
    Ok(())
}

fn missing(system: &str) -> Option<&str> {
    let program = match system {
        "nbdkit" | "qemu-nbd" => system,
        _ => return None,
    };
    let asked = Command::new(program).arg("--version").output();
    asked.is_err().then_some(program)
}

/// Real bytes, on the disk.
fn image(path: &Path) -> Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut piece = vec![0u8; 1 << 20];
    for number in 0..SIZE >> 20 {
        for (word, at) in piece.chunks_exact_mut(8).zip(0u64..) {
            let mixed = (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        file.write_all(&piece)?;
    }
    Ok(file.sync_all()?)
}

fn start(
    system: &str,
    tranship: &Path,
    dir: &Path,
    socket: &Path,
    direct: bool,
) -> Result<Running> {
    let mut running = Running(Vec::new());
    let mut run = |program: &Path, arguments: &[&str]| -> Result<()> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.env("TRANSHIP_SOCKET", dir.join("manager"));
        let child = command.spawn();
        running
            .0
            .push(child.with_context(|| format!("starting {}", program.display()))?);
        Ok(())
    };
    let at = format!("unix:{}", socket.display());
    let plain = socket.display().to_string();
    let access = if direct { "direct" } else { "buffered" };
    match system {
        "tranship" => {
            let local = format!("local:{}", std::process::id());
            run(
                tranship,
                &[
                    "block", "serve", &local, "image", "--access", access, "--nbd", &at,
                ],
            )?;
        }
        "tranship-proxy" => {
            run(tranship, &["manager", "--socket", "manager"])?;
            wait(|| {
                let mut stat = Command::new(tranship);
                stat.args(["stat", "--socket", "manager"]).current_dir(dir);
                let stat = stat.stdout(Stdio::null()).stderr(Stdio::null()).status();
                stat.is_ok_and(|status| status.success())
            })?;
            let served = format!("unix:{plain}x");
            run(
                tranship,
                &[
                    "block",
                    "serve",
                    "shm:bench",
                    "image",
                    "--access",
                    access,
                    "--nbd",
                    &served,
                ],
            )?;
            wait(|| Path::new(&format!("{plain}x")).exists())?;
            run(
                tranship,
                &[
                    "block",
                    "proxy",
                    "--server",
                    "shm:bench",
                    "--cache",
                    "0",
                    "--nbd",
                    &at,
                ],
            )?;
        }
        "nbdkit" => run(Path::new("nbdkit"), &["-f", "-U", &plain, "file", "image"])?,
        "qemu-nbd" => {
            let cache = if direct {
                "--cache=none"
            } else {
                "--cache=writeback"
            };
            let how = if direct {
                "--aio=native"
            } else {
                "--aio=threads"
            };
            run(
                Path::new("qemu-nbd"),
                &[
                    "-k", &plain, "-f", "raw", "-t", "-e", "4", cache, how, "image",
                ],
            )?;
        }
        other => bail!("no system {other}"),
    }
    Ok(running)
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

/// The oldest handshake, which all know.
fn connect(socket: &PathBuf) -> Result<UnixStream> {
    let mut stream = None;
    wait(|| {
        stream = UnixStream::connect(socket).ok();
        stream.is_some()
    })?;
    let mut stream = stream.context("connected")?;
    stream.read_exact(&mut [0; 18])?;
    // Fixed newstyle, no zeroes; the default export.
    stream.write_all(&3u32.to_be_bytes())?;
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
    let mut size = [0; 10];
    stream.read_exact(&mut size)?;
    ensure!(size[..8] == SIZE.to_be_bytes(), "a wrong size");
    Ok(stream)
}

fn measure(
    stream: &mut UnixStream,
    work: Work,
    budget: Duration,
) -> Result<Vec<crate::stats::Measured>> {
    // As much as fits into the memory of the page cache was written by `image`; one pass to settle.
    let mut samples = Samples::new(1 << 20, 1);
    let mut begun = vec![0u64; work.depth];
    let mut message = vec![0x5a; 28 + if work.write { work.bytes } else { 0 }];
    let mut bytes = vec![0; work.bytes];
    let count = SIZE / work.bytes as u64;
    let mut asked = 0u64;
    let mut ask = |stream: &mut UnixStream, slot: u64, begun: &mut [u64]| -> Result<()> {
        let mixed = asked.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let block = if work.random {
            mixed % count
        } else {
            asked % count
        };
        asked += 1;
        message[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        message[4..8].copy_from_slice(&u32::from(work.write).to_be_bytes());
        message[8..16].copy_from_slice(&slot.to_be_bytes());
        message[16..24].copy_from_slice(&(block * work.bytes as u64).to_be_bytes());
        message[24..28].copy_from_slice(&u32::try_from(work.bytes)?.to_be_bytes());
        begun[usize::try_from(slot)?] = clock::ticks();
        Ok(stream.write_all(&message)?)
    };
    for slot in 0..work.depth as u64 {
        ask(stream, slot, &mut begun)?;
    }
    let (since, mut under_way, mut taken) = (Instant::now(), work.depth, 0u64);
    let mut enough = true;
    while under_way > 0 {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        ensure!(
            head[..8] == [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0],
            "an error, or no reply"
        );
        if !work.write {
            stream.read_exact(&mut bytes)?;
        }
        let slot = u64::from_be_bytes(*head.last_chunk().context("eight bytes")?);
        let from = begun
            .get(usize::try_from(slot)?)
            .context("no such request")?;
        enough &= samples.push(clock::ticks() - from);
        taken += 1;
        match enough && since.elapsed() < budget {
            true => ask(stream, slot, &mut begun)?,
            false => under_way -= 1,
        }
    }
    let seconds = since.elapsed().as_secs_f64();
    let mut measured = samples
        .finish("")
        .ok_or(ErrorKind::UnexpectedEof)
        .map_err(std::io::Error::from)?;
    measured.per_second = taken as f64 / seconds;
    let rate = measured.per_second * work.bytes as f64 / f64::from(1 << 20);
    measured.facts.insert("mib_per_second", rate);
    Ok(vec![measured])
}
