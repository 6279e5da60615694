//! `zc-udp`: values by UDP into a device that drops what it has sent, as a card does that has put it on the wire: an ifb device in a
//! network namespace of the run's own. Several datagrams go to the kernel in one call.
//!
//! `sends` is a call for each datagram, `gso-copy` copies many in one, `gso-zerocopy` refers to their pages, `registered` to pages that
//! io_uring was told of before, `tranship` chooses.
//! `memcached` is the answer to a multi-get, as the cache server says it: before each value eight bytes and its line, behind it the line's end.
//! A row's time is that of one datagram. What chooses is measured when its choice is settled: pages are registered by a thread that here shares the
//! sender's processor, after a thousand calls. A row says how long that took.

use super::pairs::Ratio;
use super::{HOT, wanted};
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member};
use crate::plan::{Cell, Outcome};
use crate::report::{Key, Row, bytes};
use crate::stats::{Facts, Measured, Samples};
use anyhow::{Context, Result, ensure};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tranship_zcopy::{Arena, Piece, Sender, Socket, Way};

/// What can be named.
pub const SYSTEMS: [&str; 5] = [
    "tranship",
    "registered",
    "gso-zerocopy",
    "gso-copy",
    "sends",
];
/// What is around a value.
pub const FRAMES: [&str; 2] = ["bare", "memcached"];
/// Datagrams offered at once.
const AT_ONCE: usize = 48;
/// Calls without a change after which a choice is taken for settled: several times as many as come before pages are registered.
const SETTLED: u32 = 8000;
/// It is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a run says of that: the time from its first call until it was measured, ns.
const WARM: &str = "settled_after_ns";

/// What to vary.
#[derive(Debug)]
pub struct Grid<'a> {
    pub modes: &'a [String],
    pub frames: &'a [String],
    pub payloads: &'a [usize],
    /// Bytes of the cold set.
    pub set: usize,
}

#[derive(Debug, Clone, Copy)]
struct Work {
    value: usize,
    count: usize,
    framed: bool,
    budget: Duration,
}

pub fn bench(common: &Common, grid: &Grid<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(missing) = possible() {
        eprintln!("SKIPPED: zc-udp: {missing}");
        return outcome;
    }
    for mode in super::MODES
        .into_iter()
        .filter(|mode| wanted(grid.modes, mode))
    {
        for frame in FRAMES
            .into_iter()
            .filter(|frame| wanted(grid.frames, frame))
        {
            for value in common.some_of(grid.payloads) {
                let set = match mode {
                    "hot" => HOT,
                    _ if common.is_quick() => grid.set.min(super::QUICK),
                    _ => grid.set,
                };
                let work = Work {
                    value,
                    count: (set / value).max(1),
                    framed: frame == "memcached",
                    budget: common.budget(),
                };
                let cells = SYSTEMS.iter().filter(|name| common.wants(name));
                let cells = cells.map(|system| Cell {
                    system,
                    key: Key {
                        mode,
                        op: frame.to_owned(),
                        payload_bytes: Some(value),
                        ..Key::default()
                    },
                    measure: Box::new(move |number| run(number, common.cores()[0], system, work)),
                });
                let first = outcome.rows.len();
                outcome.group(common.runs_or(9), cells.collect());
                if mode == "cold" {
                    outcome
                        .verdicts
                        .extend(promised(&outcome.rows[first..], frame, value));
                }
            }
        }
    }
    outcome
}

/// What references must be worth here: for bare values, and for the answers of a cache.
fn promised(rows: &[Row], frame: &str, value: usize) -> Option<String> {
    let of = |name| rows.iter().find(|row| row.system == name);
    let rate: fn(&Measured) -> f64 = |run| run.per_second;
    let ratio = Ratio::of(of("tranship")?, of("gso-copy")?, rate)?;
    let at_least = if frame == "bare" { 1.8 } else { 1.2 };
    let what = format!("cold, {}, {frame}, by reference over copied", bytes(value));
    Some(ratio.line(&what, at_least))
}

/// Can a namespace and an ifb device be made here? Tried in a process that ends.
fn possible() -> Result<(), String> {
    let tried = Command::new("unshare")
        .args(["-n", "ip", "link", "add", "zc-try", "type", "ifb"])
        .stderr(Stdio::null())
        .status();
    match tried {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(
            "needs root and the kernel's ifb device (unshare -n ip link add ifb9 type ifb)".into(),
        ),
        Err(error) => Err(format!("unshare, of util-linux: {error}")),
    }
}

fn run(number: u64, core: usize, system: &str, work: Work) -> Result<Vec<Measured>> {
    let (way, each) = match system {
        "registered" => (Some(Way::Registered), false),
        "gso-zerocopy" => (Some(Way::Notified), false),
        "gso-copy" => (Some(Way::Copy), false),
        "sends" => (Some(Way::Copy), true),
        _ => (None, false),
    };
    let members = vec![Member {
        core,
        body: Box::new(move |_| send(work, way, each)),
    }];
    let mut results = party::run(number, members)?.into_iter().flatten();
    let mut measured = results.next().context("no sender")?;
    measured.op = if work.framed { "memcached" } else { "bare" }.to_owned();
    // Facts do not travel between processes.
    let warm = results.find(|row| row.op == WARM).context("no warm-up")?;
    measured.facts.insert(WARM, warm.median_ns);
    Ok(vec![measured])
}

