//! A task's pauses. A peer that floods keeps a task ready; other tasks of its thread have their turn all the same.

use std::future::poll_fn;
use std::task::Poll;

#[derive(Debug)]
pub(crate) struct Pause {
    each: u32,
    rounds: u32,
}

impl Pause {
    /// Creates the pauses of a loop: one after every `each` rounds.
    pub(crate) fn each(each: u32) -> Pause {
        Pause { each, rounds: 0 }
    }

    /// Ends a round.
    pub(crate) async fn now_and_then(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let mut paused = !self.rounds.is_multiple_of(self.each);
        poll_fn(|context| {
            if paused {
                return Poll::Ready(());
            }
            paused = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
