//! Liveness: who may still read a buffer, and when it may be reused.
