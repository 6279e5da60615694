//! Chains that the model does not reach. `spike` is a program of its own, as it sets the period of the process.

mod cross;
mod fill;
mod traps;
