//! `top`: what looking costs. A hundred domains with a thousand channels, over which messages go all the time; the manager's and `tranship top`'s share of a
//! processor, and what an alloc, send, receive and release costs in processor time, with and without somebody who looks, in turns.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tranship_core::{Buffer, ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender};
use tranship_sys::process;
use tranship_testkit::resource::{self, Scheduled};

use crate::options::Common;
use crate::plan::Outcome;
use crate::report::{Key, Row};
use crate::stats::{Facts, Measured, median};

const DOMAINS: usize = 100;
/// From each.
const CHANNELS: usize = 10;
const CHUNK: u64 = 64 << 10;
/// Threads that send and receive, and how often each sends over all of its channels.
const HANDS: usize = 2;
const TICK: Duration = Duration::from_millis(20);
/// What looking may take of a core, of a hundred.
const MOST: f64 = 2.0;
/// Round trips in one sample of the fast path.
const BATCH: u32 = 1000;

/// Who looks.
const LOOKERS: [(&str, &[&str]); 3] = [
    ("nobody", &[]),
    ("default", &["--batch"]),
    ("four-a-second", &["--batch", "--every", "250ms"]),
];

/// A process that does not outlive this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program beside this one, unless another is named.
fn find(program: Option<&Path>) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("tranship"));
    match program.map(Path::to_owned).or_else(beside) {
        Some(program) if program.exists() => Ok(program),
        other => bail!(
            "no program {other:?}: build it (cargo build --release -p tranship-cli), or name it by --program"
        ),
    }
}

struct Way {
    sender: Sender,
    receiver: Receiver,
    /// What the receiver keeps.
    _held: Option<Buffer>,
}

/// Domains, their channels, and a pool with a channel whose ends are both this thread's.
struct Crowd {
    _domains: Vec<Domain>,
    pools: Vec<Pool>,
    ways: Vec<Way>,
}

fn link(from: &Domain, to: &Domain, name: &str) -> Result<(Sender, Receiver)> {
    let options = || ChannelOptions::new().lines(64);
    let listener = from.listen_with::<Sender>(name, options())?;
    std::thread::scope(|s| {
        let receiver = s.spawn(|| to.open_with::<Receiver>(name, options()));
        let sender = listener.accept()?;
        let receiver = receiver.join();
        Ok((sender, receiver.ok().context("a thread ended")??))
    })
}

/// A first buffer: the pool is assigned, and the receiver holds something of it.
fn first(pool: &Pool, sender: &mut Sender, receiver: &mut Receiver) -> Result<Option<Buffer>> {
    let buf = pool.alloc(64)?.freeze();
    std::thread::scope(|s| {
        let taken = s.spawn(|| receiver.recv());
        sender.send(buf).map_err(|e| e.error)?;
        let message = taken.join().ok().context("a thread ended")??;
        Ok(message.into_buffer())
    })
}

impl Crowd {
    fn new(socket: &Path) -> Result<Crowd> {
        let join = |i: usize| {
            let builder = Domain::builder().name(&format!("domain {i}"));
            builder.socket(socket).connect()
        };
        let domains = (0..DOMAINS).map(join).collect::<Result<Vec<_>, _>>()?;
        let pool = |(i, domain): (usize, &Domain)| {
            let options = PoolOptions::new(4 * CHUNK).chunk_bytes(CHUNK);
            domain.create_pool(options.name(&format!("pool {i}")))
        };
        let pools = domains.iter().enumerate().map(pool);
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        let mut ways = Vec::new();
        for (i, from) in domains.iter().enumerate() {
            for k in 1..=CHANNELS {
                let to = &domains[(i + k) % DOMAINS];
                let (mut sender, mut receiver) = link(from, to, &format!("channel {i}/{k}"))?;
                let held = first(&pools[i], &mut sender, &mut receiver)?;
                ways.push(Way {
                    sender,
                    receiver,
                    _held: held,
                });
            }
        }
        Ok(Crowd {
            _domains: domains,
            pools,
            ways,
        })
    }
}

