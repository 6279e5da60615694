//! Steps on threads of their own, where io_uring is not allowed: each blocks one of them.

use super::step::Step;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

const THREADS: usize = 8;

#[derive(Debug, Default)]
struct StepQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    steps: VecDeque<Step>,
    ended: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({} steps)", self.steps.len())
    }
}

/// The threads.
#[derive(Debug)]
pub(super) struct Threads(Arc<StepQueue>);

impl Threads {
    pub(super) fn new(file: &Arc<File>) -> io::Result<Threads> {
        let shared = Arc::new(StepQueue::default());
        for _ in 0..THREADS {
            let (shared, file) = (Arc::clone(&shared), Arc::clone(file));
            let thread = std::thread::Builder::new().name("block-disk".into());
            thread.spawn(move || {
                while let Some(step) = shared.next() {
                    step.run(file.as_fd());
                }
            })?;
        }
        Ok(Threads(shared))
    }

    pub(super) fn submit(&self, step: Step) {
        let mut queue = self.0.lock();
        queue.steps.push_back(step);
        drop(queue);
        self.0.changed.notify_one();
    }
}

impl StepQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next step. None: the end, after all steps.
    fn next(&self) -> Option<Step> {
        let wait = |queue: &mut Queue| queue.steps.is_empty() && !queue.ended;
        let queue = self.changed.wait_while(self.lock(), wait);
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        queue.steps.pop_front()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}
