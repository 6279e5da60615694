//! Chains that the model does not reach.

mod cross;
mod fill;
mod spike;
mod traps;
