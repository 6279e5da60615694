//! System calls.
//!
//! What it is for: every call into the kernel that tranship makes, in safe wrappers where safety can
//! be proved locally.
//!
//! NOT here: layouts, policy, anything that knows what a pool is.
