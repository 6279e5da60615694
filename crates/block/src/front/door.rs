//! Door that lets clients in. A client that connects to the channel of answers gets a ticket. A client that shows it at
//! the channel of questions is served.

use super::behind::Behind;
use super::places::{Place, Places, Who};
use super::session::{Fences, ROUND, Session};
use crate::Endpoint;
use crate::leases::random;
use crate::memory;
use crate::transient::{PAUSE, Patience};
use crate::wire::{self, Ask, Hello, Say, VERSION};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tranship_core::{Domain, Error, ErrorKind, Listener, PollItem, Receiver, Sender, poll};

/// Client that has a ticket.
struct Waits {
    answers: Sender,
    _place: Place,
}

pub(super) struct Door {
    asks: Listener<Receiver>,
    answers: Listener<Sender>,
    shared: Arc<DoorState>,
    clients: Vec<JoinHandle<()>>,
}

/// State that the threads of clients share.
struct DoorState {
    at: Endpoint,
    domain: Domain,
    /// Memory that is kept for requests.
    _charged: Option<memory::Charged>,
    behind: Arc<dyn Behind>,
    stop: Arc<AtomicBool>,
    fences: Arc<Fences>,
    /// Clients that have a ticket and are not served yet.
    waiting: Mutex<HashMap<u128, Waits>>,
    /// Places for clients at the channels of answers, and at those of questions.
    places: [Places; 2],
}

impl Door {
    pub(super) fn open(
        at: &Endpoint,
        behind: Arc<dyn Behind>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Door, Error> {
        let domain = at.domain()?;
        Ok(Door {
            asks: domain.listen_with::<Receiver>(&at.asks(), at.channels())?,
            answers: domain.listen_with::<Sender>(&at.answers(), at.channels())?,
            shared: Arc::new(DoorState {
                at: at.clone(),
                _charged: memory::charge_to(&domain),
                domain,
                behind,
                stop: Arc::clone(stop),
                fences: Arc::default(),
                waiting: Mutex::default(),
                places: Default::default(),
            }),
            clients: Vec::new(),
        })
    }

    /// Lets clients in until the end.
    pub(super) fn run(mut self) {
        let mut patience = Patience::default();
        while !self.shared.is_over() {
            let mut both = [
                PollItem::listener(&self.answers),
                PollItem::listener(&self.asks),
            ];
            // `turn` joins the next manager when the last one has gone; waiting alone does not.
            let turned = self.shared.domain.turn();
            if let Err(lack) = turned.and_then(|()| poll(&mut both, Some(ROUND))) {
                patience.say(&self.shared.at, &lack);
                std::thread::sleep(PAUSE);
            }
            let answers = self.answers.try_accept();
            if let Some(answers) = self.shared.accepted(answers) {
                self.shared.give_ticket(answers);
            }
            let asks = self.asks.try_accept();
            if let Some(asks) = self.shared.accepted(asks) {
                self.let_in(asks);
            }
            self.clients.retain(|client| !client.is_finished());
            let mut waiting = self.shared.waiting();
            waiting.retain(|_, waits| !waits.answers.status().peer_gone);
        }
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }

    fn let_in(&mut self, asks: Receiver) {
        let (who, shared) = (Who::sends(&asks), Arc::clone(&self.shared));
        let place = match shared.places[1].take(&who) {
            Ok(place) => place,
            Err(why) => return shared.refuses(&who, &why),
        };
        let thread = std::thread::Builder::new().name("block-client".into());
        let thread = thread.spawn(move || {
            match shared
                .serve(asks, &who)
                .map_err(|error| (error.kind(), error))
            {
                Ok(()) | Err((ErrorKind::PeerGone | ErrorKind::PeerDied, _)) => {
                    tracing::info!("{} is gone", who.name);
                }
                Err((_, error)) => {
                    tracing::warn!("{}: its connection is over: {error}", who.name);
                }
            }
            drop(place);
        });
        match thread {
            Ok(thread) => self.clients.push(thread),
            Err(error) => tracing::error!("no thread for a client: {error}"),
        }
    }
}

impl DoorState {
    fn is_over(&self) -> bool {
        // Ordering: acquire, partner: the front's end.
        self.stop.load(Ordering::Acquire)
    }

    fn refuses(&self, who: &Who, why: &str) {
        tracing::warn!("{}: {} is refused: {why}", self.at, who.name);
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u128, Waits>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted<T>(&self, end: Result<Option<T>, Error>) -> Option<T> {
        end.unwrap_or_else(|error| {
            tracing::warn!("{}: {error}", self.at);
            None
        })
    }

    fn give_ticket(&self, mut answers: Sender) {
        let who = Who::receives(&answers);
        let _place = match self.places[0].take(&who) {
            Ok(place) => place,
            Err(why) => {
                self.refuses(&who, &why);
                // The messages that it still has to bring may take a while.
                std::thread::spawn(move || answers.abandon());
                return;
            }
        };
        let ticket = u128::from(random()) << 64 | u128::from(random());
        let mut waiting = self.waiting();
        // Under the lock: the client may show it at once. A client that is gone is found later.
        let _ = answers.try_send(&wire::encode(&Say::Ticket(ticket))[..]);
        waiting.insert(ticket, Waits { answers, _place });
    }

    /// Serves a client that has a ticket, until it is gone and has given everything back.
    fn serve(&self, mut asks: Receiver, who: &Who) -> Result<(), Error> {
        let hello = self.hello(&mut asks)?;
        let waits = self.waiting().remove(&hello.ticket);
        let other = || Error::new(ErrorKind::Access, "its ticket is not of this service");
        let mut waits = waits.ok_or_else(other)?;
        if hello.version != VERSION {
            let say = wire::encode(&Say::Version(VERSION));
            let _ = waits.answers.try_send(&say[..]);
            let text = format!("it speaks version {}, not {VERSION}", hello.version);
            return Err(Error::new(ErrorKind::ChannelBind, text));
        }
        tracing::info!("{}: {} is let in", self.at, who.name);
        let pool = self.domain.create_pool(self.at.pool())?;
        let fence = self.fences.replace(hello.session);
        let ends = (asks, waits.answers);
        let served = self.behind.serve();
        let ended = Session::new(&hello, ends, &pool, served, fence).run(&|| self.is_over());
        // A client that keeps its buffers keeps its places, too. Otherwise it could have any amount of memory by coming
        // again.
        while pool.in_use() > 0 && !self.is_over() {
            std::thread::sleep(ROUND);
        }
        ended
    }

    fn hello(&self, asks: &mut Receiver) -> Result<Hello, Error> {
        let mut patience = Patience::default();
        while !self.is_over() {
            if let Some(message) = patience.next(&self.at, asks, ROUND)? {
                return match wire::open(message) {
                    Some((Ask::Hello(hello), ..)) => Ok(hello),
                    _ => Err(wire::violation("it", "it does not begin with a hello")),
                };
            }
        }
        Err(ErrorKind::PeerGone.into())
    }
}