/// Sends over all of its channels and receives, tick by tick.
fn work(ways: &mut [Way], over: &AtomicBool) -> Result<()> {
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        for way in &mut *ways {
            way.sender.send_inline(b"tick", 0).map_err(|e| e.error)?;
            drop(way.receiver.recv()?);
        }
        next = (next + TICK).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// What an alloc, send, receive and release takes of a processor, both ends in this thread: nobody waits for anybody.
fn pass(pool: &Pool, way: &mut Way, time: Duration) -> Result<Measured> {
    let begun = process::thread_time();
    let mut samples = Vec::new();
    loop {
        let before = process::thread_time();
        for _ in 0..BATCH {
            let buf = pool.alloc(64)?.freeze();
            way.sender.send(buf).map_err(|e| e.error)?;
            drop(way.receiver.recv()?);
        }
        let now = process::thread_time();
        samples.push((now - before).as_secs_f64() * 1e9 / f64::from(BATCH));
        if now - begun >= time {
            break;
        }
    }
    samples.sort_by(f64::total_cmp);
    let at = |part: usize| samples.get(samples.len() * part / 100).copied();
    Ok(Measured {
        op: PASS.to_owned(),
        median_ns: median(samples.iter().copied()),
        p99_ns: at(99).unwrap_or(0.0),
        per_second: 1e9 / median(samples.iter().copied()),
        facts: Facts::new(),
        sampled: None,
    })
}

const PASS: &str = "alloc, send, receive, release";

#[derive(Default)]
struct Seen {
    top: Vec<f64>,
    manager: Vec<f64>,
    passes: Vec<Measured>,
}

pub fn bench(common: &Common, program: Option<&Path>) -> Result<Outcome> {
    let program = find(program)?;
    let _ = process::raise_nofile_soft_to_hard();
    let dir = tranship_testkit::folder()?;
    let socket = dir.path().join("manager.sock");
    let mut command = Command::new(&program);
    command.args(["manager", "--socket"]).arg(&socket);
    let manager = Running(command.stdin(Stdio::null()).spawn()?);
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut crowd = Crowd::new(&socket)?;
    let mut own = crowd.ways.pop().context("channels")?;
    // As it was the last one made, its source is the last domain.
    let pool = crowd.pools.last().context("pools")?.clone();
    let over = AtomicBool::new(false);
    let mut seen: Vec<Seen> = LOOKERS.iter().map(|_| Seen::default()).collect();
    let time = common.budget() * 100;
    std::thread::scope(|s| {
        let share = crowd.ways.len().div_ceil(HANDS);
        let hands: Vec<_> = crowd.ways.chunks_mut(share).collect();
        let hands = hands.into_iter().map(|ways| s.spawn(|| work(ways, &over)));
        let hands: Vec<_> = hands.collect();
        let measured = (0..common.runs()).try_for_each(|_| {
            let each = LOOKERS.iter().zip(&mut seen);
            each.into_iter().try_for_each(|((_, arguments), seen)| {
                let looker = look(&program, arguments, &socket)?;
                let of = |child: Option<&Running>| match child {
                    Some(child) => resource::scheduled(child.0.id()),
                    None => Ok(Scheduled::default()),
                };
                let (begun, before) = (Instant::now(), [of(looker.as_ref())?, of(Some(&manager))?]);
                seen.passes.push(pass(&pool, &mut own, time / 10)?);
                std::thread::sleep(time.saturating_sub(begun.elapsed()));
                let after = [of(looker.as_ref())?, of(Some(&manager))?];
                let took = begun.elapsed().as_secs_f64();
                let percent =
                    |i: usize| 100.0 * after[i].since(&before[i]).ran.as_secs_f64() / took;
                seen.top.push(percent(0));
                seen.manager.push(percent(1));
                anyhow::Ok(())
            })
        });
        over.store(true, Ordering::Relaxed);
        for hand in hands {
            hand.join().ok().context("a thread ended")??;
        }
        measured
    })?;
    Ok(report(&seen))
}

/// Somebody who looks, and has found something to look at.
fn look(program: &Path, arguments: &[&str], socket: &Path) -> Result<Option<Running>> {
    if arguments.is_empty() {
        return Ok(None);
    }
    let mut command = Command::new(program);
    command
        .arg("top")
        .args(arguments)
        .arg("--socket")
        .arg(socket);
    let looker = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    // Its start is none of what it costs.
    std::thread::sleep(Duration::from_secs(1));
    Ok(Some(looker))
}

fn report(seen: &[Seen]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut alone = None;
    for ((mode, arguments), seen) in LOOKERS.iter().zip(seen) {
        let key = |op: &str| Key {
            mode,
            op: op.to_owned(),
            ..Key::default()
        };
        let (top, manager) = (
            median(seen.top.iter().copied()),
            median(seen.manager.iter().copied()),
        );
        let mut row = Row::of("tranship", key("processor"), &[]);
        (row.median_ns, row.p99_ns, row.per_second) = (0.0, 0.0, 0.0);
        row.facts.insert("top_ran_percent", top);
        row.facts.insert("manager_ran_percent", manager);
        outcome.rows.push(row);
        if *mode == "default" && top.max(manager) >= MOST {
            outcome.verdicts.push(format!(
                "looking takes {top:.2} % of a core for top and {manager:.2} % for the manager: less than {MOST} % each is wanted"
            ));
        }
        let mut row = Row::of("tranship", key(PASS), &seen.passes);
        if arguments.is_empty() {
            alone = Some(row.median_ns);
        } else if let Some(alone) = alone {
            row.facts.insert("against_nobody", row.median_ns / alone);
        }
        outcome.rows.push(row);
    }
    outcome
}
