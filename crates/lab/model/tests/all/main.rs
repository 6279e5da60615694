//! The executable model.

mod explore;
mod random;
mod rules;
