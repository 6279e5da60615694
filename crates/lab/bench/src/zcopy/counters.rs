//! Counts of the processor's own while a server serves: instructions, and misses of the last cache, in the program and in the kernel. Where a machine does not
//! give them, that is said, and bytes copied stand for them.

use crate::stats::{Facts, Measured};
use std::io;
use tranship_sys::counter::{Counter, Event};

const EVENTS: [(&str, Event); 2] = [
    ("server_instructions", Event::Instructions),
    ("server_cache_misses", Event::CacheMisses),
];

/// Says which of them this machine does not give.
pub fn say_missing(bench: &str) {
    for (name, event) in EVENTS {
        if let Err(error) = is_there(event) {
            eprintln!("SKIPPED: of {bench}, {name}: {error}");
        }
    }
}

/// A counter may be there and never move.
fn is_there(event: Event) -> io::Result<()> {
    let mut counter = Counter::new(event)?;
    // More than any cache has, so that something is missed.
    let bytes = vec![1u8; 256 << 20];
    std::hint::black_box(
        bytes
            .iter()
            .step_by(64)
            .map(|byte| u64::from(*byte))
            .sum::<u64>(),
    );
    match counter.read()? {
        0 => Err(io::Error::other("the processor's counter does not move")),
        _ => Ok(()),
    }
}

/// Counts from its making on.
pub struct Counters(Vec<(&'static str, Counter)>);

impl Counters {
    pub fn begin() -> Counters {
        let all = EVENTS.iter();
        let open = all.filter_map(|(name, event)| Some((*name, Counter::new(*event).ok()?)));
        Counters(open.collect())
    }

    /// A row for each, of one reply: facts do not travel between processes.
    pub fn rows(self, served: u64) -> Vec<Measured> {
        let of = |(name, mut counter): (&str, Counter)| {
            let count = counter.read().ok().filter(|count| *count > 0)?;
            Some(row(name, count as f64 / served.max(1) as f64))
        };
        self.0.into_iter().filter_map(of).collect()
    }
}

/// One that tells the client's process a figure of the server's.
pub fn row(name: &str, figure: f64) -> Measured {
    Measured {
        op: name.to_owned(),
        median_ns: figure,
        p99_ns: 0.0,
        per_second: 0.0,
        facts: Facts::new(),
        sampled: None,
    }
}

/// Puts what the server's rows say to the client's.
pub fn note(client: &mut [Measured], server: &[Measured]) {
    for row in client {
        for told in server {
            let known = EVENTS.iter().find(|(name, _)| *name == told.op);
            if let Some((name, _)) = known {
                row.facts.insert(*name, told.median_ns);
            }
        }
    }
}
