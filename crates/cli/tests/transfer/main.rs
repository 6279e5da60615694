//! A manager, a sender and a receiver as three processes.

mod arrive;
mod kit;
mod refused;
