//! Cases that only a network has: lost and renewed connections, silent or replaced ends, untrusted peers, liars, and
//! unusable certificates.
//!
//! NOT here: the effects that a program sees of a channel (`channel`).

mod certificates;
mod descriptor;
mod floods;
mod handshakes;
mod kit;
mod liars;
mod lost;
mod processes;
mod replay;
mod servers;
