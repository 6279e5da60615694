//! Memory scheduling: how much memory each pool may have, decided again every period.
//!
//! ```text
//!   Snapshot ──► Round ──► Policy ──► wishes ──► allot ──► pace ──► quotas
//!   counters     what      predictors, by rank   divides   bounds
//!   and sizes    changed   a file each           the limit the step
//!                          └─────────── Governor: remembers the last snapshot ───────────┘
//! ```
//!
//! What it is for: the manager gives a [`Governor`] a [`Snapshot`] each period and sets the quotas that it returns. A
//! policy only states its wishes ([`Policy`]). The governor keeps the sum within the limit, gives every pool its
//! minimum, and moves quotas in bounded steps. The program `tranship-lab` plays the same governor against modelled
//! programs. `docs/scheduling.md` has the guarantees and the sources.
//!
//! A new policy is one file in `policies/` and one line in [`POLICIES`].
//!
//! NOT here: I/O, clocks, threads, atomics, `unsafe` code, the manager's books, how memory moves.

#![warn(missing_docs, clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod allot;
mod config;
mod governor;
mod num;
mod pace;
mod policies;
mod policy;
mod predict;
mod round;
mod snapshot;

pub use config::Config;
pub use governor::{Governor, Target};
pub use policies::{Entry, POLICIES, UnknownPolicy, find};
pub use policy::{Policy, Wish};
pub use predict::{Cost, Need, Search};
pub use round::{Activity, Round};
pub use snapshot::{PoolState, Rule, Snapshot};
