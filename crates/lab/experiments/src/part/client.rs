//! The client: as many requests under way as it is told, the next one when one is answered.

use super::super::lines::{Progress, now_ns, say};
use super::stage::{address, options};
use super::told::Told;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tranship::{Domain, ErrorKind, Receiver, Sender};

const REPORT: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn run(domain: &Domain, told: &Told) -> Result<()> {
    let listener = domain.listen_with::<Receiver>(&address(u32::MAX), options())?;
    let mut answers = listener.accept()?;
    let mut requests = domain.open_with::<Sender>(&address(1), options())?;
    let (mut progress, mut under_way, mut number) = (Progress::default(), 0, 0);
    let mut said: Option<Instant> = None;
    let mut begin = None;
    loop {
        // The callers come one after the other: all at once they would go round as a wave for ever.
        let callers = match told.callers() {
            0 => 0,
            all => {
                let begin: Instant = *begin.get_or_insert_with(Instant::now);
                all.min(1 + u64::try_from(begin.elapsed().as_millis())?)
            }
        };
        while under_way < callers {
            requests.send((&[], number))?;
            (under_way, number) = (under_way + 1, number + 1);
        }
        if said.is_none_or(|said| said.elapsed() >= REPORT) {
            said = Some(Instant::now());
            progress.at_ns = now_ns();
            if !say(&progress) {
                return Ok(());
            }
        }
        match answers.recv_timeout(PAUSE) {
            Ok(_) => (under_way, progress.done) = (under_way - 1, progress.done + 1),
            Err(error) if error == ErrorKind::TimedOut => {}
            Err(error) => return Err(error).context("the last stage"),
        }
    }
}
