//! A client's two channels, and its calls in flight.
//!
//! No thread of its own reads the replies. One of the callers that wait does, for all of them: the receiver lies in `State`, and the caller that takes it
//! out hands each reply to its call.

use crate::flow::{self, Flow};
use crate::pause::Pause;
use crate::word::{self, Answer, CallId};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Condvar, OnceLock};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Sleep};
use tranship_core::{
    Domain, DomainId, Error, ErrorKind, Message, Payload, Pool, Receiver, SendError, Sender,
};
use tranship_sync::{BiasedGuard, BiasedMutex};
use tranship_sys::membarrier;

/// The longest wait of a caller between two looks at what others have left to say.
const LOOK: Duration = Duration::from_millis(250);
/// The time until a word that found the ring full is tried again.
const AGAIN: Duration = Duration::from_millis(1);
/// How many messages a task takes before other tasks of its thread have a turn.
const READS: u32 = 64;
/// The most calls whose answers were not taken: half the numbers that a call may have.
const MOST_CALLS: usize = 1 << 15;

/// What a client's callers share.
#[derive(Debug)]
pub(crate) struct Calls {
    domain: Domain,
    name: String,
    server: (DomainId, u32),
    /// The lines of each ring. A call has so many of them for itself that the replies' ring is never full. The requests' ring
    /// may be: items of calls that are over may lie there.
    lines: usize,
    state: BiasedMutex<State>,
    changed: Condvar,
    /// The channel's own pool. To allocate from it takes no turn at the sender: memory may be long in coming.
    pool: OnceLock<Pool>,
}

#[derive(Debug)]
struct State {
    /// `None`: a caller sends.
    requests: Option<Box<Sender>>,
    /// `None`: a caller waits for replies.
    replies: Option<Box<Receiver>>,
    calls: Vec<Begun>,
    last: CallId,
    /// Words that had to wait for the sender, or for room in the ring: cancellations, ends, credits.
    words: VecDeque<u64>,
    /// The task that waits for replies.
    reader: Option<Waker>,
    /// Why no call is answered any more.
    over: Option<Error>,
    /// Threads that wait for `changed`, and tasks that wait for the same.
    sleepers: usize,
    tasks: Vec<Waker>,
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
    fn lines(&self) -> usize {
        match self.is_done() {
            true => 0,
            false => lines(self.flow.is_some()),
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.slot, Slot::Done(..))
    }
}

