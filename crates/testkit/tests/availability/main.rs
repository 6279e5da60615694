//! Nobody waits for a stranger: a manager of its own user, attackers of two others, and a victim of a fourth.
//!
//! While an attack stands, the victim does everything that needs the manager: it joins, makes a pool, allocates, exports a
//! name, opens a channel, sends, asks who is there. Nothing of that may be refused, and nothing may wait for an attacker:
//! what waits for ever is found by the watchdog. How long it takes is `tranship-bench siege`'s to say.

mod descriptors;
mod floods;
#[path = "../hostile/raw.rs"]
#[allow(dead_code, reason = "each attack uses a part of it")]
mod raw;
mod stage;
