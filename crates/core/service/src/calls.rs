//! A client's two channels, and its calls in flight.
//!
//! No thread of its own reads the replies. One of the callers that wait does, for all of them: the receiver lies in `State`, and the caller that takes it
//! out hands each reply to its call.
//!
//! The usual call waits for nothing but its answer ([`begin_now`](Calls::begin_now), [`answer_soon`](Calls::answer_soon)). It keeps payload and message
//! in registers: what has a destructor lies in memory wherever a call may unwind, so both are [`ManuallyDrop`] there.

use crate::error::CallError;
use crate::lock;
use crate::options::{CallOptions, ServiceOptions, Times};
use crate::pause::Pause;
use crate::state::{self, AGAIN, MOST_CALLS, State, Wish};
use crate::word::{self, Answer, Ask, CallId};
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tranship_core::topics::{self, Sleep};
use tranship_core::{
    Domain, DomainId, Error, ErrorKind, Message, Payload, Pool, Receiver, SendError, Sender,
};

/// How often a caller looks for its answer before it waits in another way.
const LOOKS: u32 = 256;
/// How many messages a task takes before other tasks of its thread have a turn.
const READS: u32 = 64;

/// State that a client's callers share.
#[derive(Debug)]
pub(crate) struct Calls {
    domain: Domain,
    name: String,
    server: (DomainId, u32),
    /// The lines of each ring. A call has so many of them for itself that the replies' ring is never full. The requests' ring
    /// may be: items of calls that are over may lie there.
    lines: usize,
    /// Whether a caller that waits looks a few times before it sleeps.
    spins: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// The channel's own pool. To allocate from it takes no turn at the sender: memory may be long in coming.
    pool: OnceLock<Pool>,
}

/// Load of a service, as a client sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Calls of this client in flight.
    pub(crate) calls: usize,
    /// A worker sleeps until this client, or another one, calls.
    pub(crate) sleeps: bool,
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
            let mut state = lock(&self.calls.state);
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
            undo(&mut lock(&self.turn.calls.state), self.call);
        }
    }
}

/// Next step of a task.
enum Next<'a, R> {
    Go(R),
    Read(Turn<'a, Box<Receiver>>),
}

impl Calls {
    pub(crate) fn new(
        domain: &Domain,
        address: &str,
        (requests, replies): (Sender, Receiver),
        options: &ServiceOptions,
    ) -> Calls {
        let status = requests.status();
        Calls {
            domain: domain.clone(),
            name: address.into(),
            server: (status.peer, status.peer_pid),
            lines: options.lines as usize,
            spins: options.spins(),
            state: Mutex::new(State::new(requests, replies)),
            changed: Condvar::new(),
            pool: OnceLock::new(),
        }
    }

    /// Wakes those that wait for a change.
    fn tell(&self, mut state: MutexGuard<'_, State>) {
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

    /// Takes in what came. An error is the reader's own: the message stays the next one, and the client goes on.
    fn came(&self, state: &mut State, came: Result<Message, Error>) -> Result<(), Error> {
        match came.and_then(|message| state.deliver(message)) {
            Ok(()) => {}
            Err(error) if error == ErrorKind::TimedOut => {}
            Err(error) if error == ErrorKind::ChunkPending => return Err(error),
            Err(error) => state.over = Some(self.over(error)),
        }
        Ok(())
    }

    /// Takes replies until `want` is satisfied. `None`: not by the deadline.
    fn until<R>(
        &self,
        deadline: Option<Instant>,
        mut want: impl FnMut(&mut State) -> Wish<R>,
    ) -> Result<Option<R>, Error> {
        let mut state = lock(&self.state);
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
                let woken = self.changed.wait_timeout(state, round);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                state.sleepers -= 1;
                state.say_words();
                continue;
            };
            drop(state);
            let came = replies.recv_timeout(round);
            state = lock(&self.state);
            state.say_words();
            state.replies = Some(replies);
            let taken = self.came(&mut state, came);
            if state.sleepers > 0 || !state.tasks.is_empty() {
                self.tell(state);
                state = lock(&self.state);
            }
            taken?;
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
                let mut state = lock(&self.state);
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
                        self.came(&mut lock(&self.state), came)?;
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
            let mut state = lock(&self.state);
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
        let (needed, lines) = (state::lines(streams), self.lines);
        if needed <= lines {
            return Ok(());
        }
        let text = format!(
            "a call with streams needs {needed} lines, and the client has {lines}: ServiceOptions::lines says how many"
        );
        Err(Error::new(ErrorKind::BadArgument, text))
    }