fn send(work: Work, way: Option<Way>, each: bool) -> Result<Vec<Measured>> {
    alone_with_a_device()?;
    let arena = Arena::new()?;
    let mut values = Vec::with_capacity(work.count);
    for seed in 0..work.count {
        let mut value = arena.alloc(work.value)?;
        value.fill(u8::try_from(seed % 251)?);
        values.push(value.freeze());
    }
    arena.protect();
    let udp = UdpSocket::bind("10.79.0.1:0")?;
    let to = Some(SocketAddr::from(([10, 79, 0, 2], 9)));
    let mut socket = Socket::new(&udp)?;
    // All pages are known to the page tables, as they are after a while.
    let mut sender = Sender::new()?;
    sender.force(Some(Way::Notified));
    let all: Vec<_> = values.iter().map(|value| [Piece::Value(value)]).collect();
    for part in all.chunks(AT_ONCE) {
        sender.send_datagrams(&udp, &mut socket, to, part)?;
    }
    let mut sender = Sender::new()?;
    sender.force(way);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 8).unwrap_or(0) % work.count
    };
    let line = format!("\0\0\0\0\0\0\0\0VALUE key:00000000 0 {}\r\n", work.value);
    let mut samples = Samples::new(1 << 20, u32::try_from(AT_ONCE)?);
    let warm = Instant::now();
    let mut begun: Option<Instant> = None;
    let mut choice = Choice::default();
    loop {
        let datagrams: Vec<Vec<Piece<'_>>> = (0..AT_ONCE)
            .map(|_| {
                let value = Piece::Value(&values[next()]);
                if work.framed {
                    let (line, end) = (line.as_bytes(), b"\r\n");
                    vec![Piece::Bytes(line), value, Piece::Bytes(end)]
                } else {
                    vec![value]
                }
            })
            .collect();
        let now = clock::ticks();
        let sent = if each {
            let mut sent = 0;
            for one in datagrams.chunks(1) {
                sent += sender.send_datagrams(&udp, &mut socket, to, one)?;
            }
            sent
        } else {
            sender.send_datagrams(&udp, &mut socket, to, &datagrams)?
        };
        ensure!(sent == AT_ONCE, "{sent} of {AT_ONCE} datagrams had room");
        match begun {
            // Until the set has been touched and the chooser has looked around.
            None if warm.elapsed() > work.budget
                && (way.is_some() || choice.is_settled(&sender) || warm.elapsed() > PATIENCE) =>
            {
                begun = Some(Instant::now());
            }
            None => {}
            Some(begun) => {
                let room = samples.push(clock::ticks() - now);
                if !room || begun.elapsed() > work.budget {
                    break;
                }
            }
        }
    }
    let counts = sender.counts();
    if std::env::var_os("TRANSHIP_BENCH_EXPLAIN").is_some() {
        eprintln!("{counts:#?} {:#?}", sender.explain());
    }
    ensure!(
        way != Some(Way::Notified) || counts.gave_up_notified == 0,
        "the kernel copied what was to go by reference"
    );
    let warm = begun.map_or(0, |begun| begun.duration_since(warm).as_nanos());
    Ok(vec![
        samples.finish("").context("no sample")?,
        Measured {
            op: WARM.to_owned(),
            median_ns: warm as f64,
            p99_ns: 0.0,
            per_second: 0.0,
            facts: Facts::new(),
            sampled: None,
        },
    ])
}

/// What a sender has chosen, and for how many calls already.
#[derive(Debug, Default)]
struct Choice {
    ways: Vec<(usize, Way)>,
    calls: u32,
}

impl Choice {
    /// To be asked once for each call.
    fn is_settled(&mut self, sender: &Sender) -> bool {
        self.calls += 1;
        // Asking costs.
        if self.calls.is_multiple_of(64) {
            let ways = sender.explain().into_iter();
            let ways: Vec<_> = ways.map(|row| (row.up_to_bytes, row.way)).collect();
            if ways != self.ways {
                (self.ways, self.calls) = (ways, 0);
            }
        }
        self.calls >= SETTLED
    }
}

/// A network namespace for this process, with one device.
fn alone_with_a_device() -> Result<()> {
    // SAFETY: a new network namespace for this process, which has one thread, takes nothing from anybody.
    ensure!(unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0, "unshare");
    for words in [
        "link add zc0 type ifb",
        "link set zc0 up",
        "address add 10.79.0.1/24 dev zc0",
    ] {
        let done = Command::new("ip").args(words.split(' ')).output()?;
        ensure!(
            done.status.success(),
            "ip {words}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(())
}
