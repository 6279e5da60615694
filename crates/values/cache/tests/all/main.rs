//! The protocol, and a server that follows another. Programs of their own count memory.

#[path = "../client/mod.rs"]
mod client;
mod handover;
mod meta;
mod protocol;
mod slow;
