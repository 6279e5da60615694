//! A service's clients: those that connect, and those that call.

use crate::error::is_gone;
use crate::options::ServiceOptions;
use crate::peer::{Ahead, Peer};
use crate::request::Request;
use crate::word::{self, Answer, Said, WELCOME};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};
use tranship_core::{DomainId, Error, Listener, Message, PollItem, Receiver, Sender, Wait, poll};

/// How long a client may take to say which two channels are its own.
const HALF_OPEN: Duration = Duration::from_secs(5);
/// The most channels without a partner.
const MOST_HALF_OPEN: usize = 64;
/// The most requests of one client that are read ahead, to find cancellations behind them.
const MOST_AHEAD: usize = 256;
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
    /// Requests that were read ahead.
    ahead: VecDeque<Message>,
    gone: bool,
}

impl Client {
    /// The next request that is to be begun.
    fn next(&mut self) -> Option<Request> {
        loop {
            let mut message = match self.ahead.pop_front() {
                Some(message) => message,
                None if self.requests.is_ready() => self.read()?,
                None => return None,
            };
            // The cancellation of this request may lie behind it.
            if self.requests.is_ready() {
                self.ahead.push_front(message);
                self.look_ahead();
                message = self.ahead.pop_front()?;
            }
            match word::said(message.word) {
                Said::Cancel { call } => self.peer.cancel(call),
                Said::Request { call, left } if left == Some(Duration::ZERO) => {
                    self.peer.answer(call, Answer::Late);
                }
                Said::Request { call, left } => {
                    self.peer.forget(call);
                    let deadline = left.and_then(|left| Instant::now().checked_add(left));
                    return Some(Request::new(&self.peer, call, deadline, message));
                }
            }
        }
    }

    fn read(&mut self) -> Option<Message> {
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

    /// Reads ahead, for cancellations. Requests that are cancelled before they are begun are let go.
    fn look_ahead(&mut self) {
        while self.ahead.len() < MOST_AHEAD
            && let Some(message) = self.read()
        {
            let Said::Cancel { call } = word::said(message.word) else {
                self.ahead.push_back(message);
                continue;
            };
            let is_it = |m: &Message| matches!(word::said(m.word), Said::Request { call: c, .. } if c == call);
            match self.ahead.iter().position(is_it) {
                Some(at) => {
                    self.ahead.remove(at);
                    self.peer.answer(call, Answer::Dropped);
                }
                None => self.peer.cancel(call),
            }
        }
    }
}

/// A channel of a client whose other one is not here yet.
#[derive(Debug)]
struct HalfOpen<E> {
    end: E,
    peer: DomainId,
    /// What the client calls the two.
    number: Option<u64>,
    since: Instant,
}

impl<E> HalfOpen<E> {
    fn new(end: E, peer: DomainId) -> HalfOpen<E> {
        HalfOpen {
            end,
            peer,
            number: None,
            since: Instant::now(),
        }
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
            options,
            service,
        }
    }

    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// The next request that is there: each client's turn comes. New clients are taken now and then.
    pub(crate) fn try_next(&mut self) -> Result<Option<Request>, Error> {
        self.served = self.served.wrapping_add(1);
        if self.served.is_multiple_of(LOOK_EACH) {
            self.admit()?;
        }
        Ok(self.look())
    }

    fn look(&mut self) -> Option<Request> {
        let count = self.clients.len();
        for _ in 0..count {
            let at = if self.next < count { self.next } else { 0 };
            self.next = at + 1;
            if let Some(request) = self.clients[at].next() {
                return Some(request);
            }
        }
        None
    }

    /// Takes clients that connect, and lets go of those that are gone.
    pub(crate) fn admit(&mut self) -> Result<(), Error> {
        // An end is no message: only reading tells of it.
        for client in self.clients.iter_mut().filter(|client| !client.gone) {
            client.look_ahead();
        }
        self.clients
            .retain(|client| !client.gone || !client.ahead.is_empty());
        while self.half_requests.len() < MOST_HALF_OPEN
            && let Some(end) = accepted(self.requests.try_accept())?
        {
            let peer = end.status().peer;
            self.half_requests.push(HalfOpen::new(end, peer));
        }
        while self.half_replies.len() < MOST_HALF_OPEN
            && let Some(end) = accepted(self.replies.try_accept())?
        {
            let peer = end.status().peer;
            self.half_replies.push(HalfOpen::new(end, peer));
        }
        // One that is gone, or took too long, is not waited for.
        self.half_requests.retain_mut(|half| {
            let said = half
                .number
                .map_or_else(|| half.end.try_recv(), |_| Ok(None));
            if let Ok(Some(message)) = &said {
                half.number = Some(message.word);
            }
            said.is_ok() && half.since.elapsed() < HALF_OPEN
        });
        self.half_replies.retain_mut(|half| {
            let said = half
                .number
                .map_or_else(|| half.end.try_recv_back(), |_| Ok(None));
            if let Ok(Some(message)) = &said {
                half.number = Some(message.word);
            }
            said.is_ok() && half.since.elapsed() < HALF_OPEN
        });
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
        self.clients.push(Client {
            requests,
            peer: Arc::new(Peer::new(replies, status, self.service.clone())),
            ahead: VecDeque::new(),
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
            client.look_ahead();
        }
    }

    /// Looks again and again, as long as the options say: whether there may be a request.
    pub(crate) fn spin(&self) -> bool {
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
                .map(|half| (&mut half.number, half.end.recv_async()))
                .collect();
            let unnamed = half_replies.iter_mut().filter(|half| half.number.is_none());
            let mut back: Vec<_> = unnamed
                .map(|half| (&mut half.number, half.end.recv_back_async()))
                .collect();
            let mut calls: Vec<_> = clients
                .iter_mut()
                .map(|c| (&mut c.ahead, &mut c.gone, c.requests.recv_async()))
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
                for (number, said) in &mut first {
                    if let Poll::Ready(message) = Pin::new(said).poll(context) {
                        **number = message.ok().map(|message| message.word);
                        ready = true;
                    }
                }
                for (number, said) in &mut back {
                    if let Poll::Ready(message) = Pin::new(said).poll(context) {
                        **number = message.ok().map(|message| message.word);
                        ready = true;
                    }
                }
                for (ahead, gone, call) in &mut calls {
                    match Pin::new(call).poll(context) {
                        Poll::Ready(Ok(message)) => ahead.push_back(message),
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
                    let peer = end.status().peer;
                    self.half_requests.push(HalfOpen::new(end, peer));
                }
                Some(Came::Replies(end)) => {
                    let peer = end.status().peer;
                    self.half_replies.push(HalfOpen::new(end, peer));
                }
                None => {}
            }
        }
        for client in self.clients.iter().filter(|client| client.gone) {
            client.peer.is_gone();
        }
        Ok(())
    }
}

/// A channel that came in while nobody else did anything.
enum Came {
    Requests(Receiver),
    Replies(Sender),
}

/// A client of other types, or that is gone again, is no error of the service's.
fn accepted<E>(accepted: Result<Option<E>, Error>) -> Result<Option<E>, Error> {
    match accepted {
        Err(error)
            if is_gone(&error) || error.find::<tranship_core::error::TypeMismatch>().is_some() =>
        {
            Ok(None)
        }
        accepted => accepted,
    }
}
