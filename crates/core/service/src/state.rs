//! A client's calls in flight, and what else its callers share. One caller at a time changes it.

use crate::flow::{self, Flow};
use crate::word::{self, Answer, CallId};
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;
use tranship_core::{Error, ErrorKind, Message, Receiver, Sender};

/// The longest wait of a caller between two looks at what others have left to say.
const LOOK: Duration = Duration::from_millis(250);
/// The time until a word that found the ring full is tried again.
pub(crate) const AGAIN: Duration = Duration::from_millis(1);
/// The most calls whose answers were not taken: half the numbers that a call may have.
pub(crate) const MOST_CALLS: usize = 1 << 15;

#[derive(Debug)]
pub(crate) struct State {
    /// `None`: a caller sends.
    pub(crate) requests: Option<Box<Sender>>,
    /// `None`: a caller waits for replies.
    pub(crate) replies: Option<Box<Receiver>>,
    calls: Vec<Begun>,
    last: CallId,
    /// Words that had to wait for the sender, or for room in the ring: cancellations, ends, credits.
    pub(crate) words: VecDeque<u64>,
    /// The task that waits for replies.
    pub(crate) reader: Option<Waker>,
    /// Why no call is answered any more.
    pub(crate) over: Option<Error>,
    /// Threads that wait for `changed`, and tasks that wait for the same.
    pub(crate) sleepers: usize,
    pub(crate) tasks: Vec<Waker>,
}

/// A call in flight.
#[derive(Debug)]
struct Begun {
    call: CallId,
    slot: Slot,
    flow: Option<Box<Flow>>,
}

impl Begun {
    /// The lines of a ring that it may need: two for its request and its cancellation, or those of a stream. A call that
    /// is done needs none, so that only a reply makes room.
    #[inline]
    fn lines(&self) -> usize {
        match self.is_done() {
            true => 0,
            false => lines(self.flow.is_some()),
        }
    }

    #[inline]
    fn is_done(&self) -> bool {
        matches!(self.slot, Slot::Done(..))
    }

    /// Whether nothing but its answer can come for it.
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(self.slot, Slot::Waiting) && self.flow.is_none()
    }
}

pub(crate) fn lines(streams: bool) -> usize {
    if streams { flow::LINES } else { 2 }
}

#[derive(Debug)]
enum Slot {
    Waiting,
    /// Answered, before its caller looked.
    Done(Box<(Answer, Message)>),
    /// No caller waits for it any more. Its answer has still to come.
    Abandoned,
}

/// Finding of a caller in the state.
pub(crate) enum Wish<R> {
    /// Result that the caller wants.
    Is(R),
    /// A reply may bring it.
    Reply,
    /// Another caller will give it back, and no reply brings it.
    Change,
}

impl State {
    pub(crate) fn new(requests: Sender, replies: Receiver) -> State {
        State {
            requests: Some(Box::new(requests)),
            replies: Some(Box::new(replies)),
            calls: Vec::new(),
            last: 0,
            words: VecDeque::new(),
            reader: None,
            over: None,
            sleepers: 0,
            tasks: Vec::new(),
        }
    }

    /// A number for a new call, and the sender. `None`: too many answers were not taken.
    pub(crate) fn begin(
        &mut self,
        most: usize,
        streams: bool,
    ) -> Wish<Option<(CallId, Box<Sender>)>> {
        if self.calls.len() >= MOST_CALLS {
            return Wish::Is(None);
        }
        let has_room = self.has_room(most, streams);
        let Some(requests) = self.requests.take_if(|_| has_room) else {
            // A call that is being sent may fail, and then its lines are free without a reply.
            return match self.requests {
                Some(_) => Wish::Reply,
                None => Wish::Change,
            };
        };
        Wish::Is(Some((self.add(streams), requests)))
    }

    /// Whether one more call may begin. `most`: the lines of a ring.
    #[inline]
    pub(crate) fn has_room(&self, most: usize, streams: bool) -> bool {
        let few = (self.calls.len() + 1) * flow::LINES <= most;
        let used = || self.calls.iter().map(Begun::lines).sum::<usize>();
        few || (self.calls.len() < MOST_CALLS && used() + lines(streams) <= most)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Adds a call, and gives its number.
    #[inline]
    pub(crate) fn add(&mut self, streams: bool) -> CallId {
        loop {
            self.last = word::next(self.last);
            if self.calls.iter().all(|begun| begun.call != self.last) {
                break;
            }
        }
        self.calls.push(Begun {
            call: self.last,
            slot: Slot::Waiting,
            flow: streams.then(|| Box::new(Flow::new())),
        });
        self.last
    }

    /// Whether there is anything to be told or said once a caller is done.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.sleepers > 0 || !self.tasks.is_empty() || !self.words.is_empty()
    }

    #[inline]
    fn begun(&mut self, call: CallId) -> Option<&mut Begun> {
        self.calls.iter_mut().find(|begun| begun.call == call)
    }

    /// The answer of a call. Items that nobody took are let go.
    pub(crate) fn take_answer(&mut self, call: CallId) -> Wish<(Answer, Message)> {
        let Some(at) = self.calls.iter().position(|begun| begun.call == call) else {
            return Wish::Reply;
        };
        if let Some(flow) = &mut self.calls[at].flow {
            flow.discard();
            self.tell_credit(call);
        }
        match self.calls[at].is_done() {
            true => match self.calls.swap_remove(at).slot {
                Slot::Done(answer) => Wish::Is(*answer),
                Slot::Waiting | Slot::Abandoned => Wish::Reply,
            },
            false => Wish::Reply,
        }
    }

