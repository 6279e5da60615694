//! One channel, whatever its address: the same program over `local:`, `shm:`, `copy:`, `tcp+plain:` and `tcp:` (TLS).
//!
//! NOT here: what a network does to connections (`bulk`), shared memory (`core`).

mod ends;
mod faults;
mod forks;
mod kills;
mod kit;
mod late;
mod liars;
mod messages;
mod model;
mod programs;
mod room;
mod slow;
mod unseen;
mod waiting;
