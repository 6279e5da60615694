//! Processes killed while data moves: nothing leaks, nothing is reused early, and the survivors go on.
//!
//! The stage has a manager, and a writer that sends to a receiver directly and through a forwarder. The forwarder also
//! sends back to the writer (a cycle). Shared and moved buffers are mixed. A further pair has nothing to do with them.
//! Any of the first four is killed with SIGKILL: at each named crash point (`points`), at random instants (`instants`),
//! or with the manager (`together`). It is replaced by a fresh process, and the flow must go on. Payloads carry their
//! id and a checksum, and are verified at receipt and again just before they are released.
//!
//! NOT here: liars (the hostile tests), exhaustive interleavings (the models in `ledger`).

use tranship_core as product;

mod flow;
mod forwarder;
mod instants;
mod manager;
mod pair;
mod points;
mod receiver;
mod rules;
mod seat;
mod stage;
mod together;
mod writer;