    /// Whether nothing but its answer can come for that call, and has not come.
    #[inline]
    pub(crate) fn is_plain(&mut self, call: CallId) -> bool {
        self.begun(call).is_some_and(|begun| begun.is_plain())
    }

    /// Says that no further item of a call comes.
    pub(crate) fn end_items(&mut self, call: CallId) {
        if self.begun(call).is_some_and(|begun| !begun.is_done()) {
            self.say(word::end(call));
        }
    }

    /// Forgets a call that is answered. `false`: nobody waits for it, or it has streams.
    #[inline]
    pub(crate) fn is_answered(&mut self, call: CallId) -> bool {
        let is_it = |begun: &Begun| begun.call == call && begun.is_plain();
        match self.calls.iter().position(is_it) {
            Some(at) => {
                self.calls.swap_remove(at);
                true
            }
            None => false,
        }
    }

    /// The next item of a call. `None`: the call is over.
    pub(crate) fn take_item(&mut self, call: CallId) -> Wish<Option<Message>> {
        let Some(begun) = self.begun(call) else {
            return Wish::Is(None);
        };
        let item = begun.flow.as_deref_mut().and_then(Flow::take).flatten();
        let is_done = begun.is_done();
        self.tell_credit(call);
        match (item, is_done) {
            (None, false) => Wish::Reply,
            (item, _) => Wish::Is(item),
        }
    }

    /// The sender for an item of a call, which has credit for it. `None`: the call is over.
    pub(crate) fn send_item(&mut self, call: CallId) -> Wish<Option<Box<Sender>>> {
        let is_free = self.requests.is_some();
        match self.begun(call) {
            Some(begun) if !begun.is_done() => match &mut begun.flow {
                Some(_) if !is_free => Wish::Change,
                Some(flow) => match flow.spend() {
                    true => Wish::Is(self.requests.take()),
                    false => Wish::Reply,
                },
                None => Wish::Is(None),
            },
            _ => Wish::Is(None),
        }
    }

    pub(crate) fn forget(&mut self, call: CallId) {
        self.calls.retain(|begun| begun.call != call);
    }

    /// No caller waits for that call any more: the service is told.
    pub(crate) fn abandon(&mut self, call: CallId) {
        let Some(begun) = self.begun(call) else {
            return;
        };
        match begun.slot {
            Slot::Waiting => begun.slot = Slot::Abandoned,
            Slot::Done(..) => return self.forget(call),
            Slot::Abandoned => return,
        }
        if let Some(flow) = &mut begun.flow {
            flow.discard();
        }
        self.say(word::cancel(call));
    }

    /// Undoes what [`send_item`](State::send_item) took.
    pub(crate) fn unspend(&mut self, call: CallId) {
        if let Some(flow) = self.begun(call).and_then(|begun| begun.flow.as_mut()) {
            flow.grant(1);
        }
    }

    /// Hands a message from the service to its call. An error: the service broke the rules of streams.
    pub(crate) fn deliver(&mut self, mut message: Message) -> Result<(), Error> {
        let (call, how, items) = word::answered(message.word);
        message.word = 0;
        let Some(at) = self.calls.iter().position(|begun| begun.call == call) else {
            return Ok(()); // the service answers what was not asked
        };
        let Begun { slot, flow, .. } = &mut self.calls[at];
        match (how, flow, &slot) {
            (Answer::Credit, Some(flow), _) => flow.grant(items),
            (Answer::Item, Some(flow), Slot::Waiting) => {
                if !flow.put(message) {
                    return Err(too_many(call));
                }
            }
            (Answer::Item | Answer::Credit, ..) => {}
            (_, _, Slot::Waiting) => *slot = Slot::Done(Box::new((how, message))),
            (_, _, Slot::Abandoned) => drop(self.calls.swap_remove(at)),
            (_, _, Slot::Done(..)) => {}
        }
        Ok(())
    }

    /// Tells the service what credit it has, if half a window of items was taken.
    pub(crate) fn tell_credit(&mut self, call: CallId) {
        let flow = self.begun(call).and_then(|begun| begun.flow.as_deref_mut());
        if let Some(items) = flow.and_then(Flow::owed) {
            self.say(word::credit(call, items));
        }
    }

    /// Says something without a payload, at once or when the sender is back.
    pub(crate) fn say(&mut self, word: u64) {
        self.words.push_back(word);
        self.say_words();
    }

    /// Says what waits for the sender. If another caller has it, that one does.
    pub(crate) fn say_words(&mut self) {
        if !self.words.is_empty()
            && let Some(requests) = self.requests.take()
        {
            self.give_back(requests);
        }
    }

    /// Puts the sender back, after what waited for it. A word that finds the ring full waits on: items of calls that are over
    /// may lie there.
    pub(crate) fn give_back(&mut self, mut requests: Box<Sender>) {
        drop(requests.take_unsent());
        while let Some(word) = self.words.front() {
            match requests.try_send((b"", *word)) {
                Err(failed) if failed.kind() == ErrorKind::Full => break,
                // A service that is gone needs none.
                _ => drop(self.words.pop_front()),
            }
        }
        if !self.words.is_empty() {
            self.tasks.extend(self.reader.take());
        }
        self.requests = Some(requests);
    }

    /// The longest wait for a reply or a change: words that wait for room are tried again after it.
    pub(crate) fn round(&self) -> Duration {
        if self.words.is_empty() { LOOK } else { AGAIN }
    }
}

fn too_many(call: CallId) -> Error {
    let text = format!(
        "more than {} items of call {call} came before they were taken",
        flow::WINDOW
    );
    Error::new(ErrorKind::PeerViolation, text)
}
