//! A service's clients: those that connect, and those that call.

use crate::error::is_gone;
use crate::options::ServiceOptions;
use crate::peer::{Ahead, Peer};
use crate::request::Request;
use crate::word::{self, Answer, Ask, CallId, Said, WELCOME};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};
use tranship_core::error::TypeMismatch;
use tranship_core::topics::Bell;
use tranship_core::{
    DomainId, Error, ErrorKind, Listener, Message, PollItem, Receiver, Sender, Status, Wait, poll,
    topics,
};

/// How long a client may take to say which two channels are its own.
const HALF_OPEN: Duration = Duration::from_secs(5);
/// The most channels without a partner, of each kind. One more takes the place of the oldest one of the user that
/// has most of them.
const MOST_HALF_OPEN: usize = 64;
/// The most requests of one client that are read ahead, to find what lies behind them; or half the lines, if that is
/// more: so many calls an honest client may have in flight.
const MOST_AHEAD: usize = 256;
/// The most messages that one look reads from one client. Then the other clients' turn comes.
const MOST_READS: usize = 256;
/// How often a service that always has requests looks for new clients: once in so many.
const LOOK_EACH: u32 = 64;
/// How often a service that spins looks for requests between two looks for clients.
const SPINS: u32 = 1 << 14;
/// The longest sleep: channels without a partner are looked for after it.
const SLEEP: Duration = Duration::from_millis(250);

/// A client that is connected.
#[derive(Debug)]
struct Client {
    requests: Receiver,
    peer: Arc<Peer>,
    /// The next request's handle of `peer`. It is counted while the service waits.
    spare: Option<Arc<Peer>>,
    /// Requests that were read ahead, and how many there may be.
    ahead: VecDeque<Message>,
    most_ahead: usize,
    /// A message that a task has received, and has still to take in.
    came: Option<Message>,
    gone: bool,
}

impl Client {
    /// The next request that is to be begun. `None` also after [`MOST_READS`] messages.
    ///
    /// `fresh`: a request is new if the ring was empty a moment ago. No cancellation lies behind it then, and no line behind it is looked at.
    #[inline(always)]
    fn next(&mut self, fresh: bool) -> Option<Request> {
        if self.is_over() {
            return None;
        }
        let mut reads = MOST_READS;
        while self.ahead.len() < self.most_ahead
            && self.requests.is_ready()
            && let Some(message) = self.read(&mut reads)
        {
            let is_alone = self.ahead.is_empty() && (fresh || !self.requests.is_ready());
            match word::said(message.word) {
                // With none behind it there is nothing to be read ahead for.
                Some(Said::Request { call, ask }) if is_alone => {
                    if ask.streams {
                        self.peer.open(call);
                    }
                    if let Some(request) = self.begin(call, ask, message) {
                        return Some(request);
                    }
                }
                said => self.take_in(said, message),
            }
            if fresh || self.is_over() {
                break;
            }
        }
        while let Some(message) = self.ahead.pop_front() {
            if let Some(Said::Request { call, ask }) = word::said(message.word)
                && let Some(request) = self.begin(call, ask, message)
            {
                return Some(request);
            }
        }
        None
    }

    /// Begins a request, unless its time is over.
    #[inline(always)]
    fn begin(&mut self, call: CallId, ask: Ask, message: Message) -> Option<Request> {
        if ask.left == Some(Duration::ZERO) {
            self.peer.answer(call, Answer::Late);
            return None;
        }
        self.peer.forget(call);
        let peer = self.spare.take();
        let peer = peer.unwrap_or_else(|| Arc::clone(&self.peer));
        Some(Request::new(peer, call, ask, message))
    }

    /// Whether the service has given the client up. No request of such a client is begun.
    #[inline]
    fn is_over(&mut self) -> bool {
        let is_over = self.peer.is_cut();
        if is_over {
            self.gone = true;
            self.ahead.clear();
        }
        is_over
    }

