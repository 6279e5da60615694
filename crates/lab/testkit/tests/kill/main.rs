//! Processes killed while data moves: nothing leaks, nothing is reused early, who survives goes on.
//!
//! The stage: a manager, a writer that sends to a receiver directly and through a forwarder, the forwarder also
//! sending back to the writer (a cycle), shared and moved buffers mixed, and a pair that has nothing to do with them. Any of the first four is
//! killed with SIGKILL at each named crash point (`points`), at random instants (`instants`), with the manager (`together`), replaced by a
//! fresh process, and the flow must go on. Payloads carry their id and a checksum and are verified at receipt
//! and again just before they are released.
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
