//! What only a network brings: connections that are lost and made again, ends that fall silent or are replaced, untrusted peers
//! and liars, certificates that do not do.
//!
//! NOT here: what of it a program sees of a channel (`channel`).

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