    /// Reads one of the `reads` messages that this look may still read.
    #[inline(always)]
    fn read(&mut self, reads: &mut usize) -> Option<Message> {
        *reads = reads.checked_sub(1)?;
        match self.requests.try_recv() {
            Ok(message) => message,
            Err(_) => {
                // Whatever it is, nothing more comes.
                self.gone = true;
                self.peer.is_gone();
                None
            }
        }
    }

    /// Reads ahead, for cancellations and for items of calls that have begun.
    fn look_ahead(&mut self, reads: &mut usize) {
        while self.ahead.len() < self.most_ahead
            && !self.is_over()
            && let Some(message) = self.read(reads)
        {
            self.take_in(word::said(message.word), message);
        }
    }

    /// Whether anything that it sends can be read now.
    fn has_room(&self) -> bool {
        self.ahead.len() < self.most_ahead && !self.gone
    }

    /// Does what a message says. A client that says what no client may say is given up.
    fn take_in(&mut self, said: Option<Said>, message: Message) {
        let fits = match said {
            Some(Said::Request { call, ask }) => {
                if ask.streams {
                    self.peer.open(call);
                }
                self.ahead.push_back(message);
                true
            }
            Some(Said::Cancel { call }) => {
                self.cancel(call);
                true
            }
            Some(Said::Item { call }) => self.peer.stream(call, |flow| flow.put(message)),
            Some(Said::End { call }) => self.peer.stream(call, |flow| {
                flow.end();
                true
            }),
            Some(Said::Credit { call, items }) => self.peer.stream(call, |flow| {
                flow.grant(items);
                true
            }),
            None => false,
        };
        if !fits {
            self.peer.cut();
        }
    }

    /// A request that is cancelled before it is begun is let go.
    fn cancel(&mut self, call: CallId) {
        let is_it = |m: &Message| matches!(word::said(m.word), Some(Said::Request { call: c, .. }) if c == call);
        match self.ahead.iter().position(is_it) {
            Some(at) => {
                self.ahead.remove(at);
                self.peer.answer(call, Answer::Dropped);
            }
            None => self.peer.cancel(call),
        }
    }
}

/// A channel of a client whose other one is not here yet.
#[derive(Debug)]
struct HalfOpen<E> {
    end: E,
    peer: DomainId,
    uid: u32,
    /// Number that the client gives both channels.
    number: Option<u64>,
    since: Instant,
    gone: bool,
}

impl<E> HalfOpen<E> {
    fn new(end: E, status: &Status) -> HalfOpen<E> {
        HalfOpen {
            end,
            peer: status.peer,
            uid: status.peer_uid,
            number: None,
            since: Instant::now(),
            gone: false,
        }
    }

    /// Whether its partner is waited for, after a look at what the client said: no partner comes of a client that is
    /// gone or takes too long.
    fn is_wanted(
        &mut self,
        said: impl FnOnce(&mut E) -> Result<Option<Message>, Error>,
        is_gone: impl FnOnce(&E) -> bool,
    ) -> bool {
        if self.number.is_none() {
            match said(&mut self.end) {
                Ok(said) => self.number = said.map(|message| message.word),
                Err(_) => self.gone = true,
            }
        }
        !self.gone && self.since.elapsed() < HALF_OPEN && !is_gone(&self.end)
    }
}

/// Adds a channel without a partner. If there are too many, the user that has most of them loses the oldest one.
fn add<E>(halves: &mut Vec<HalfOpen<E>>, half: HalfOpen<E>) {
    halves.push(half);
    if halves.len() <= MOST_HALF_OPEN {
        return;
    }
    let of_user = |uid| halves.iter().filter(|half| half.uid == uid).count();
    let oldest = halves
        .iter()
        .enumerate()
        .max_by_key(|(_, half)| (of_user(half.uid), Reverse(half.since)));
    if let Some((at, _)) = oldest {
        halves.swap_remove(at);
    }
}

