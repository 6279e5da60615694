//! Typed messages over everything that carries them.

mod queues;
mod services;
mod streams;
mod topics;
mod types;
