//! The block service as processes: real NBD clients, and kills.

#[path = "block/clients.rs"]
mod clients;
#[path = "block/disks.rs"]
mod disks;
#[path = "block/kills.rs"]
mod kills;
#[path = "block/kit.rs"]
mod kit;
#[path = "../../../block/tests/block/nbd.rs"]
mod nbd;
#[path = "block/net.rs"]
mod net;
#[path = "block/reasons.rs"]
mod reasons;
#[path = "block/writes.rs"]
mod writes;
