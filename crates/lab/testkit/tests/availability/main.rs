//! Nobody waits for an untrusted peer: a manager of its own user, attackers of two others, and a victim of a fourth.
//!
//! While an attack stands, the victim does everything that needs the manager: it joins, makes a pool, allocates,
//! exports a name, opens a channel, sends, and lists the domains. No request of these may be refused, and none may wait
//! for an attacker. The watchdog finds a request that waits for ever. `tranship-bench siege` measures how long it
//! takes.
//!
//! * `descriptors`: descriptors whose closing, or inspection, takes as long as their sender likes;
//! * `floods`: messages without end;
//! * `greed`: memory and descriptors, as much as there is;
//! * `locks`: locks that keep a manager from its place;
//! * `queues`: messages that untrusted peers cause to be queued for a domain;
//! * `tables`: entries that the manager has to search, or to remember.

mod descriptors;
mod floods;
mod greed;
mod locks;
mod queues;
mod stage;
mod tables;
