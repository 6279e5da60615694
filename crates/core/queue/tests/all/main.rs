//! Queues of a process. `faults` forks: a program of its own.

mod hostile;
mod name;
mod queue;
mod tasks;
