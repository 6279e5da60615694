//! Programs of isolated components: the file, its check, and the supervisor.
//!
//! ```text
//!  FILE.toml ─► file ─► check ─► program ─► graph               tranship run --check
//!                                   │
//!                                   ▼
//!              keeper ─► supervise ─► machine                   tranship run
//!                            │  starts, one launcher for each process
//!                            ▼
//!                         launch ─► sandbox ─► the program      tranship component
//!                            └────► filter ─► launch ─► ...
//! ```
//!
//! * `check.rs`: every fault that a file can have is found before anything starts, with its line.
//! * `machine.rs`: what is started, stopped and started again; pure.
//! * `keys.rs`: a component has the names that the file gives it, and no others.
//! * `keeper.rs`: nothing of the program outlives the supervisor, however that ends.
//!
//! NOT here: what a component does with its ends (`core/component`), and the sandbox (`core/sandbox`).

#![warn(missing_docs, clippy::missing_errors_doc)]
#![deny(unsafe_code)]

mod check;
pub mod family;
mod file;
mod filter;
pub mod graph;
mod keeper;
mod keys;
mod launch;
mod listen;
mod machine;
mod place;
mod plan;
mod program;
mod supervise;
mod trial;
pub mod units;

pub use check::{Fault, Faults, read};
pub use keeper::keep;
pub use launch::launch;
pub use listen::Address;
pub use machine::{Machine, Order, Rules, State};
pub use plan::Plan;
pub use program::{Component, Filter, Kind, Program, Rights, Wire};
pub use supervise::{Seen, Supervisor, View};
pub use trial::try_sandboxes;
