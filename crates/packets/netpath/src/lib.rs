//! A packet path over mbufs that people can build on.
//!
//! What it is for: an echo server on smoltcp over a TAP device whose frames are mbufs ([`server`], [`device`]); TCP
//! connections whose bytes smoltcp does not copy to the program ([`tcp`]), and sockets of chains over them in another
//! domain ([`socket`]); a forwarder without smoltcp that parses, rewrites, cuts and joins packets ([`forward`]); and a laboratory of network
//! namespaces for trying and measuring both ([`lab`]).
//!
//! NOT here: mbufs themselves (`tranship-mbuf`), a TCP implementation, IPv6.

#![deny(unsafe_code)]

pub mod device;
pub mod forward;
pub mod iperf;
pub mod lab;
pub mod link;
pub mod measure;
pub mod run;
pub mod server;
pub mod socket;
pub mod tables;
pub mod tap;
pub mod tcp;
pub mod wire;