    /// Begins a call, and sends its request.
    #[inline(always)]
    pub(crate) fn begin<P: Payload>(
        &self,
        payload: P,
        options: CallOptions,
        times: Option<Times>,
    ) -> Result<CallId, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        match self.begin_now(payload, options.ask(times)) {
            Ok(call) => Ok(call),
            Err(payload) => self.begin_late(payload, options, times),
        }
    }

    /// Begins a call whose request goes at once. In any other case the payload comes back.
    #[inline(always)]
    fn begin_now<P: Payload>(&self, payload: P, ask: Ask) -> Result<CallId, P> {
        let payload = ManuallyDrop::new(payload);
        let added = self.add_now(ask.streams);
        let payload = ManuallyDrop::into_inner(payload);
        let Some((mut state, call)) = added else {
            return Err(payload);
        };
        let Some(requests) = state.requests.as_deref_mut() else {
            return Err(payload);
        };
        let sent = topics::send_now(requests, payload, word::request(call, ask));
        match sent {
            Ok(()) => Ok(call),
            Err(payload) => {
                state.forget(call);
                Err(payload)
            }
        }
    }

    /// Adds a call, if nothing has to be waited for.
    fn add_now(&self, streams: bool) -> Option<(MutexGuard<'_, State>, CallId)> {
        let mut state = lock(&self.state);
        let has_room = state.has_room(self.lines, streams);
        if !has_room || state.over.is_some() || !state.words.is_empty() {
            return None;
        }
        topics::see_end(state.requests.as_deref_mut()?);
        let call = state.add(streams);
        Some((state, call))
    }

    #[cold]
    #[inline(never)]
    fn begin_late<P: Payload>(
        &self,
        payload: P,
        options: CallOptions,
        times: Option<Times>,
    ) -> Result<CallId, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let (call, turn) = match self.turn_to_begin(options.streams, times) {
            Ok(begun) => begun,
            Err(error) => return Err(SendError::new(error, payload.unsent())),
        };
        let ask = options.ask(times);
        let sent = turn.send((payload, word::request(call, ask)), ask.left);
        match sent {
            Ok(()) => Ok(call),
            Err(failed) => Err(failed.map(|(payload, _)| payload)),
        }
    }

    /// A number for a new call, and a turn to send its request.
    fn turn_to_begin(
        &self,
        streams: bool,
        times: Option<Times>,
    ) -> Result<(CallId, Sending<'_>), Error> {
        self.has_lines(streams)?;
        let deadline = times.map(|times| times.deadline);
        match self.until(deadline, |state| state.begin(self.lines, streams))? {
            Some(begun) => self.begun(begun),
            None => Err(self.no_room(times)),
        }
    }

    /// Begins a call, and sends its request, for awaiting.
    pub(crate) async fn begin_async<P: Payload>(
        &self,
        payload: P,
        options: CallOptions,
        times: Option<Times>,
    ) -> Result<CallId, SendError<P::Unsent>>
    where
        (P, u64): Payload<Unsent = (P::Unsent, u64)>,
    {
        let streams = options.streams;
        let turn = match self.has_lines(streams) {
            Ok(()) => {
                self.until_async(|state| state.begin(self.lines, streams))
                    .await
            }
            Err(error) => Err(error),
        };
        let (call, turn) = match turn.and_then(|begun| self.begun(begun)) {
            Ok(begun) => begun,
            Err(error) => return Err(SendError::new(error, payload.unsent())),
        };
        let word = word::request(call, options.ask(times));
        match turn.send_async((payload, word)).await {
            Ok(()) => Ok(call),
            Err(failed) => Err(failed.map(|(payload, _)| payload)),
        }
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
        let mut state = lock(&self.state);
        state.end_items(call);
        self.tell_reader(state);
    }

    /// Wakes the task that waits for replies, if a word found no room.
    fn tell_reader(&self, state: MutexGuard<'_, State>) {
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
        let mut state = lock(&self.state);
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
        let mut state = lock(&self.state);
        if let Some(mut replies) = state.replies.take() {
            let came = replies.try_recv().transpose();
            state.replies = Some(replies);
            if let Some(came) = came {
                // The next caller gets the error.
                let _ = self.came(&mut state, came);
                let over = state.over.clone();
                self.tell(state);
                return over;
            }
        }
        state.over.clone()
    }

    pub(crate) fn load(&self) -> Load {
        let state = lock(&self.state);
        Load {
            calls: state.in_flight(),
            sleeps: state.requests.as_deref().is_some_and(topics::is_awaited),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.state).in_flight()
    }

    /// Waits for the answer of a call. `None`: it is not there by the deadline.
    #[inline(always)]
    pub(crate) fn answer(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Result<Option<(Answer, Message)>, Error> {
        match self.answer_soon(call, deadline) {
            Some(answer) => Ok(Some(answer)),
            None => self.answer_late(call, deadline),
        }
    }

    #[inline(never)]
    fn answer_late(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Result<Option<(Answer, Message)>, Error> {
        self.until(deadline, |state| state.take_answer(call))
    }

    /// The answer of a call without streams, if it is the next reply, and comes soon.
    #[inline(always)]
    fn answer_soon(&self, call: CallId, deadline: Option<Instant>) -> Option<(Answer, Message)> {
        let mut state = self.look_for_reply(call, deadline)?;
        let message = match state.replies.as_deref_mut()?.try_recv() {
            Ok(message) => ManuallyDrop::new(message?),
            Err(error) => {
                // The long way finds the error again.
                let _ = self.came(&mut state, Err(error));
                return None;
            }
        };
        let (of, how, _) = word::answered(message.word);
        if of != call || how.goes_on() || !state.is_answered(call) {
            let _ = self.came(&mut state, Ok(ManuallyDrop::into_inner(message)));
            return None;
        }
        drop(state);
        let body = ManuallyDrop::into_inner(message).body;
        Some((how, Message { word: 0, body }))
    }

    /// Looks a few times whether a reply is there, for a caller that waits for that call, or sleeps briefly. `None`: there
    /// is none, or others have to be told first.
    #[inline(never)]
    fn look_for_reply(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Option<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        if !state.is_plain(call) || !state.words.is_empty() {
            return None;
        }
        let replies = state.replies.take()?;
        drop(state);
        let is_over = deadline.is_some_and(|at| at <= Instant::now());
        let is_there = match self.spins {
            _ if is_over => replies.is_ready(),
            true => (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                replies.is_ready()
            }),
            false => replies.is_ready() || topics::await_briefly(&replies, deadline),
        };
        let mut state = lock(&self.state);
        state.replies = Some(replies);
        if state.has_news() {
            self.tell(state);
            return None;
        }
        is_there.then_some(state)
    }

    /// Result for a caller.
    #[inline(always)]
    pub(crate) fn result<T>(
        &self,
        answer: Result<(Answer, Message), Error>,
    ) -> Result<Message, CallError<T>> {
        match answer {
            Ok((Answer::Done, message)) => Ok(message),
            Ok((how, message)) => Err(self.without_result(how, message)),
            Err(error) => Err(CallError::over(error)),
        }
    }

    #[cold]
    #[inline(never)]
    fn without_result<T>(&self, how: Answer, message: Message) -> CallError<T> {
        let (kind, what) = match how {
            Answer::Failed => return CallError::Failed(message),
            Answer::Late => (
                ErrorKind::TimedOut,
                "had no worker for the request before its time was over",
            ),
            _ => (ErrorKind::PeerDied, "let the request go without an answer"),
        };
        CallError::Broken(Error::new(kind, format!("{} {what}", self.place())))
    }

    pub(crate) async fn answer_async(&self, call: CallId) -> Result<(Answer, Message), Error> {
        self.until_async(|state| state.take_answer(call)).await
    }

    /// No caller waits for that call any more: the service is told.
    pub(crate) fn abandon(&self, call: CallId) {
        let mut state = lock(&self.state);
        state.abandon(call);
        self.tell_reader(state);
    }

    /// The error of a call that found no room in time.
    fn no_room(&self, times: Option<Times>) -> Error {
        let waited = times.map(|times| times.started.elapsed());
        let text = format!(
            "{} has taken no further request in {} ms: {} calls are in flight",
            self.place(),
            waited.unwrap_or_default().as_millis(),
            self.in_flight()
        );
        Error::new(ErrorKind::TimedOut, text)
    }

    /// The error of a call whose time is over.
    pub(crate) fn late_since(&self, times: Option<Times>) -> Error {
        let started = times.map(|times| times.started);
        self.late(started.unwrap_or_else(Instant::now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Services;
    use tranship_testkit::Watchdog;

    /// The message stays the next one, and may be taken when the process reaches a manager again.
    #[test]
    fn an_answer_whose_memory_nobody_shows_ends_no_client() {
        let _dog = Watchdog::new();
        let domain = Domain::builder().helper_thread(true).embedded();
        let domain = domain.expect("a domain");
        let service = domain.serve("local:pending").expect("a service");
        std::thread::spawn(move || {
            while let Ok(request) = service.recv() {
                request.reply(b"done").expect("answered");
            }
        });
        let client = domain.client("local:pending").expect("a client");
        let calls = client.calls();
        let not_shown = || Err(ErrorKind::ChunkPending.into());
        let error = calls.came(&mut lock(&calls.state), not_shown());
        assert_eq!(
            error.expect_err("the reader is told"),
            ErrorKind::ChunkPending
        );
        assert!(calls.ended().is_none(), "the client goes on");
        let answer = client.call(b"x").expect("an answer");
        assert_eq!(answer.to_vec(), b"done");
        assert_eq!(calls.in_flight(), 0);
    }
}
