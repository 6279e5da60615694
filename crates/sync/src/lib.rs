//! Atomics facade, single-producer rings, and sleeping and waking across processes.
