//! Calls with many answers, workers that do not work, and the beginning. `calls` is a program of its own, as it looks for
//! memory by its size.

mod kit;
mod streams;
mod stuck;
mod welcome;
mod workers;
