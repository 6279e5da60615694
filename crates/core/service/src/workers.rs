//! A client's connections to the processes that serve one name together.

use crate::calls::{Calls, Load};
use crate::error::is_gone;
use crate::joining::{Joining, SILENT};
use crate::lock;
use crate::options::ServiceOptions;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tranship_core::{Domain, DomainId, Error, ErrorKind, Pool, PoolOptions};

/// How many calls a client begins between two looks for further processes, while some process has no call of the client's.
const LOOK_EACH: u32 = 16;
/// The time until a client that could not connect to a further process tries again.
const AGAIN: Duration = Duration::from_millis(250);
/// The pool of a client of several processes: as a channel's own.
const POOL_BYTES: u64 = 1 << 30;
const POOL_SLOTS: u32 = 1024;

/// The connections of a client.
#[derive(Debug)]
pub(crate) struct Workers {
    address: String,
    domain: Domain,
    options: ServiceOptions,
    state: Mutex<State>,
    pool: OnceLock<Pool>,
}

#[derive(Debug)]
struct State {
    here: Vec<Arc<Calls>>,
    joining: Option<Joining>,
    /// No connection is tried before.
    not_before: Option<Instant>,
    /// Processes that took the channels of the last attempt and did not welcome this client: the next attempt is for others.
    silent: Vec<DomainId>,
    /// When the present attempt began.
    since: Instant,
    /// The process to which the last call went.
    last: usize,
    begun: u32,
    /// Why the last process of all went.
    over: Option<Error>,
}

impl Workers {
    pub(crate) fn new(
        domain: &Domain,
        address: &str,
        options: ServiceOptions,
        first: Arc<Calls>,
    ) -> Workers {
        Workers {
            address: address.into(),
            domain: domain.clone(),
            options,
            state: Mutex::new(State {
                here: vec![first],
                joining: None,
                not_before: None,
                silent: Vec::new(),
                since: Instant::now(),
                last: 0,
                begun: 0,
                over: None,
            }),
            pool: OnceLock::new(),
        }
    }

    /// A process that sleeps, or that with fewest calls of this client in flight; of several the next one in turn.
    pub(crate) fn idle(&self) -> Result<Arc<Calls>, Error> {
        let mut state = lock(&self.state);
        state.forget_ended();
        let all_busy = state.idlest().is_none_or(|(_, calls)| calls > 0);
        state.begun = state.begun.wrapping_add(1);
        if all_busy || state.begun.is_multiple_of(LOOK_EACH) {
            self.join(&mut state);
        }
        let Some((at, _)) = state.idlest() else {
            return Err(self.nobody(&state));
        };
        state.last = at;
        Ok(Arc::clone(&state.here[at]))
    }

    fn nobody(&self, state: &State) -> Error {
        let text = format!("no process serves `{}` now", self.address);
        match &state.over {
            Some(error) => error.clone().context(text),
            None => Error::new(ErrorKind::PeerGone, text),
        }
    }

    /// Takes a step to a further process. It does not wait.
    fn join(&self, state: &mut State) {
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let joining = match state.joining.take() {
            // It waits for further processes; the silent ones have their turn again.
            Some(Joining::Requests(_))
                if !state.silent.is_empty() && state.since.elapsed() > SILENT =>
            {
                state.silent.clear();
                return;
            }
            Some(joining) => joining,
            None => {
                let have = state.here.iter().map(|calls| calls.domain());
                let have: Vec<_> = have.chain(state.silent.iter().copied()).collect();
                state.since = Instant::now();
                Joining::begin(&self.domain, &self.address, &self.options, &have)
            }
        };
        let with = joining.with();
        match joining.step(&self.domain, &self.address, &self.options) {
            Ok(Ok(calls)) => state.here.push(Arc::new(calls)),
            Ok(Err(joining)) => state.joining = Some(joining),
            Err(error) if is_gone(&error) => {}
            // Of another version, full, or silent: others may come.
            Err(_) => {
                state.silent.extend(with);
                state.not_before = Instant::now().checked_add(AGAIN);
            }
        }
    }

    /// The pool that all processes of the service can read: made at the first call.
    pub(crate) fn pool(&self) -> Result<&Pool, Error> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let options = self.options.pool.clone();
        let options = options.unwrap_or_else(|| PoolOptions::new(POOL_BYTES).slots(POOL_SLOTS));
        let pool = self.domain.create_pool(options)?;
        Ok(self.pool.get_or_init(|| pool))
    }

    pub(crate) fn in_flight(&self) -> usize {
        let state = lock(&self.state);
        state.here.iter().map(|calls| calls.in_flight()).sum()
    }

    /// How many processes are connected.
    pub(crate) fn count(&self) -> usize {
        let mut state = lock(&self.state);
        state.forget_ended();
        self.join(&mut state);
        state.here.len()
    }
}

impl State {
    fn forget_ended(&mut self) {
        let over = &mut self.over;
        self.here.retain(|calls| match calls.ended() {
            Some(error) => {
                *over = Some(error);
                false
            }
            None => true,
        });
    }

    /// The process for the next call, and how many calls of this client it has.
    fn idlest(&self) -> Option<(usize, usize)> {
        let loads: Vec<Load> = self.here.iter().map(|calls| calls.load()).collect();
        let at = idlest(&loads, self.last)?;
        Some((at, loads[at].calls))
    }
}

/// The process for the next call. `last`: the one of the last call. A client sees no calls of other clients, but that a
/// process sleeps: that one has none.
fn idlest(loads: &[Load], last: usize) -> Option<usize> {
    let after = (1..=loads.len()).map(|step| (last + step) % loads.len());
    after.min_by_key(|at| {
        let Load { calls, sleeps } = loads[*at];
        (calls > 0 || !sleeps, calls)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_sleeps_goes_first_then_that_with_fewest_calls_then_the_next() {
        let load = |calls, sleeps| Load { calls, sleeps };
        let busy = [load(2, false), load(1, false), load(1, false)];
        assert_eq!(idlest(&busy, 0), Some(1));
        assert_eq!(idlest(&busy, 1), Some(2));
        let sleeper = [load(0, false), load(0, false), load(0, true)];
        assert_eq!(idlest(&sleeper, 0), Some(2));
        assert_eq!(idlest(&sleeper, 2), Some(2));
        // It was woken by a call, and has not said so yet.
        let woken = [load(0, false), load(1, true)];
        assert_eq!(idlest(&woken, 0), Some(0));
        assert_eq!(idlest(&[], 0), None);
    }
}
