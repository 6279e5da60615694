//! A deterministic simulator: modelled programs under a [`Governor`](crate::Governor), a millisecond a step.
//!
//! A [`Scenario`] has pools and the [`App`]s that use them; [`run`] plays it and returns a [`Run`]: a frame for each
//! period with quotas, memory, blocked callers and throughput. A recorded trace becomes one by [`from_trace`]. Every
//! step checks that the pools together have no more than the limit.
//!
//! NOT modelled: the time that a quota needs to arrive, caches of threads, fragmentation, size classes: everything is
//! pages.

mod app;
mod curve;
mod judge;
mod memory;
mod play;
mod replay;
mod run;
mod scenario;
mod scenarios;

pub use app::{App, Kind};
pub use curve::Curve;
pub use judge::{AppFigures, PoolFigures, figures, moved};
pub use play::run;
pub use replay::{TraceError, from_trace};
pub use run::{AppFrame, Frame, PoolFrame, Run};
pub use scenario::{PAGE, PoolSpec, Scenario};
pub use scenarios::{SCENARIOS, ScenarioEntry, scenario};
