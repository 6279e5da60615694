//! Roll calls: after the death of a component they tell which requests are lost.
//!
//! A roll call goes to `http` behind all that was passed before it, and each component passes it on behind the requests
//! that it had. A component with several others behind it gives each of them a share. When all shares are back, each
//! request that was before it has its answer, or is lost.

use crate::word::Word;
use std::time::{Duration, Instant};

/// Time after which a roll call is repeated: a component that had it may have died.
const AGAIN: Duration = Duration::from_millis(500);

/// The roll call that is under way.
#[derive(Debug, Default)]
pub(super) struct Rolls {
    number: u16,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    since: Instant,
    /// The sum of shares that are back.
    back: u16,
}

impl Rolls {
    /// Begins one. Answers to earlier ones no longer count.
    pub(super) fn begin(&mut self, now: Instant) -> Word {
        self.number = self.number.wrapping_add(1);
        self.under_way = Some(UnderWay {
            since: now,
            back: 0,
        });
        Word::roll(self.number, Word::WHOLE)
    }

    /// Ends it without a result.
    pub(super) fn end(&mut self) {
        self.under_way = None;
    }

    /// Takes a share that is back.
    pub(super) fn answer(&mut self, number: u16, share: u16) {
        if let Some(under_way) = &mut self.under_way
            && number == self.number
        {
            under_way.back = under_way.back.saturating_add(share);
        }
    }

    /// Says whether all shares are back, and ends it then. Ask when every reply that was there was taken.
    pub(super) fn take_done(&mut self) -> bool {
        let done = self.under_way.take_if(|it| it.back >= Word::WHOLE);
        done.is_some()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        let since = self.under_way.as_ref().map(|it| it.since);
        since.is_some_and(|since| now.duration_since(since) >= AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_call_is_done_when_all_shares_of_the_last_one_are_back() {
        let now = Instant::now();
        let mut rolls = Rolls::default();
        assert!(!rolls.take_done());
        let (first, whole) = rolls.begin(now).as_roll().expect("a roll call");
        let (second, _) = rolls.begin(now).as_roll().expect("a roll call");
        rolls.answer(first, whole);
        assert!(!rolls.take_done(), "an earlier one");
        rolls.answer(second, whole / 2);
        assert!(!rolls.take_done() && rolls.is_under_way());
        rolls.answer(second, whole / 2);
        assert!(rolls.take_done() && !rolls.is_under_way());
        assert!(!rolls.take_done());
    }
}
