//! One channel, whatever its address: the same program over `local:`, `shm:`, `copy:`, `tcp+plain:` and `tcp:` (TLS).
//!
//! NOT here: other effects of a network on connections (`transport`), shared memory (`core`).

mod codes;
mod ends;
mod faults;
mod forks;
mod forms;
mod hops;
mod kills;
mod kit;
mod late;
mod liars;
mod lost;
mod messages;
mod programs;
mod room;
mod shown;
mod slow;
mod unseen;
mod waiting;
mod weather;
