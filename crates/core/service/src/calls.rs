//! A client's two channels, and its calls in flight.
//!
//! No thread of its own reads the replies. One of the callers that wait does, for all of them: the receiver lies in `State`, and the caller that takes it
//! out hands each reply to its call.

use crate::lock;
use crate::word::{self, Answer, CallId};
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tranship_core::{DomainId, Error, ErrorKind, Message, Payload, Receiver, SendError, Sender};

/// What a client's callers share.
#[derive(Debug)]
pub(crate) struct Calls {
    name: String,
    server: (DomainId, u32),
    /// The most calls in flight. Each has at most two messages on its way to the service, and one back: neither ring is ever full.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// `None`: a caller sends.
    requests: Option<Box<Sender>>,
    /// `None`: a caller waits for replies.
    replies: Option<Box<Receiver>>,
    calls: Vec<(CallId, Slot)>,
    last: CallId,
    /// Cancellations that had to wait for the sender.
    cancels: Vec<CallId>,
    /// Why no call is answered any more.
    over: Option<Error>,
    /// Threads that wait for `changed`, and tasks that wait for the same.
    sleepers: usize,
    tasks: Vec<Waker>,
}

#[derive(Debug)]
enum Slot {
    Waiting,
    Done(Answer, Message),
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
    /// A number for a new call, and the sender.
    fn begin(&mut self, most: usize) -> Wish<(CallId, Box<Sender>)> {
        if self.calls.len() >= most {
            return Wish::Reply;
        }
        let Some(requests) = self.requests.take() else {
            return Wish::Change;
        };
        loop {
            self.last = word::next(self.last);
            if self.calls.iter().all(|(call, _)| *call != self.last) {
                break;
            }
        }
        self.calls.push((self.last, Slot::Waiting));
        Wish::Is((self.last, requests))
    }

    /// The answer of a call.
    fn take_answer(&mut self, call: CallId) -> Wish<(Answer, Message)> {
        let is_it =
            |(other, slot): &(CallId, Slot)| *other == call && matches!(slot, Slot::Done(..));
        let at = self.calls.iter().position(is_it);
        match at.map(|at| self.calls.swap_remove(at).1) {
            Some(Slot::Done(how, message)) => Wish::Is((how, message)),
            Some(Slot::Waiting | Slot::Abandoned) | None => Wish::Reply,
        }
    }

    fn forget(&mut self, call: CallId) {
        self.calls.retain(|(other, _)| *other != call);
    }

    /// Hands a reply to its call.
    fn deliver(&mut self, mut message: Message) {
        let (call, how) = word::answered(message.word);
        message.word = 0;
        let Some(at) = self.calls.iter().position(|(other, _)| *other == call) else {
            return; // the service answers what was not asked
        };
        match self.calls[at].1 {
            Slot::Waiting => self.calls[at].1 = Slot::Done(how, message),
            Slot::Abandoned => drop(self.calls.swap_remove(at)),
            Slot::Done(..) => {}
        }
    }

    /// Puts the sender back, after what waited for it.
    fn give_back(&mut self, mut requests: Box<Sender>) {
        drop(requests.take_unsent());
        for call in std::mem::take(&mut self.cancels) {
            // A service that is gone needs none.
            let _ = requests.try_send((b"", word::cancel(call)));
        }
        self.requests = Some(requests);
    }
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

/// A task's turn at the sender, for one call. If it ends before the request is sent, there is no such call.
pub(crate) struct Sending<'a> {
    turn: Turn<'a, Box<Sender>>,
    call: Option<CallId>,
}

impl Sending<'_> {
    pub(crate) async fn send_async<P: Payload>(
        mut self,
        message: P,
    ) -> Result<(), SendError<P::Unsent>> {
        let Some(requests) = &mut self.turn.end else {
            unreachable!("a turn has its end until it is over");
        };
        requests.send_async(message).await?;
        self.call = None;
        Ok(())
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            lock(&self.turn.calls.state).forget(call);
        }
    }
}

/// What a task may do next.
enum Next<'a, R> {
    Go(R),
    Read(Turn<'a, Box<Receiver>>),
}

