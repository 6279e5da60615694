//! The two sides. Ping leads: after each message it waits until Pong has sent one back; now and then both look how the cores lie.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};

use super::log::{Log, Times};
use crate::case::Case;
use crate::clock;
use crate::line::Line;
use crate::ops::Ops;
use crate::party::Party;
use crate::peer::Role;
use crate::placement::{self, Placement};
use crate::slices::{Look, SLICES};
use crate::stats::Measured;

pub type Serve = fn(&Case, Role, &Party, &Path) -> Result<Vec<Measured>>;

/// Words on the page, beside the line's own: whose turn it is.
const TURN: usize = 1;
/// What a turn is for, under its number.
const MESSAGE: u64 = 0;
const REPLY: u64 = 1;
const LOOK: u64 = 2;
const STOP: u64 = 3;
/// Said after a look: there is no placement, or nothing counts yet.
const NOWHERE: u8 = 100;
const NOTHING: u8 = 101;

/// Before what is timed: everything earlier is done.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn begin() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: both are there on every x86-64 processor, and have no precondition.
    unsafe {
        _mm_lfence();
        let now = _rdtsc();
        _mm_lfence();
        now
    }
}

/// After it: everything in between is done.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn end() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: as in `begin`.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
use clock::{ticks as begin, ticks as end};

#[inline(always)]
fn timed<T>(into: &mut u64, op: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = begin();
    let done = op();
    *into = end() - before;
    done
}

struct Side<'a, P> {
    peer: P,
    line: &'a Line,
    /// Both sides share it: whoever waits must let the other run.
    is_one_core: bool,
    log: Log,
}

pub fn serve<P: Ops>(case: &Case, role: Role, party: &Party, file: &Path) -> Result<Vec<Measured>> {
    let line = Line::open(party, role.index())?;
    let peer = P::open(case, role, party)?;
    party.barrier()?;
    let mut side = Side {
        peer,
        line: &line,
        is_one_core: case.cores_used() == 1,
        log: Log::new(),
    };
    match role {
        Role::Ping => side.lead(case)?,
        _ => side.follow()?,
    }
    party.barrier()?;
    side.log.save(file)?;
    Ok(Vec::new())
}

impl<P: Ops> Side<'_, P> {
    fn turn(&self) -> &AtomicU64 {
        self.line.word(TURN)
    }

    fn say(&self, turn: u64, what: u64) {
        // Ordering: release; partner: `hear`. What a message needs has its own.
        self.turn().store(turn << 2 | what, Ordering::Release);
    }

    /// Waits for the word that is not this one.
    fn hear(&self, not: u64) -> u64 {
        loop {
            // Ordering: acquire; partner: `say`.
            match self.turn().load(Ordering::Acquire) {
                same if same == not => {}
                other => return other,
            }
            std::hint::spin_loop();
            if self.is_one_core {
                std::thread::yield_now();
            }
        }
    }

    fn out(&mut self, stamp: u64, times: &mut Times) -> Result<()> {
        let [alloc, send, ..] = times;
        let loan = timed(alloc, || self.peer.alloc())?;
        timed(send, || self.peer.give(loan, stamp))
    }

    fn back(&mut self, stamp: u64, times: &mut Times) -> Result<()> {
        let [_, _, receive, release, timer] = times;
        let (held, got) = timed(receive, || self.peer.take())?;
        timed(release, || self.peer.release(held))?;
        timed(timer, || Ok(()))?;
        ensure!(got == stamp, "expected message {stamp}, got {got}");
        Ok(())
    }

    fn lead(&mut self, case: &Case) -> Result<()> {
        let budget = clock::in_ticks(case.budget);
        let slice = budget / u64::from(SLICES);
        let mut turn = 0;
        let mut before = Look::No;
        let mut is_warm = false;
        let mut until = clock::ticks() + budget / 4;
        let mut end = u64::MAX;
        loop {
            turn += 1;
            let mut times = Times::default();
            self.out(turn, &mut times)?;
            self.say(turn, MESSAGE);
            self.hear(turn << 2 | MESSAGE);
            self.back(turn, &mut times)?;
            let is_due = clock::ticks() > until;
            let is_full = self.log.add(times, is_due);
            if !is_full && !is_due {
                continue;
            }
            turn += 1;
            self.say(turn, LOOK);
            let look = match self.is_one_core {
                true => Look::No,
                false => Look::of(self.line.time()),
            };
            let (placement, line_ns) = before.until(look);
            before = look;
            // Every buffer was used twice, or the time is up.
            let used = turn > 2 * case.buffers as u64 || clock::ticks() > until + 4 * budget;
            if is_warm {
                self.line.end(code(placement));
                self.log.fold(placement, line_ns);
            } else {
                self.line.end(NOTHING);
                self.log.forget();
            }
            if self.is_one_core {
                self.line.wait();
            }
            let now = clock::ticks();
            if !is_warm && used {
                is_warm = true;
                end = now + budget;
            } else if now > end {
                self.say(turn + 1, STOP);
                return Ok(());
            }
            until = now + slice;
        }
    }

    fn follow(&mut self) -> Result<()> {
        let mut heard = 0;
        loop {
            heard = self.hear(heard);
            let turn = heard >> 2;
            match heard & 3 {
                MESSAGE => {
                    let mut times = Times::default();
                    self.back(turn, &mut times)?;
                    self.out(turn, &mut times)?;
                    self.log.add(times, false);
                    self.say(turn, REPLY);
                    heard = turn << 2 | REPLY;
                }
                LOOK => match self.line.answer() {
                    NOTHING => self.log.forget(),
                    said => self.log.fold(placement_of(said), 0.0),
                },
                STOP => return Ok(()),
                other => bail!("turn {turn} is for {other}, which nobody says"),
            }
        }
    }
}

fn code(placement: Option<Placement>) -> u8 {
    let place = placement::ALL.iter().position(|p| Some(*p) == placement);
    place
        .and_then(|at| u8::try_from(at).ok())
        .unwrap_or(NOWHERE)
}

fn placement_of(code: u8) -> Option<Placement> {
    placement::ALL.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_travels_in_a_byte() {
        for placement in placement::ALL.map(Some).into_iter().chain([None]) {
            assert_eq!(placement_of(code(placement)), placement);
        }
    }

    #[test]
    fn what_is_timed_takes_time() {
        let mut ticks = u64::MAX;
        assert!(timed(&mut ticks, || anyhow::Ok(7)).is_ok_and(|got| got == 7));
        assert_ne!(ticks, u64::MAX);
    }
}
