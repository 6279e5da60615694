//! `zc-shm`: values of one cache server in another process, one request under way: by reference through a channel, and over TCP.
//!
//! Either way the client looks at every byte (`read`), or at the first and the last one (`look`); over TCP all of them come into a buffer of its own first.

use super::counters;
use super::work::cpu;
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};
use crate::systems::tranship::join;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tranship_cache::{Mode, Options, Outcome as Stored, Reader, Server, Share};

/// What can be named.
pub const SYSTEMS: [&str; 2] = ["reference", "socket"];
/// What is done with a value.
pub const OPS: [&str; 2] = ["look", "read"];
/// Bytes of the values that are asked for in turn.
const SET: usize = 16 << 20;
const NAME: &str = "bench-cache";

#[derive(Debug, Clone, Copy)]
struct Work {
    value: usize,
    count: usize,
    all: bool,
    budget: Duration,
}

pub fn bench(common: &Common, payloads: &[usize]) -> Outcome {
    let mut outcome = Outcome::default();
    for op in OPS {
        for value in common.some_of(payloads) {
            let work = Work {
                value,
                count: (SET / value).clamp(1, 2048),
                all: op == "read",
                budget: common.budget(),
            };
            let cells = SYSTEMS.into_iter().filter(|name| common.wants(name));
            let cells = cells.map(|system| Cell {
                system,
                key: Key {
                    mode: "shm",
                    op: op.to_owned(),
                    payload_bytes: Some(value),
                    ..Key::default()
                },
                measure: Box::new(move |number| run(number, common.cores(), system, work, op)),
            });
            outcome.group(common.runs_or(9), cells.collect());
        }
    }
    outcome
}

fn run(
    number: u64,
    cores: [usize; 2],
    system: &str,
    work: Work,
    op: &str,
) -> Result<Vec<Measured>> {
    let by_reference = system == "reference";
    let members = vec![
        Member {
            core: cores[0],
            body: Box::new(move |party| serve(party, work)),
        },
        Member {
            core: cores[1],
            body: Box::new(move |party| ask(party, work, by_reference)),
        },
    ];
    let mut results = party::run(number, members)?.into_iter();
    let server = results.next().context("no server")?;
    let mut client = results.next().context("no client")?;
    for row in &mut client {
        row.op = op.to_owned();
        if let Some(cpu) = server.first() {
            let served = row.per_second * work.budget.as_secs_f64();
            row.facts
                .insert("server_cpu_ns", cpu.median_ns / served.max(1.0));
        }
    }
    Ok(client)
}

fn key(number: usize) -> String {
    format!("key:{number:08x}")
}

fn byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

fn serve(party: &Party, work: Work) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let share = Share {
        // All of them have room.
        memory: 4 * SET as u64,
        ..Share::new(domain, NAME)
    };
    let server = Server::start(Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 1,
        memory: 8 * SET as u64,
        longest: SET,
        share: Some(share),
        ..Options::default()
    })?;
    for number in 0..work.count {
        let store = server.store();
        let mut value = store.reserve(work.value).context("room")?;
        value[..work.value].fill(byte(number));
        let stored = store.put(key(number).as_bytes(), value.freeze(), 0, 0, Mode::Set);
        ensure!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
    }
    party.tell(1, u64::from(server.address().port()))?;
    party.hear(1)?;
    let begun = cpu();
    party.hear(1)?;
    let spent = cpu().saturating_sub(begun);
    server.stop();
    Ok(vec![counters::row("", spent as f64)])
}

/// Looks at bytes that nobody else writes.
fn check(value: &[u8], number: usize, all: bool) -> Result<()> {
    let ends = value.first().copied().zip(value.last().copied());
    let mut fits = ends == Some((byte(number), byte(number)));
    if all {
        let sum = value.iter().fold(0u64, |sum, byte| sum + u64::from(*byte));
        fits &= sum == u64::from(byte(number)) * value.len() as u64;
    }
    ensure!(fits, "other bytes came than were asked for");
    Ok(())
}

fn ask(party: &Party, work: Work, by_reference: bool) -> Result<Vec<Measured>> {
    let domain = join::domain(1, party)?;
    let port = u16::try_from(party.hear(0)?)?;
    if by_reference {
        let mut reader = Reader::open(&domain, NAME)?;
        // SAFETY: the server is this bench's, and changes nothing.
        unsafe { reader.channel().trust_writer() };
        return measure(party, work, |number| {
            let hit = reader.get(key(number).as_bytes())?.context("a miss")?;
            check(hit.bytes().context("no slice")?, number, work.all)
        });
    }
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let head = format!("VALUE {} 0 {}\r\n", key(0), work.value).len();
    let mut room = vec![0; head + work.value + "\r\nEND\r\n".len()];
    measure(party, work, |number| {
        stream.write_all(format!("get {}\r\n", key(number)).as_bytes())?;
        stream.read_exact(&mut room)?;
        check(&room[head..][..work.value], number, work.all)
    })
}

fn measure(
    party: &Party,
    work: Work,
    mut get: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<Measured>> {
    // Each once: all of it is there.
    (0..work.count).try_for_each(&mut get)?;
    party.tell(0, 0)?;
    let mut samples = Samples::new(1 << 22, 1);
    let begun = Instant::now();
    let (mut number, mut served) = (0, 0u64);
    while begun.elapsed() < work.budget || served == 0 {
        // Not in the order in which they lie.
        number = (number + 7919) % work.count;
        let now = clock::ticks();
        get(number)?;
        samples.push(clock::ticks() - now);
        served += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    party.tell(0, 0)?;
    let mut measured = samples.finish("").context("no sample")?;
    measured.per_second = served as f64 / seconds;
    Ok(vec![measured])
}
