//! Web servers that are measured: ours and its peers, each with a configuration of its own, and the load upon them.
//!
//! ```text
//!  core 0: a server's processes          core 1: wrk or ab
//!  server: starts one, sums processor time  ◄── 22 connections ──  load: runs the client, reads its report
//! ```

mod configs;
mod load;
mod ours;
mod server;
mod system;

/// Sizes of answers, bytes.
pub(crate) const PAYLOADS: [u64; 7] = [0, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Connections: the paper's number, at which both of its servers did best.
pub(crate) const CONNECTIONS: u32 = 22;

pub(crate) use load::{Client, load};
pub(crate) use ours::Setup;
pub(crate) use server::{Server, has};
pub(crate) use system::System;