fn lines(streams: bool) -> usize {
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

/// What a caller finds in the state.
enum Wish<R> {
    /// What it wants.
    Is(R),
    /// A reply may bring it.
    Reply,
    /// Another caller will give it back, and no reply brings it.
    Change,
}

impl State {
    /// A number for a new call, and the sender. `None`: too many answers were not taken.
    fn begin(&mut self, most: usize, streams: bool) -> Wish<Option<(CallId, Box<Sender>)>> {
        if self.calls.len() >= MOST_CALLS {
            return Wish::Is(None);
        }
        let used: usize = self.calls.iter().map(Begun::lines).sum();
        let has_room = used + lines(streams) <= most;
        let Some(requests) = self.requests.take_if(|_| has_room) else {
            // A call that is being sent may fail, and then its lines are free without a reply.
            return match self.requests {
                Some(_) => Wish::Reply,
                None => Wish::Change,
            };
        };
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
        Wish::Is(Some((self.last, requests)))
    }

    fn begun(&mut self, call: CallId) -> Option<&mut Begun> {
        self.calls.iter_mut().find(|begun| begun.call == call)
    }

    /// The answer of a call. Items that nobody took are let go.
    fn take_answer(&mut self, call: CallId) -> Wish<(Answer, Message)> {
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

    /// The answer of a call, if this message is it, and nothing else came for the call.
    fn answer_of(
        &mut self,
        call: CallId,
        mut message: Message,
    ) -> Result<(Answer, Message), Message> {
        let (of, how, _) = word::answered(message.word);
        let is_it = |begun: &Begun| begun.call == call && begun.flow.is_none();
        match self.calls.iter().position(is_it) {
            Some(at) if of == call && !matches!(how, Answer::Item | Answer::Credit) => {
                self.calls.swap_remove(at);
                message.word = 0;
                Ok((how, message))
            }
            _ => Err(message),
        }
    }

    /// The next item of a call. `None`: the call is over.
    fn take_item(&mut self, call: CallId) -> Wish<Option<Message>> {
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
    fn send_item(&mut self, call: CallId) -> Wish<Option<Box<Sender>>> {
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

    fn forget(&mut self, call: CallId) {
        self.calls.retain(|begun| begun.call != call);
    }

    /// Undoes what [`send_item`](State::send_item) took.
    fn unspend(&mut self, call: CallId) {
        if let Some(flow) = self.begun(call).and_then(|begun| begun.flow.as_mut()) {
            flow.grant(1);
        }
    }

    /// Hands a message from the service to its call. An error: the service broke the rules of streams.
    fn deliver(&mut self, mut message: Message) -> Result<(), Error> {
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
    fn tell_credit(&mut self, call: CallId) {
        let flow = self.begun(call).and_then(|begun| begun.flow.as_deref_mut());
        if let Some(items) = flow.and_then(Flow::owed) {
            self.say(word::credit(call, items));
        }
    }

    /// Says something without a payload, at once or when the sender is back.
    fn say(&mut self, word: u64) {
        self.words.push_back(word);
        self.say_words();
    }

    /// Says what waits for the sender. If another caller has it, that one does.
    fn say_words(&mut self) {
        if !self.words.is_empty()
            && let Some(requests) = self.requests.take()
        {
            self.give_back(requests);
        }
    }

    /// Puts the sender back, after what waited for it. A word that finds the ring full waits on: items of calls that are over
    /// may lie there.
    fn give_back(&mut self, mut requests: Box<Sender>) {
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
    fn round(&self) -> Duration {
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

/// A caller's turn at one of the two ends. It ends with this, also when a future is dropped.
struct Turn<'a, T> {
    calls: &'a Calls,
    end: Option<T>,
    put: fn(&mut State, T),
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let mut state = self.calls.state.lock();
            (self.put)(&mut state, end);
            self.calls.tell(state);
        }
    }
}

/// A turn at the sender, for one call. If it ends before the message is sent, what it took is put back.
pub(crate) struct Sending<'a> {
    turn: Turn<'a, Box<Sender>>,
    call: CallId,
    undo: Option<fn(&mut State, CallId)>,
}

impl Sending<'_> {
    fn sender(&mut self) -> &mut Sender {
        match &mut self.turn.end {
            Some(requests) => requests,
            None => unreachable!("a turn has its end until it is over"),
        }
    }

    /// Sends a message, and ends the turn. `left`: the longest time to wait.
    pub(crate) fn send<P: Payload>(
        mut self,
        message: P,
        left: Option<Duration>,
    ) -> Result<(), SendError<P::Unsent>> {
        let requests = self.sender();
        topics::see_end(requests);
        let sent = match left {
            Some(left) => requests.send_timeout(message, left),
            None => requests.send(message),
        };
        self.sent(sent.map(drop))
    }

    pub(crate) async fn send_async<P: Payload>(
        mut self,
        message: P,
    ) -> Result<(), SendError<P::Unsent>> {
        let requests = self.sender();
        topics::see_end(requests);
        let sent = requests.send_async(message).await;
        self.sent(sent.map(drop))
    }

    fn sent<T>(&mut self, sent: Result<(), SendError<T>>) -> Result<(), SendError<T>> {
        match sent {
            Ok(()) => {
                self.undo = None;
                Ok(())
            }
            Err(mut failed) => {
                if let ErrorKind::PeerGone | ErrorKind::PeerDied = failed.error.kind() {
                    failed.error = self.turn.calls.over(failed.error);
                }
                Err(failed)
            }
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            undo(&mut self.turn.calls.state.lock(), self.call);
        }
    }
}

/// What a task may do next.
enum Next<'a, R> {
    Go(R),
    Read(Turn<'a, Box<Receiver>>),
}

impl Calls {
    pub(crate) fn new(
        domain: &Domain,
        address: &str,
        (requests, replies): (Sender, Receiver),
        lines: usize,
    ) -> Calls {
        let status = requests.status();
        Calls {
            domain: domain.clone(),
            name: address.into(),
            server: (status.peer, status.peer_pid),
            lines,
            state: BiasedMutex::new(
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
                },
                membarrier::private_expedited,
            ),
            changed: Condvar::new(),
            pool: OnceLock::new(),
        }
    }

    /// Wakes those that wait for a change.
    fn tell(&self, mut state: BiasedGuard<'_, State>) {
        let tasks = std::mem::take(&mut state.tasks);
        let sleepers = state.sleepers;
        drop(state);
        if sleepers > 0 {
            self.changed.notify_all();
        }
        // Under no lock: the waker is the application's.
        tasks.into_iter().for_each(Waker::wake);
    }

    /// The error of an end that is over, with the service's name.
    fn over(&self, error: Error) -> Error {
        let what = match error.kind() {
            ErrorKind::PeerGone => "has ended",
            ErrorKind::PeerDied => "died",
            _ => "cannot answer any more",
        };
        error.context(format!("{} {what}", self.place()))
    }

    pub(crate) fn place(&self) -> String {
        let (domain, pid) = self.server;
        format!("service `{}` (domain {domain}, process {pid})", self.name)
    }

    fn came(&self, state: &mut State, came: Result<Message, Error>) {
        match came {
            Ok(message) => {
                if let Err(error) = state.deliver(message) {
                    state.over = Some(self.over(error));
                }
            }
            Err(error) if error == ErrorKind::TimedOut => {}
            Err(error) => state.over = Some(self.over(error)),
        }
    }

    /// Takes replies until `want` is satisfied. `None`: not by the deadline.
    fn until<R>(
        &self,
        deadline: Option<Instant>,
        want: impl FnMut(&mut State) -> Wish<R>,
    ) -> Result<Option<R>, Error> {
        self.until_is(deadline, want, |_, message| Err(message))
    }

    /// Takes replies until `want` is satisfied, or one of them `is` what is wanted. `None`: not by the deadline.
    #[inline(always)]
    fn until_is<R>(
        &self,
        deadline: Option<Instant>,
        mut want: impl FnMut(&mut State) -> Wish<R>,
        is: impl Fn(&mut State, Message) -> Result<R, Message>,
    ) -> Result<Option<R>, Error> {
        let mut state = self.state.lock();
        loop {
            let may_read = match want(&mut state) {
                Wish::Is(wanted) => {
                    self.tell_reader(state);
                    return Ok(Some(wanted));
                }
                Wish::Reply => true,
                Wish::Change => false,
            };
            if let Some(over) = &state.over {
                return Err(over.clone());
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let round = left.map_or(state.round(), |left| left.min(state.round()));
            let Some(mut replies) = state.replies.take_if(|_| may_read) else {
                state.sleepers += 1;
                state = state.wait(&self.changed, Some(round));
                state.sleepers -= 1;
                state.say_words();
                continue;
            };
            drop(state);
            let came = replies.recv_timeout(round);
            state = self.state.lock();
            state.say_words();
            state.replies = Some(replies);
            let came = match came.map(|message| is(&mut state, message)) {
                Ok(Ok(wanted)) => {
                    self.tell(state);
                    return Ok(Some(wanted));
                }
                Ok(Err(message)) => Ok(message),
                Err(error) => Err(error),
            };
            self.came(&mut state, came);
            if state.sleepers > 0 || !state.tasks.is_empty() {
                self.tell(state);
                state = self.state.lock();
            }
        }
    }

    /// Takes replies until `want` is satisfied, for awaiting.
    async fn until_async<R>(
        &self,
        mut want: impl FnMut(&mut State) -> Wish<R> + Send,
    ) -> Result<R, Error> {
        let mut pause = Pause::each(READS);
        loop {
            let next = poll_fn(|context| {
                let mut state = self.state.lock();
                let may_read = match want(&mut state) {
                    Wish::Is(wanted) => {
                        self.tell_reader(state);
                        return Poll::Ready(Ok(Next::Go(wanted)));
                    }
                    Wish::Reply => true,
                    Wish::Change => false,
                };
                if let Some(over) = &state.over {
                    return Poll::Ready(Err(over.clone()));
                }
                if let Some(replies) = state.replies.take_if(|_| may_read) {
                    return Poll::Ready(Ok(Next::Read(Turn {
                        calls: self,
                        end: Some(replies),
                        put: |state, replies| state.replies = Some(replies),
                    })));
                }
                if !state.tasks.iter().any(|t| t.will_wake(context.waker())) {
                    state.tasks.push(context.waker().clone());
                }
                Poll::Pending
            });
            match next.await? {
                Next::Go(wanted) => return Ok(wanted),
                Next::Read(mut turn) => {
                    if let Some(replies) = &mut turn.end {
                        let came = self.read_async(replies).await;
                        self.came(&mut self.state.lock(), came);
                    }
                    drop(turn);
                    pause.now_and_then().await;
                }
            }
        }
    }

    /// Awaits a reply, and says words that wait for room meanwhile.
    async fn read_async(&self, replies: &mut Receiver) -> Result<Message, Error> {
        let mut reading = replies.recv_async();
        let mut sleep = None;
        poll_fn(|context| {
            if let Poll::Ready(came) = Pin::new(&mut reading).poll(context) {
                return Poll::Ready(came);
            }
            let mut state = self.state.lock();
            state.say_words();
            state.reader = Some(context.waker().clone());
            if !state.words.is_empty() {
                let sleep = sleep.get_or_insert_with(|| Sleep::new(&self.domain));
                sleep.begin(std::iter::empty(), context, AGAIN)?;
            }
            Poll::Pending
        })
        .await
    }

    /// A turn at the sender, which what it took goes back after.
    fn turn(&self, call: CallId, end: Box<Sender>, undo: fn(&mut State, CallId)) -> Sending<'_> {
        let turn = Turn {
            calls: self,
            end: Some(end),
            put: State::give_back,
        };
        Sending {
            turn,
            call,
            undo: Some(undo),
        }
    }

    fn has_lines(&self, streams: bool) -> Result<(), Error> {
        let (needed, lines) = (lines(streams), self.lines);
        if needed <= lines {
            return Ok(());
        }
        let text = format!(
            "a call with streams needs {needed} lines, and the client has {lines}: ServiceOptions::lines says how many"
        );
        Err(Error::new(ErrorKind::BadArgument, text))
    }

    /// A number for a new call, and a turn to send its request. `None`: not by the deadline.
    pub(crate) fn begin(
        &self,
        streams: bool,
        deadline: Option<Instant>,
    ) -> Result<Option<(CallId, Sending<'_>)>, Error> {
        self.has_lines(streams)?;
        let begun = self.until(deadline, |state| state.begin(self.lines, streams))?;
        begun.map(|begun| self.begun(begun)).transpose()
    }

    pub(crate) async fn begin_async(&self, streams: bool) -> Result<(CallId, Sending<'_>), Error> {
        self.has_lines(streams)?;
        let begun = self.until_async(|state| state.begin(self.lines, streams));
        self.begun(begun.await?)
    }

    fn begun(&self, begun: Option<(CallId, Box<Sender>)>) -> Result<(CallId, Sending<'_>), Error> {
        let (call, end) = begun.ok_or_else(|| self.untaken())?;
        Ok((call, self.turn(call, end, State::forget)))
    }

    fn untaken(&self) -> Error {
        let text = format!(
            "{MOST_CALLS} calls of {} are in flight, or their answers were not taken: wait for them, or drop them",
            self.place()
        );
        Error::new(ErrorKind::Limit, text)
    }

    /// A turn to send an item. `None`: not by the deadline; `Some(None)`: the call is over.
    pub(crate) fn begin_item(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Result<Option<Option<Sending<'_>>>, Error> {
        let begun = self.until(deadline, |state| state.send_item(call))?;
        Ok(begun.map(|end| end.map(|end| self.turn(call, end, State::unspend))))
    }

    pub(crate) async fn begin_item_async(
        &self,
        call: CallId,
    ) -> Result<Option<Sending<'_>>, Error> {
        let end = self.until_async(|state| state.send_item(call)).await?;
        Ok(end.map(|end| self.turn(call, end, State::unspend)))
    }

    /// The next item. `None`: not by the deadline; `Some(None)`: the call is over.
    pub(crate) fn item(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Result<Option<Option<Message>>, Error> {
        self.until(deadline, |state| state.take_item(call))
    }

    pub(crate) async fn item_async(&self, call: CallId) -> Result<Option<Message>, Error> {
        self.until_async(|state| state.take_item(call)).await
    }

    /// Says that no further item comes.
    pub(crate) fn end_items(&self, call: CallId) {
        let mut state = self.state.lock();
        if state.begun(call).is_some_and(|begun| !begun.is_done()) {
            state.say(word::end(call));
            self.tell_reader(state);
        }
    }

    /// Wakes the task that waits for replies, if a word found no room.
    fn tell_reader(&self, state: BiasedGuard<'_, State>) {
        if !state.words.is_empty() {
            self.tell(state);
        }
    }

    /// The pool that the service alone can read: made at the first call.
    pub(crate) fn pool(&self) -> Result<&Pool, Error> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let sender = self.until(None, |state| match state.requests.take() {
            Some(requests) => Wish::Is(requests),
            None => Wish::Change,
        });
        // Without a deadline there is one, or an error.
        let mut requests = sender?.ok_or(ErrorKind::TimedOut)?;
        let pool = topics::own_pool(&mut requests);
        let mut state = self.state.lock();
        state.give_back(requests);
        self.tell(state);
        let pool = pool?;
        Ok(self.pool.get_or_init(|| pool))
    }

    /// The service's domain.
    pub(crate) fn domain(&self) -> DomainId {
        self.server.0
    }

    /// Why no call is answered any more. Takes an answer that is there, as an end is seen behind the last one alone.
    pub(crate) fn ended(&self) -> Option<Error> {
        let mut state = self.state.lock();
        if let Some(mut replies) = state.replies.take() {
            let came = replies.try_recv().transpose();
            state.replies = Some(replies);
            if let Some(came) = came {
                self.came(&mut state, came);
                let over = state.over.clone();
                self.tell(state);
                return over;
            }
        }
        state.over.clone()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Waits for the answer of a call.
    pub(crate) fn answer(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Result<Option<(Answer, Message)>, Error> {
        self.until_is(
            deadline,
            |state| state.take_answer(call),
            |state, message| state.answer_of(call, message),
        )
    }

    pub(crate) async fn answer_async(&self, call: CallId) -> Result<(Answer, Message), Error> {
        self.until_async(|state| state.take_answer(call)).await
    }

    /// No caller waits for that call any more: the service is told.
    pub(crate) fn abandon(&self, call: CallId) {
        let mut state = self.state.lock();
        let Some(begun) = state.begun(call) else {
            return;
        };
        match begun.slot {
            Slot::Waiting => begun.slot = Slot::Abandoned,
            Slot::Done(..) => return state.forget(call),
            Slot::Abandoned => return,
        }
        if let Some(flow) = &mut begun.flow {
            flow.discard();
        }
        state.say(word::cancel(call));
        self.tell_reader(state);
    }

    pub(crate) fn late(&self, started: Instant) -> Error {
        let text = format!(
            "{} has not answered in {} ms",
            self.place(),
            started.elapsed().as_millis()
        );
        Error::new(ErrorKind::TimedOut, text)
    }
}
