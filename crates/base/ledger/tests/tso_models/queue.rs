//! A queue's memory beside a reader that lies, under total store order: every interleaving of the product's own
//! functions, with store buffers. A liar can write any claim. The writer ends a line that is taken, asks the desks, and
//! fills a free buffer anew; an honest reader that has read a line finds in its buffer what was published.
//!
//! Seen failing, besides what is kept as tests: without the fence of `Rounds::begin`.

use tranship_ledger::rounds::{DeskView, Outcome, Pace, Published, Rounds};
use tranship_ring::broadcast::{
    Claim, Claims, Desk, Front, Limits, Message, Reader, Reading, Received, taken,
};
use tranship_ring::{Line, Lines};
use tranship_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tranship_tso::Model;

const POSITION: u64 = 0;
const HONEST: u16 = 1;
const LIAR: u16 = 2;

#[derive(Default)]
struct Queue {
    lines: [Line; 2],
    /// Lines and a desk that nobody looks at.
    aside: [Line; 2],
    unseen: Desk,
    front: Front,
    words: [AtomicU64; 2],
    desk: Desk,
    /// State of the only buffer.
    bytes: AtomicU32,
}

/// Broken variants, which a model has to find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Right,
    /// The window follows the line that is read.
    ClaimsLate,
    /// The line stays as it was when its item is done.
    LeavesTheLine,
}

#[derive(Default)]
struct Free(bool);

impl Outcome for Free {
    fn free(&mut self, _: u32) {
        self.0 = true;
    }
}

impl Queue {
    /// The item is published.
    fn published() -> Queue {
        let queue = Queue::default();
        queue.bytes.store(1, Ordering::Relaxed);
        let (mut rounds, mut published) = queue.writer();
        queue.publish(&mut rounds, &mut published);
        queue
    }

    fn claims(&self) -> Claims<'_> {
        Claims::new(&self.front, &self.words)
    }

    fn lines(&self) -> Lines<'_> {
        Lines::new(&self.lines).expect("two lines")
    }

    fn writer(&self) -> (Rounds, Published) {
        let mut rounds = Rounds::new(1, Pace::PRODUCTION);
        let ring = rounds.add_ring(2);
        let limits = Limits {
            window: 1,
            ..Limits::new(0)
        };
        rounds.join(0, ring, limits);
        (rounds, Published::new(2, POSITION, ring))
    }

    fn publish(&self, rounds: &mut Rounds, published: &mut Published) {
        let Ok(_) = published.publish(&self.lines(), rounds, Message::default(), 0);
    }

    /// Settles the item if a claim says that it is taken, and fills the buffer anew if no desk covers it.
    fn settle(&self, does: Does) {
        // What the setup did, once more: the writer's private part of it.
        let (mut rounds, mut published) = self.writer();
        let aside = Lines::new(&self.aside).expect("two lines");
        let Ok(_) = published.publish(&aside, &mut rounds, Message::default(), 0);
        if !matches!(self.claims().of(POSITION), Claim::Taken(_)) {
            return;
        }
        let lines = match does {
            Does::LeavesTheLine => aside,
            _ => self.lines(),
        };
        let Ok(true) = published.withdraw(&lines, &mut rounds, published.tail()) else {
            panic!("there is a line");
        };
        let desks = [Some(DeskView {
            desk: &self.desk,
            table: &[],
        })];
        let mut free = Free::default();
        let Ok(_) = rounds.collect(&desks[..], &mut free);
        if free.0 {
            self.bytes.store(2, Ordering::Relaxed);
        }
    }

    /// Takes the item if it waits, and reads its buffer.
    fn take(&self, does: Does) {
        let Claim::Free(seen) = self.claims().of(POSITION) else {
            return;
        };
        let memory = Reading {
            lines: self.lines(),
            desk: &self.desk,
            table: &[],
        };
        let limits = Limits {
            window: 1,
            ..Limits::new(0)
        };
        let mut reader = Reader::new(POSITION, limits);
        if does == Does::ClaimsLate {
            // As if the desk were written after the line was read.
            let unseen = Reading {
                desk: &self.unseen,
                ..memory
            };
            let Ok(()) = reader.claim_one(&unseen, POSITION);
            if self.claims().take(POSITION, seen, HONEST) {
                let Ok(received) = reader.receive(&unseen);
                let Ok(()) = reader.claim_one(&memory, POSITION);
                self.look(received);
            }
            return;
        }
        let Ok(()) = reader.claim_one(&memory, POSITION);
        if self.claims().take(POSITION, seen, HONEST) {
            let Ok(received) = reader.receive(&memory);
            self.look(received);
        }
        let Ok(()) = reader.rest(&memory);
    }

    fn look(&self, received: Received) {
        if matches!(received, Received::Message(_)) {
            let bytes = self.bytes.load(Ordering::Relaxed);
            assert_eq!(bytes, 1, "another item's bytes");
        }
    }

    /// Says that the item is taken, and that it is not.
    fn lie(&self) {
        self.words[0].store(taken(POSITION, LIAR), Ordering::Relaxed);
        self.words[0].store(0, Ordering::Relaxed);
    }
}

fn model(does: Does) -> Model<Queue> {
    Model::new(Queue::published)
        .thread("writer", move |queue: &Queue| queue.settle(does))
        .thread("reader", move |queue: &Queue| queue.take(does))
        .thread("liar", Queue::lie)
}

#[test]
fn no_lie_has_a_reader_read_what_was_filled_anew() {
    model(Does::Right).holds("a liar beside an honest reader");
}

#[test]
fn a_window_that_follows_the_look_is_too_late() {
    let why = model(Does::ClaimsLate).breaks("a window that is late");
    assert!(why.contains("another item's bytes"), "{why}");
}

#[test]
fn a_line_that_stays_can_be_taken_again() {
    let why = model(Does::LeavesTheLine).breaks("a line that stays");
    assert!(why.contains("another item's bytes"), "{why}");
}
