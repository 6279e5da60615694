//! A deterministic simulator: modelled programs under a [`Governor`](tranship_policy::Governor), a millisecond a step.
//!
//! A [`Scenario`] has pools and the [`App`](app::App)s that use them; [`run`] plays it and returns a [`Run`]: a frame for each
//! period with quotas, memory, blocked callers and throughput. A recorded trace becomes one by [`from_trace`]. Every
//! step checks that the pools together have no more than the limit.
//!
//! NOT modelled: the time that a quota needs to arrive, caches of threads, fragmentation, size classes: everything is
//! pages.

mod app;
mod curve;
mod judge;
mod memory;
mod num;
mod play;
mod replay;
mod run;
mod scenario;
mod scenarios;
#[cfg(test)]
mod tests;

pub(crate) use curve::Curve;
pub(crate) use judge::{AppFigures, PoolFigures, figures};
pub(crate) use play::run;
pub(crate) use replay::from_trace;
pub(crate) use run::{AppFrame, Frame, PoolFrame, Run};
pub(crate) use scenario::{PAGE, PoolSpec, Scenario};
pub(crate) use scenarios::{SCENARIOS, scenario};
