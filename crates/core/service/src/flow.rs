//! One call's items in one process: those that came, and how many may be sent.

use crate::word::CallId;
use std::collections::VecDeque;
use tranship_core::{Error, ErrorKind, Message};

/// The most items of a call on their way in one direction, those included that wait to be taken out.
pub(crate) const WINDOW: u32 = 8;

/// The lines of a ring that a call with streams may need: request, cancellation and end, or the answer; items; and
/// credits, of which at most two are unread, because each says half a window.
pub(crate) const LINES: usize = WINDOW as usize + 6;

#[derive(Debug)]
pub(crate) struct Flow {
    items: VecDeque<Message>,
    /// The other side sends no further item.
    ended: bool,
    /// Items that may be sent.
    credit: u32,
    /// Items that were taken out, and for which the other side has no credit yet.
    taken: u32,
}

impl Flow {
    pub(crate) fn new() -> Flow {
        Flow {
            items: VecDeque::new(),
            ended: false,
            credit: WINDOW,
            taken: 0,
        }
    }

    /// Keeps an item that came. `false`: the other side had no credit for it.
    pub(crate) fn put(&mut self, mut item: Message) -> bool {
        let here = self.items.len() + self.taken as usize;
        let fits = !self.ended && here < WINDOW as usize;
        if fits {
            item.word = 0;
            self.items.push_back(item);
        }
        fits
    }

    /// `None`: nothing is there yet. `Some(None)`: nothing comes any more.
    pub(crate) fn take(&mut self) -> Option<Option<Message>> {
        match self.items.pop_front() {
            Some(item) => {
                self.taken += 1;
                Some(Some(item))
            }
            None => self.ended.then_some(None),
        }
    }

    /// Lets go of all items that came.
    pub(crate) fn discard(&mut self) {
        while let Some(Some(_)) = self.take() {}
    }

    /// The credit that the other side is to be told: half a window at a time.
    pub(crate) fn owed(&mut self) -> Option<u32> {
        (self.taken >= WINDOW / 2).then(|| std::mem::take(&mut self.taken))
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// Takes one item's credit.
    pub(crate) fn spend(&mut self) -> bool {
        let may = self.credit > 0;
        self.credit -= u32::from(may);
        may
    }

    /// Takes one item's credit. `None`: there is none yet.
    pub(crate) fn credit(&mut self) -> Option<()> {
        self.spend().then_some(())
    }

    pub(crate) fn grant(&mut self, items: u32) {
        self.credit = self.credit.saturating_add(items).min(WINDOW);
    }
}

/// The error for a stream of a call that was begun without one.
pub(crate) fn none(call: CallId) -> Error {
    let text = format!("call {call} was begun without streams: CallOptions::streams allows them");
    Error::new(ErrorKind::BadArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_core::{Body, Inline};

    fn item() -> Message {
        let body = Inline::try_from(&b"item"[..]).map(Body::Inline);
        let body = body.expect("few bytes");
        Message { word: 77, body }
    }

    #[test]
    fn so_many_items_fit_and_room_comes_with_the_credit_that_is_told() {
        let mut flow = Flow::new();
        assert!((0..WINDOW).all(|_| flow.put(item())));
        assert!(!flow.put(item()), "the other side had no credit");
        for _ in 1..WINDOW / 2 {
            assert_eq!(flow.take().flatten().map(|item| item.word), Some(0));
            assert_eq!(flow.owed(), None);
        }
        assert!(!flow.put(item()), "the other side was told of none");
        assert!(flow.take().flatten().is_some());
        assert_eq!(flow.owed(), Some(WINDOW / 2));
        assert!((0..WINDOW / 2).all(|_| flow.put(item())));
        assert!(!flow.put(item()));
    }

    #[test]
    fn nothing_comes_after_the_end() {
        let mut flow = Flow::new();
        assert!(flow.put(item()));
        flow.end();
        assert!(!flow.put(item()));
        assert!(flow.take().flatten().is_some());
        assert!(matches!(flow.take(), Some(None)));
    }

    #[test]
    fn no_credit_is_above_a_window() {
        let mut flow = Flow::new();
        flow.grant(u32::MAX);
        assert_eq!((0..=WINDOW).filter(|_| flow.spend()).count(), 8);
        flow.grant(2);
        assert_eq!((0..=WINDOW).filter(|_| flow.spend()).count(), 2);
    }

    #[test]
    fn items_that_are_let_go_are_credit() {
        let mut flow = Flow::new();
        assert!((0..WINDOW).all(|_| flow.put(item())));
        flow.discard();
        assert_eq!(flow.owed(), Some(WINDOW));
        assert!(flow.put(item()));
    }
}
