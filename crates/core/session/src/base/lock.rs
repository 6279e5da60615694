//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks without caring that another thread panicked while it held the lock: every critical
/// section here leaves its data consistent at each step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
