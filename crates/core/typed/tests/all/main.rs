//! Typed messages over everything that carries them.

mod kit;
mod queues;
mod services;
mod streams;
mod topics;
mod types;