impl Calls {
    pub(crate) fn new(address: &str, requests: Sender, replies: Receiver, most: usize) -> Calls {
        let status = requests.status();
        Calls {
            name: address.into(),
            server: (status.peer, status.peer_pid),
            most,
            state: Mutex::new(State {
                requests: Some(Box::new(requests)),
                replies: Some(Box::new(replies)),
                calls: Vec::new(),
                last: 0,
                cancels: Vec::new(),
                over: None,
                sleepers: 0,
                tasks: Vec::new(),
            }),
            changed: Condvar::new(),
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

    fn came(&self, state: &mut State, came: Result<Message, Error>) {
        match came {
            Ok(message) => state.deliver(message),
            Err(error) if error == ErrorKind::TimedOut => {}
            Err(error) => state.over = Some(self.over(error)),
        }
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
                Wish::Is(wanted) => return Ok(Some(wanted)),
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
            let Some(mut replies) = state.replies.take_if(|_| may_read) else {
                state.sleepers += 1;
                state = match left {
                    Some(left) => {
                        let woken = self.changed.wait_timeout(state, left);
                        woken.unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => {
                        let woken = self.changed.wait(state);
                        woken.unwrap_or_else(PoisonError::into_inner)
                    }
                };
                state.sleepers -= 1;
                continue;
            };
            drop(state);
            let came = match left {
                Some(left) => replies.recv_timeout(left),
                None => replies.recv(),
            };
            state = lock(&self.state);
            state.replies = Some(replies);
            self.came(&mut state, came);
            if state.sleepers > 0 || !state.tasks.is_empty() {
                self.tell(state);
                state = lock(&self.state);
            }
        }
    }

    /// Takes replies until `want` is satisfied, for awaiting.
    async fn until_async<R>(
        &self,
        mut want: impl FnMut(&mut State) -> Wish<R> + Send,
    ) -> Result<R, Error> {
        loop {
            let next = poll_fn(|context| {
                let mut state = lock(&self.state);
                let may_read = match want(&mut state) {
                    Wish::Is(wanted) => return Poll::Ready(Ok(Next::Go(wanted))),
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
                        let came = replies.recv_async().await;
                        self.came(&mut lock(&self.state), came);
                    }
                }
            }
        }
    }

    /// A number for a new call, and the sender, to be given back. `None`: not by the deadline.
    pub(crate) fn begin(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<(CallId, Box<Sender>)>, Error> {
        self.until(deadline, |state| state.begin(self.most))
    }

    pub(crate) async fn begin_async(&self) -> Result<(CallId, Sending<'_>), Error> {
        let (call, requests) = self.until_async(|state| state.begin(self.most)).await?;
        let turn = Turn {
            calls: self,
            end: Some(requests),
            put: State::give_back,
        };
        let sending = Sending {
            turn,
            call: Some(call),
        };
        Ok((call, sending))
    }

    /// The sender, to be given back.
    pub(crate) fn sender(&self) -> Result<Box<Sender>, Error> {
        let sender = self.until(None, |state| match state.requests.take() {
            Some(requests) => Wish::Is(requests),
            None => Wish::Change,
        });
        // Without a deadline there is one, or an error.
        sender?.ok_or(ErrorKind::TimedOut.into())
    }

    pub(crate) fn give_back(&self, requests: Box<Sender>) {
        let mut state = lock(&self.state);
        state.give_back(requests);
        self.tell(state);
    }

    pub(crate) fn in_flight(&self) -> usize {
        lock(&self.state).calls.len()
    }

    /// Waits for the answer of a call.
    pub(crate) fn answer(
        &self,
        call: CallId,
        deadline: Option<Instant>,
    ) -> Result<Option<(Answer, Message)>, Error> {
        self.until(deadline, |state| state.take_answer(call))
    }

    pub(crate) async fn answer_async(&self, call: CallId) -> Result<(Answer, Message), Error> {
        self.until_async(|state| state.take_answer(call)).await
    }

    /// No caller waits for that call any more: the service is told.
    pub(crate) fn abandon(&self, call: CallId) {
        let mut state = lock(&self.state);
        let slot = state.calls.iter_mut().find(|(other, _)| *other == call);
        match slot {
            Some((_, slot @ Slot::Waiting)) => *slot = Slot::Abandoned,
            Some((_, Slot::Done(..))) => return state.forget(call),
            Some((_, Slot::Abandoned)) | None => return,
        }
        state.cancels.push(call);
        if let Some(requests) = state.requests.take() {
            state.give_back(requests);
        }
    }

    /// What became of a request that was to be sent.
    pub(crate) fn sent<T>(
        &self,
        call: CallId,
        sent: Result<(), SendError<(T, u64)>>,
    ) -> Result<(), SendError<T>> {
        sent.map_err(|failed| {
            lock(&self.state).forget(call);
            let SendError { error, unsent } = failed;
            let error = match error.kind() {
                ErrorKind::PeerGone | ErrorKind::PeerDied => self.over(error),
                _ => error,
            };
            SendError::new(error, unsent.0)
        })
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
