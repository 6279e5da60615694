//! A policy as a program of its own: it reads the manager's figures of the pools, and sets their quotas.

use super::admin::Admin;
use super::shell::Domain;
use crate::error::{self, Error, ErrorKind};
use std::time::{Duration, Instant};
use tranship_policy::{Governor, PoolState, Rule, Snapshot, Target};
use tranship_proto::{Event, PoolFigures, PoolId, Refusal, RefusalCode, Request};

/// The most quotas in one message.
const AT_ONCE: usize = 1000;

/// The right to set the quotas of all pools. One client of a manager has it at a time. It is free again when it is
/// dropped or the process ends; the last quotas stay.
///
/// The manager does not trust the policy: no pool gets less than its minimum or more than its maximum, all together get
/// no more than the limit, and a quota that was set by hand stays. A wrong or hostile policy can only divide badly.
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::{Domain, PoolOptions};
/// use tranship::policy::{Config, Governor};
///
/// let domain = Domain::embedded()?;
/// let _pool = domain.create_pool(PoolOptions::new(64 << 20).name("frames"))?;
/// let steering = domain.admin().steer()?;
/// let mut governor = Governor::new(Config::of("throughput"))?; // or a policy of one's own
/// steering.step(&mut governor)?; // looks, and sets all quotas
/// assert_eq!(steering.snapshot()?.pools.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Steering {
    domain: Domain,
    begun: Instant,
}

impl Admin<'_> {
    /// Lets a policy in this program set the quotas of all pools from now on.
    ///
    /// # Errors
    /// `Access` unless the caller is root, the manager's own user, or a user of a `[[policy_run]]` rule; `Refused` if
    /// another policy does so, the manager's own or that of another program. `TimedOut` when the manager has not
    /// answered within the [`manager_timeout`](crate::DomainBuilder::manager_timeout).
    pub fn steer(&self) -> Result<Steering, Error> {
        let steering = Steering {
            domain: self.domain.clone(),
            begun: Instant::now(),
        };
        match steering.take(true) {
            Ok(()) => Ok(steering),
            Err(error) => {
                // No right was taken that could be given back.
                std::mem::forget(steering);
                Err(error)
            }
        }
    }

    /// Makes a policy's snapshot of the pools. `at_ns` is the caller's clock.
    ///
    /// # Errors
    /// As [`pool_figures`](Admin::pool_figures).
    pub fn snapshot(&self, at_ns: u64) -> Result<Snapshot, Error> {
        let (limit_bytes, pools) = self.pool_figures()?;
        Ok(Snapshot {
            at_ns,
            limit_bytes,
            pools: pools.into_iter().map(state).collect(),
        })
    }
}

impl Steering {
    /// Returns the memory to divide, and the figures of each pool.
    ///
    /// # Errors
    /// `TimedOut` when the manager has not answered within the
    /// [`manager_timeout`](crate::DomainBuilder::manager_timeout); `ManagerAway`.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let at = self.begun.elapsed();
        self.domain
            .admin()
            .snapshot(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sets quotas. The manager takes each message of at most 1000 quotas whole or not at all. Pools that are not named
    /// keep theirs.
    ///
    /// # Errors
    /// `BadArgument` for less than a pool's minimum, or more than its maximum; `Quota` if all together would be more
    /// than the limit. Both happen to an honest policy, too, if pools came or memory went meanwhile: look again.
    /// `Refused` if the right is gone, as after a restart of the manager: drop this and [`steer`](Admin::steer) again.
    pub fn set(&self, targets: &[Target]) -> Result<(), Error> {
        let mut quotas: Vec<(PoolId, u64)> = targets
            .iter()
            .map(|t| (PoolId(t.id), t.quota_bytes))
            .collect();
        // In several messages, quotas that shrink come first: then no message makes the sum exceed the limit.
        if quotas.len() > AT_ONCE {
            let now = self.domain.admin().pool_figures()?.1;
            let quota_of = |id: PoolId| now.iter().find(|p| p.pool == id).map(|p| p.quota_bytes);
            quotas.sort_by_cached_key(|(id, quota)| quota_of(*id).is_none_or(|now| now < *quota));
        }
        for quotas in quotas.chunks(AT_ONCE) {
            let make = |req| Request::SetQuotas {
                req,
                quotas: quotas.to_vec(),
            };
            match self.domain.core().call(make, &[])?.0 {
                Event::QuotasSet { .. } => {}
                other => return Err(error::unexpected(&other, "quotas were set")),
            }
        }
        Ok(())
    }

    /// Does one period: looks, asks the policy, and sets its quotas. A refusal because of a change meanwhile, or a
    /// manager that is away, is no error: the next period looks again. Returns whether quotas were set.
    ///
    /// # Errors
    /// `Access` and `Refused` when a new manager does not give the right again; all other errors of
    /// [`set`](Steering::set).
    pub fn step(&self, governor: &mut Governor) -> Result<bool, Error> {
        self.domain.turn()?;
        let done = self.snapshot().and_then(|snapshot| {
            let targets = governor.step(&snapshot);
            self.set(&targets)
        });
        match done {
            Ok(()) => Ok(true),
            Err(error) => match (error.kind(), error.find::<Refusal>()) {
                (ErrorKind::ManagerAway | ErrorKind::TimedOut, _) => Ok(false),
                (_, Some(refusal)) if refusal.code == RefusalCode::State => {
                    self.take(true)?;
                    Ok(false)
                }
                (ErrorKind::Quota | ErrorKind::BadArgument, Some(refusal)) => {
                    tracing::debug!(%refusal, "quotas are not set this time");
                    Ok(false)
                }
                _ => Err(error),
            },
        }
    }

    /// Does one period after the other, until `goes_on` returns false. It is called after each period with whether
    /// quotas were set.
    ///
    /// # Errors
    /// As [`step`](Steering::step).
    pub fn run(
        &self,
        governor: &mut Governor,
        every: Duration,
        mut goes_on: impl FnMut(bool) -> bool,
    ) -> Result<(), Error> {
        loop {
            let next = Instant::now() + every;
            let set = self.step(governor)?;
            if !goes_on(set) {
                return Ok(());
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn take(&self, take: bool) -> Result<(), Error> {
        let make = |req| Request::Steer { req, take };
        match self.domain.core().call(make, &[])?.0 {
            Event::Steering { .. } => Ok(()),
            other => Err(error::unexpected(
                &other,
                "the right to set quotas was asked for",
            )),
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // Else the right is free when the process ends.
        let _ = self.take(false);
    }
}

fn state(p: PoolFigures) -> PoolState {
    PoolState {
        id: p.pool.0,
        name: p.name,
        blocked_ns: p.blocked_ns,
        collect_ns: p.collect_ns,
        collections: p.collections,
        allocs: p.allocs,
        live_bytes: p.live_bytes,
        peak_bytes: p.peak_bytes,
        live_buffers: p.live_buffers,
        garbage_bytes: p.garbage_bytes,
        cached_bytes: p.cached_bytes,
        waiters: p.waiters,
        quota_bytes: p.quota_bytes,
        granted_bytes: p.granted_bytes,
        grain_bytes: p.chunk_bytes,
        rule: Rule {
            min_bytes: p.min_bytes,
            max_bytes: p.max_bytes,
            weight: p.weight,
            priority: p.priority,
            target: p.target_ppm.map(|ppm| f64::from(ppm) / 1e6),
            callers: p.callers,
            group: p.group,
            group_max_bytes: p.group_max_bytes,
        },
        ..PoolState::default()
    }
}