/// All clients, and where new ones come in. One worker at a time has it.
#[derive(Debug)]
pub(crate) struct Hall {
    requests: Listener<Receiver>,
    replies: Listener<Sender>,
    half_requests: Vec<HalfOpen<Receiver>>,
    half_replies: Vec<HalfOpen<Sender>>,
    clients: Vec<Client>,
    /// The client that is asked first.
    next: usize,
    served: u32,
    /// A request came since the last sleep for anything.
    flows: bool,
    options: ServiceOptions,
    service: Weak<dyn Ahead>,
}

impl Hall {
    pub(crate) fn new(
        requests: Listener<Receiver>,
        replies: Listener<Sender>,
        options: ServiceOptions,
        service: Weak<dyn Ahead>,
    ) -> Hall {
        Hall {
            requests,
            replies,
            half_requests: Vec::new(),
            half_replies: Vec::new(),
            clients: Vec::new(),
            next: 0,
            served: 0,
            flows: false,
            options,
            service,
        }
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The next request that is there: each client's turn comes. New clients are taken now and then.
    /// `fresh`: a moment ago there was none.
    #[inline(always)]
    pub(crate) fn try_next(&mut self, fresh: bool) -> Result<Option<Request>, Error> {
        self.served = self.served.wrapping_add(1);
        if self.served.is_multiple_of(LOOK_EACH) {
            self.admit()?;
        }
        Ok(self.look(fresh))
    }

    #[inline(always)]
    fn look(&mut self, fresh: bool) -> Option<Request> {
        let count = self.clients.len();
        for _ in 0..count {
            let at = if self.next < count { self.next } else { 0 };
            self.next = at + 1;
            if let Some(request) = self.clients[at].next(fresh) {
                self.flows = true;
                return Some(request);
            }
        }
        None
    }

    /// Waits a short time for a request, while one client calls again and again. Returns whether there is something to read.
    fn sleep_briefly(&mut self, deadline: Option<Instant>) -> bool {
        let all_are_told = self.half_requests.is_empty() && self.half_replies.is_empty();
        let flows = std::mem::take(&mut self.flows) && self.options.bell.is_none();
        match &self.clients[..] {
            [client] if flows && all_are_told && client.has_room() => {
                topics::await_briefly(&client.requests, deadline)
            }
            _ => false,
        }
    }

    /// Reads ahead what all clients have sent. An end is no message: only reading tells of it.
    pub(crate) fn read(&mut self) {
        for client in self.clients.iter_mut().filter(|client| !client.gone) {
            client.look_ahead(&mut { MOST_READS });
        }
    }

    /// Takes clients that connect, and lets go of those that are gone.
    pub(crate) fn admit(&mut self) -> Result<(), Error> {
        self.read();
        self.clients
            .retain(|client| !client.gone || !client.ahead.is_empty());
        // The bound is for clients that connect without an end.
        for _ in 0..MOST_HALF_OPEN {
            let Some(end) = accepted(self.requests.try_accept())? else {
                break;
            };
            let status = end.status();
            add(&mut self.half_requests, HalfOpen::new(end, &status));
        }
        for _ in 0..MOST_HALF_OPEN {
            let Some(end) = accepted(self.replies.try_accept())? else {
                break;
            };
            let status = end.status();
            add(&mut self.half_replies, HalfOpen::new(end, &status));
        }
        self.half_requests
            .retain_mut(|half| half.is_wanted(Receiver::try_recv, |end| end.status().peer_gone));
        self.half_replies
            .retain_mut(|half| half.is_wanted(Sender::try_recv_back, |end| end.status().peer_gone));
        let mut at = 0;
        while let Some(half) = self.half_requests.get(at) {
            let (peer, number) = (half.peer, half.number);
            let partner = self
                .half_replies
                .iter()
                .position(|other| number.is_some() && (other.peer, other.number) == (peer, number));
            match partner {
                None => at += 1,
                Some(partner) => {
                    let requests = self.half_requests.swap_remove(at).end;
                    let replies = self.half_replies.swap_remove(partner).end;
                    self.welcome(requests, replies);
                }
            }
        }
        Ok(())
    }

    fn welcome(&mut self, requests: Receiver, mut replies: Sender) {
        let (status, most) = (requests.status(), self.options.clients_per_user);
        let of_user = self
            .clients
            .iter()
            .filter(|c| c.peer.status.peer_uid == status.peer_uid);
        if of_user.count() >= most {
            let _ = replies.try_send((b"", (most as u64).max(1)));
            return;
        }
        // A client that is gone again is found out by its first look.
        let _ = replies.try_send((b"", WELCOME));
        let patience = self.options.patience;
        let peer = Peer::new(replies, status, self.service.clone(), patience);
        self.clients.push(Client {
            requests,
            peer: Arc::new(peer),
            spare: None,
            ahead: VecDeque::new(),
            most_ahead: MOST_AHEAD.max(self.options.lines as usize / 2),
            came: None,
            gone: false,
        });
    }

    /// Reads ahead what that client has sent.
    pub(crate) fn look_ahead(&mut self, peer: &Peer) {
        let client = self
            .clients
            .iter_mut()
            .find(|c| std::ptr::eq(&*c.peer, peer));
        if let Some(client) = client {
            client.look_ahead(&mut { MOST_READS });
        }
    }

    /// Looks again and again, as long as the options say: whether there may be a request.
    pub(crate) fn spin(&mut self) -> bool {
        for client in &mut self.clients {
            client.spare.get_or_insert_with(|| Arc::clone(&client.peer));
        }
        let looks = match self.options.wait {
            Wait::Spin => SPINS,
            Wait::SpinThenSleep(looks) => looks,
            Wait::Sleep => 0,
        };
        (0..looks).any(|_| {
            std::hint::spin_loop();
            self.clients.iter().any(|c| c.requests.is_ready())
        })
    }

    /// Sleeps until there is anything to do, until the deadline at most. A service that spins sleeps only while it has no client.
    pub(crate) fn sleep(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        if self.options.wait == Wait::Spin && !self.clients.is_empty() {
            return Ok(());
        }
        if self.sleep_briefly(deadline) {
            return Ok(());
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = left.map_or(SLEEP, |left| left.min(SLEEP));
        let mut items = vec![
            PollItem::listener(&self.requests),
            PollItem::listener(&self.replies),
        ];
        let requests = self.half_requests.iter_mut().filter(|h| h.number.is_none());
        items.extend(requests.map(|half| PollItem::receiver(&mut half.end)));
        let replies = self.half_replies.iter_mut().filter(|h| h.number.is_none());
        items.extend(replies.map(|half| PollItem::control(&mut half.end)));
        items.extend(
            self.clients
                .iter_mut()
                .map(|c| PollItem::receiver(&mut c.requests)),
        );
        let bell = self.options.bell.as_deref();
        items.extend(bell.map(PollItem::bell));
        poll(&mut items, Some(limit))?;
        match bell.is_some_and(Bell::take) {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Sleeps until a client sends anything, or `nudge` is readable, until the deadline at most.
    pub(crate) fn sleep_for_items(
        &mut self,
        nudge: &OwnedFd,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        if self.options.wait == Wait::Spin {
            return Ok(());
        }
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = left.map_or(SLEEP, |left| left.min(SLEEP));
        let mut items = vec![PollItem::readable(nudge)];
        let clients = self.clients.iter_mut().filter(|client| client.has_room());
        items.extend(clients.map(|c| PollItem::receiver(&mut c.requests)));
        poll(&mut items, Some(limit)).map(drop)
    }

    /// Waits for anything to do, for awaiting. A future that is dropped has lost nothing.
    pub(crate) async fn wait_async(&mut self) -> Result<(), Error> {
        let Hall {
            requests,
            replies,
            half_requests,
            half_replies,
            clients,
            ..
        } = self;
        let mut came = Vec::new();
        {
            let mut accept = (requests.accept_async(), replies.accept_async());
            let unnamed = half_requests
                .iter_mut()
                .filter(|half| half.number.is_none());
            let mut first: Vec<_> = unnamed
                .map(|half| (&mut half.number, &mut half.gone, half.end.recv_async()))
                .collect();
            let unnamed = half_replies.iter_mut().filter(|half| half.number.is_none());
            let mut back: Vec<_> = unnamed
                .map(|half| {
                    let back = half.end.recv_back_async();
                    (&mut half.number, &mut half.gone, back)
                })
                .collect();
            let mut calls: Vec<_> = clients
                .iter_mut()
                .filter(|client| client.has_room())
                .map(|c| (&mut c.came, &mut c.gone, c.requests.recv_async()))
                .collect();
            poll_fn(|context| {
                let mut ready = false;
                if let Poll::Ready(end) = Pin::new(&mut accept.0).poll(context) {
                    came.push(end.map(Came::Requests));
                    ready = true;
                }
                if let Poll::Ready(end) = Pin::new(&mut accept.1).poll(context) {
                    came.push(end.map(Came::Replies));
                    ready = true;
                }
                for (number, gone, said) in &mut first {
                    if let Poll::Ready(message) = Pin::new(said).poll(context) {
                        **number = message.ok().map(|message| message.word);
                        **gone = number.is_none();
                        ready = true;
                    }
                }
                for (number, gone, said) in &mut back {
                    if let Poll::Ready(message) = Pin::new(said).poll(context) {
                        **number = message.ok().map(|message| message.word);
                        **gone = number.is_none();
                        ready = true;
                    }
                }
                for (came, gone, call) in &mut calls {
                    match Pin::new(call).poll(context) {
                        Poll::Ready(Ok(message)) => **came = Some(message),
                        Poll::Ready(Err(_)) => **gone = true,
                        Poll::Pending => continue,
                    }
                    ready = true;
                }
                if ready {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
        for came in came {
            match accepted(came.map(Some))? {
                Some(Came::Requests(end)) => {
                    let status = end.status();
                    add(&mut self.half_requests, HalfOpen::new(end, &status));
                }
                Some(Came::Replies(end)) => {
                    let status = end.status();
                    add(&mut self.half_replies, HalfOpen::new(end, &status));
                }
                None => {}
            }
        }
        for client in &mut self.clients {
            if let Some(message) = client.came.take() {
                client.take_in(word::said(message.word), message);
            }
            if client.gone {
                client.peer.is_gone();
            }
        }
        Ok(())
    }
}

/// A channel that came in while nobody else did anything.
enum Came {
    Requests(Receiver),
    Replies(Sender),
}

/// A client of other types, that breaks the protocol, or that is gone again, is no error of the service's.
fn accepted<E>(accepted: Result<Option<E>, Error>) -> Result<Option<E>, Error> {
    match accepted {
        Err(error)
            if is_gone(&error)
                || error == ErrorKind::PeerViolation
                || error.find::<TypeMismatch>().is_some() =>
        {
            Ok(None)
        }
        accepted => accepted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_with_most_channels_without_a_partner_loses_its_oldest() {
        let begun = Instant::now();
        let half = |end: usize, uid| HalfOpen {
            end,
            peer: DomainId(1),
            uid,
            number: None,
            since: begun + Duration::from_millis(end as u64),
            gone: false,
        };
        let mut halves = Vec::new();
        add(&mut halves, half(1000, 7));
        for end in 0..3 * MOST_HALF_OPEN {
            add(&mut halves, half(end, 8));
        }
        let mut left: Vec<_> = halves.iter().map(|half| half.end).collect();
        left.sort_unstable();
        let newest = 2 * MOST_HALF_OPEN + 1..3 * MOST_HALF_OPEN;
        assert_eq!(left, newest.chain([1000]).collect::<Vec<_>>());
    }
}
