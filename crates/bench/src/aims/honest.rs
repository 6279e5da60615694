//! An honest client's request to the manager while eight others misbehave, half of them on the manager's core.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use tranship_core::{Domain, PoolOptions};
use tranship_sys::socket;

use crate::clock;
use crate::options::Common;
use crate::party::{self, Member, Party};
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};
use crate::systems::shared::Shared;
use crate::systems::tranship;

const HOSTILE: usize = 8;
/// Answers are slow: so many times the time of other samples.
const LONGER: u32 = 20;

/// What the hostile ones do, again and again; each of these is done by two.
const PESTS: [fn(&PathBuf) -> Result<()>; 4] = [
    // Comes and goes.
    |path| {
        let _ = socket::connect_now(path);
        Ok(())
    },
    // Sends nonsense until it is thrown out.
    |path| {
        if let Ok(socket) = socket::connect_now(path) {
            for _ in 0..64 {
                if socket::sendmsg(&socket, &[0xff; 2000], &[], true).is_err() {
                    break;
                }
            }
        }
        Ok(())
    },
    // Holds many connections that never say anything.
    |path| {
        let all: Vec<_> = (0..32).map(|_| socket::connect_now(path)).collect();
        std::thread::yield_now();
        drop(all);
        Ok(())
    },
    // Asks for memory and gives it back, as fast as it is answered.
    |path| {
        let builder = Domain::builder().name("pest").socket(path.clone());
        if let Ok(domain) = builder.connect() {
            for _ in 0..64 {
                drop(domain.create_pool(PoolOptions::new(1 << 20)));
            }
        }
        Ok(())
    },
];

pub fn bench(common: &Common) -> Outcome {
    let cell = Cell {
        system: "tranship",
        key: Key {
            mode: "answer",
            ..Key::default()
        },
        measure: Box::new(|number| once(common, number)),
    };
    let mut outcome = Outcome::default();
    outcome.group(common.runs(), vec![cell]);
    outcome
}

fn once(common: &Common, number: u64) -> Result<Vec<Measured>> {
    let [manager, other] = common.cores();
    let budget = common.budget() * LONGER;
    let shared = Shared::make(4096)?;
    // SAFETY: inside the mapping, zeroed, aligned, accessed as an atomic only.
    let over = unsafe { shared.at(0, 8).cast::<AtomicU64>().as_ref() };
    let mut members = vec![
        Member {
            core: manager,
            body: Box::new(|party: &Party| {
                let _domain = tranship::domain(0, party)?;
                party.barrier()?;
                party.barrier()?;
                Ok(Vec::new())
            }),
        },
        Member {
            core: other,
            body: Box::new(move |party: &Party| {
                let domain = tranship::domain(1, party)?;
                party.barrier()?;
                let asked = ask(&domain, budget);
                // Relaxed: nothing is read because of it.
                over.store(1, Ordering::Relaxed);
                party.barrier()?;
                Ok(vec![asked?])
            }),
        },
    ];
    members.extend((0..HOSTILE).map(|pest| Member {
        core: [manager, other][pest % 2],
        body: Box::new(move |party: &Party| {
            let path = party::folder(party.run).join("manager.sock");
            // One for each domain's, one for the beginning.
            party.barrier()?;
            party.barrier()?;
            while over.load(Ordering::Relaxed) == 0 {
                PESTS[pest / 2](&path)?;
            }
            party.barrier()?;
            Ok(Vec::new())
        }),
    }));
    Ok(party::run(number, members)?.into_iter().flatten().collect())
}

fn ask(domain: &Domain, budget: std::time::Duration) -> Result<Measured> {
    let mut samples = Samples::new(1 << 16, 1);
    let begun = Instant::now();
    loop {
        let before = clock::ticks();
        domain.stat()?;
        let room = samples.push(clock::ticks() - before);
        if !room || begun.elapsed() > budget {
            return samples.finish("").context("no samples");
        }
    }
}
