//! `join`: what comes before and after all messages. A domain joins its manager and leaves; a channel is opened, carries its first buffer, and is closed.

use anyhow::{Context, Result, bail};
use tranship_core::{Domain, ErrorKind, Receiver, Sender, Wait};

use super::Level;
use super::meet::{self, Side};
use super::trip::STOP;
use crate::clock;
use crate::options::Common;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, Samples};
use crate::systems::tranship;

/// A domain without channels; channels by each way.
pub const SYSTEMS: [&str; 6] = ["domain", "shm", "local", "copy", "tcp+plain", "tcp"];

const PAYLOAD: usize = 4096;
const BUFFERS: usize = 16;
/// Most samples of a run.
const SAMPLES: usize = 1 << 14;

#[derive(Debug, Clone, Copy)]
struct Case {
    system: &'static str,
    cores: [usize; 2],
    budget: std::time::Duration,
}

pub fn bench(common: &Common) -> Outcome {
    let mut outcome = Outcome::default();
    let wanted = SYSTEMS.into_iter().filter(|name| common.wants(name));
    let cells = wanted.map(|system| {
        let case = Case {
            system,
            cores: common.cores(),
            budget: common.budget(),
        };
        let key = Key {
            mode: "begin",
            ..Key::default()
        };
        Cell {
            system,
            key,
            measure: Box::new(move |number| once(case, number)),
        }
    });
    outcome.group(common.runs(), cells.collect());
    outcome
}

fn once(case: Case, number: u64) -> Result<Vec<Measured>> {
    let scheme = match case.system {
        "domain" => "shm",
        scheme => scheme,
    };
    // The first has the manager in it.
    meet::run(scheme, &case.cores, number, |side| {
        let address = meet::address(scheme, side.run, 0);
        let measured = match (side.me, case.system) {
            (0, "domain") => Vec::new(),
            (_, "domain") => domains(side, case)?,
            (0, _) => answer(side, scheme, &address)?,
            (_, _) => channels(side, &address, case)?,
        };
        side.meet()?;
        Ok(measured)
    })
}

/// Does its steps in turn, and samples each by itself.
fn sample<const N: usize>(
    case: Case,
    names: [&str; N],
    mut round: impl FnMut(&mut dyn FnMut()) -> Result<()>,
) -> Result<Vec<Measured>> {
    let mut samples = [(); N].map(|()| Samples::new(SAMPLES, 1));
    let ticks = clock::in_ticks(case.budget);
    let begun = clock::ticks();
    loop {
        let warm = clock::ticks() - begun < ticks / 4;
        let mut steps = samples.iter_mut();
        let mut before = clock::ticks();
        round(&mut || {
            let now = clock::ticks();
            if let (Some(samples), false) = (steps.next(), warm) {
                samples.push(now - before);
            }
            before = clock::ticks();
        })?;
        let some = samples.iter().all(|samples| !samples.is_empty());
        if some && clock::ticks() - begun > ticks / 4 * 5 {
            break;
        }
    }
    let done = samples.into_iter().zip(names);
    done.map(|(samples, name)| samples.finish(name).context("no samples"))
        .collect()
}

fn domains(side: &Side<'_>, case: Case) -> Result<Vec<Measured>> {
    let socket = tranship::socket(side.run);
    sample(case, ["join", "leave"], |done| {
        let domain = Domain::builder().socket(&socket).connect()?;
        done();
        drop(domain);
        done();
        Ok(())
    })
}

fn channels(side: &Side<'_>, address: &str, case: Case) -> Result<Vec<Measured>> {
    let pool = meet::pool(&side.domain, BUFFERS, PAYLOAD, Level::Producer)?;
    let options = meet::options(Wait::Sleep, None);
    let measured = sample(case, ["open", "first buffer", "close"], |done| {
        let mut sender = side.domain.open_with::<Sender>(address, options.clone())?;
        done();
        sender.move_buffer(pool.alloc(PAYLOAD)?)?;
        sender.wait_taken(None)?;
        done();
        drop(sender);
        done();
        Ok(())
    })?;
    let mut last = side.domain.open_with::<Sender>(address, options)?;
    last.send_inline(&[], STOP)?;
    Ok(measured)
}

/// Takes what the channels carry, one channel after the other.
fn answer(side: &Side<'_>, scheme: &str, address: &str) -> Result<Vec<Measured>> {
    let copies = match meet::copies(scheme, Level::Producer) {
        true => Some(meet::pool(&side.domain, BUFFERS, PAYLOAD, Level::Producer)?),
        false => None,
    };
    let options = meet::options(Wait::Sleep, copies.as_ref());
    let listener = side.domain.listen_with::<Receiver>(address, options)?;
    while !is_last(listener.accept()?)? {}
    Ok(Vec::new())
}

fn is_last(mut receiver: Receiver) -> Result<bool> {
    let mut last = false;
    loop {
        match receiver.recv() {
            Ok(message) => last |= message.word == STOP,
            Err(end) if end.kind() == ErrorKind::PeerGone => return Ok(last),
            Err(error) => bail!("a channel ended: {error}"),
        }
    }
}
