//! A manager, a sender and a receiver as three processes.

mod arrive;
mod cut;
mod kit;
mod places;
mod refused;
mod streams;
