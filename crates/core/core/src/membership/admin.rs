//! The questions and orders of an operator.

use super::history::Trace;
use super::shell::Domain;
use crate::domain::LeakReport;
use crate::error::{self, Barrier, Error};
use tranship_proto::{Event, PoolFigures, PoolId, Request, StatRecord};

/// Questions and orders of an operator, by way of a domain: [`Domain::admin`].
///
/// ```
/// # use tranship_core as tranship;
/// use tranship::Domain;
/// use tranship::admin::StatRecord;
///
/// let domain = Domain::embedded()?;
/// for record in domain.admin().stat()? {
///     if let StatRecord::Domain(stat) = record {
///         println!("{}: {} bytes", stat.name, stat.charged_bytes());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(super) domain: &'a Domain,
}

impl Domain {
    /// Returns the questions and orders of an operator: figures, quotas, traces, leaks, and the manager's state.
    pub fn admin(&self) -> Admin<'_> {
        Admin { domain: self }
    }
}

impl Admin<'_> {
    /// Sets the quota of a pool or heap of any domain, until it ends or the manager is restarted. Returns the quota
    /// that holds now, which is at most the manager's total. A pool or heap that has more is asked to give the rest
    /// back, and gets nothing new before.
    ///
    /// # Errors
    /// `Access` unless the caller is root or the manager's own user; `Refused` if there is no such pool or heap;
    /// `BadArgument` if the quota is above the pool's or heap's maximum. `TimedOut` when the manager has not answered
    /// within the [`manager_timeout`](crate::DomainBuilder::manager_timeout).
    pub fn set_quota(&self, pool: PoolId, quota_bytes: u64) -> Result<u64, Error> {
        let make = |req| Request::SetQuota {
            req,
            pool,
            quota_bytes,
        };
        match self.domain.core().call(make, &[])?.0 {
            Event::QuotaSet { quota_bytes, .. } => Ok(quota_bytes),
            other => Err(error::unexpected(&other, "a quota was set")),
        }
    }

    /// Asks the manager for its records: itself, domains, pools, heaps, channels, and what each domain holds.
    ///
    /// # Errors
    /// `TimedOut` when the manager has sent no further record for the
    /// [`manager_timeout`](crate::DomainBuilder::manager_timeout).
    pub fn stat(&self) -> Result<Vec<StatRecord>, Error> {
        self.domain.core().stat()
    }

    /// Returns a policy's input: the bytes that all quotas together may have, and of each pool its writer's figures and
    /// its rules.
    ///
    /// # Errors
    /// `TimedOut` when the manager has not answered within the [`manager_timeout`](crate::DomainBuilder::manager_timeout).
    pub fn pool_figures(&self) -> Result<(u64, Vec<PoolFigures>), Error> {
        let (mut all, mut after) = (Vec::new(), PoolId(0));
        loop {
            let make = |req| Request::Figures { req, after };
            match self.domain.core().call(make, &[])?.0 {
                Event::Figures {
                    limit_bytes, pools, ..
                } => match pools.last().map(|p| p.pool) {
                    Some(last) if last > after => {
                        after = last;
                        all.extend(pools);
                    }
                    _ => return Ok((limit_bytes, all)),
                },
                other => return Err(error::unexpected(&other, "figures were asked for")),
            }
        }
    }

    /// Returns the reason why this process cannot reach a manager again, if it was locked down after it had joined and
    /// the manager was restarted. Channels go on with the memory that they have; everything new is `CutOff`.
    pub fn cut_off(&self) -> Option<Barrier> {
        self.domain.core().cut_off()
    }

    /// Returns whether the manager is there, and has answered this domain's last request. Asks it nothing.
    pub fn is_managed(&self) -> bool {
        !self.domain.core().fork.is_child() && self.domain.core().is_answering()
    }

    /// Switches the record of a pool's buffers in all domains that have the pool. A domain begins at its next slow call
    /// of the library, or its next [`turn`](crate::Domain::turn). It records buffers that it allocates or receives
    /// after that. `while_here`: until this domain's connection ends. Returns whether the pool is traced now: another
    /// domain may have switched it on, too.
    ///
    /// Cost while it is on: each step of each buffer writes an event, and the fast paths are not taken. Off, it costs
    /// nothing.
    ///
    /// # Errors
    /// `Refused` if there is no such pool, and unless the caller is root, the manager's own user or that of the pool's
    /// writer.
    pub fn trace(&self, pool: PoolId, on: bool, while_here: bool) -> Result<bool, Error> {
        let make = |req| Request::Trace {
            req,
            pool,
            on,
            while_here,
        };
        match self.domain.core().call(make, &[])?.0 {
            Event::Tracing { on, .. } => Ok(on),
            other => Err(error::unexpected(&other, "a trace was asked for")),
        }
    }

    /// Returns the records of domains, also of ended ones. Root and the manager's own user see all, other users the
    /// records of their own domains. Each record is the word of its domain: a liar can record anything of itself.
    ///
    /// # Errors
    /// `TimedOut` when the manager has not answered within the [`manager_timeout`](crate::DomainBuilder::manager_timeout).
    pub fn traces(&self) -> Result<Vec<Trace>, Error> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let make = |req| Request::NextTrace { req, after };
            let (answer, fds) = self.domain.core().call(make, &[])?;
            let Event::TraceRing {
                number,
                domain,
                name,
                pid,
                alive,
                ..
            } = answer
            else {
                return Ok(all);
            };
            let Some(ring) = fds.first().filter(|_| number > after) else {
                return Err(error::protocol("a trace that does not come"));
            };
            after = number;
            let mut trace = Trace::read(ring)?;
            (trace.domain, trace.name, trace.pid, trace.alive) = (domain, name, pid, alive);
            all.push(trace);
        }
    }

    /// Returns the buffers that this domain has now: those of other domains that it holds, and, if
    /// [`leaks`](crate::DomainBuilder::leaks) are noted, its own that are not freed. With such notes each entry has its
    /// age and origin.
    pub fn leaks(&self) -> LeakReport {
        self.domain.core().leak_report()
    }
}
